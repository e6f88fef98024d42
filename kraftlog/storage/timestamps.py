"""Searches a batch's records, inflated, for one by its timestamp, to answer ListOffsets (DB-51)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.record_batch import Compression
from kraftlog.kafka.record_heads import RecordHeads
from kraftlog.storage.batch_records import BatchRecords, InflationMemory
from kraftlog.storage.formats.batch_header import BATCH_BYTES_MIN, BatchHeader

INFLATED_BYTES_MAX: Final = 1024**3
"""The most bytes that a batch may inflate to: 1,000 times the default max.message.bytes, as for produced batches."""

_NEVER: Final = -(2**65)


class FoundRecord(NamedTuple):
    """The result of a search: a record's timestamp, offset and leader epoch."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class BatchBytes(NamedTuple):
    """A batch of the log: its header, and all of its bytes."""

    header: BatchHeader
    data: bytes


Search = Generator[bool, None, FoundRecord | None]
"""A search for a record, in steps. Each step reads a piece of a batch, and yields whether it waits for memory. The
generator's return value is the result.

Only the first step of a batch reads a file, since the log may change between two steps.
"""


def result_of(search: Search) -> FoundRecord | None:
    """Do all steps now, and return the result."""
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: FoundRecord | None = end.value
            return found


def first_not_older(batch: BatchBytes, timestamp_ms: int, start_offset: int, memory: InflationMemory) -> Search:
    """Search for the first record from `start_offset` on with at least this timestamp.

    For an unreadable batch the result is its first offset: a consumer then gets a few older records, and misses none.
    """
    header = batch.header
    try:
        for heads in _heads(batch, memory):
            yield heads is None
            if heads is None:
                continue
            found = _first_not_older(header, heads, timestamp_ms, start_offset)
            if found is not None:
                return found
    except MalformedBytes:
        return FoundRecord(header.max_timestamp_ms, max(start_offset, header.base_offset), header.leader_epoch)
    return None


def newest(batch: BatchBytes, start_offset: int, memory: InflationMemory) -> Search:
    """Search for the first record from `start_offset` on with the largest timestamp; an unreadable batch's last one."""
    header = batch.header
    found: FoundRecord | None = None
    try:
        for heads in _heads(batch, memory):
            yield heads is None
            if heads is None:
                continue
            best = _newest(header, heads, start_offset)
            if best is not None and (found is None or best.timestamp_ms > found.timestamp_ms):
                found = best
                if found.timestamp_ms == header.max_timestamp_ms:
                    return found
    except MalformedBytes:
        return FoundRecord(header.max_timestamp_ms, header.last_offset, header.leader_epoch)
    return found


def newest_of(batches: list[BatchBytes], start_offset: int, memory: InflationMemory) -> Search:
    """Search for the newest record of several batches, the first of equal ones; None if none has a timestamp."""
    best: FoundRecord | None = None
    for batch in batches:
        found = yield from newest(batch, start_offset, memory)
        if found is not None and found.timestamp_ms >= 0 and (best is None or found.timestamp_ms > best.timestamp_ms):
            best = found
    return best


def _heads(batch: BatchBytes, memory: InflationMemory) -> Generator[RecordHeads | None, None, None]:
    """Yield the portions of a batch's records, or None while memory is missing. The turn may end after each."""
    header = batch.header
    view = memoryview(batch.data)[BATCH_BYTES_MIN : header.size_bytes]
    try:
        codec = Compression(header.compression)
    except ValueError:
        raise MalformedBytes(f"batch at offset {header.base_offset}", "its codec is not one of Kafka's") from None
    records = BatchRecords(codec, view, header.record_count, INFLATED_BYTES_MAX, memory)
    try:
        while not records.is_read:
            for heads in records.portions():
                records.end_turn()
                yield heads
            if not records.is_read:
                yield None
    finally:
        records.close()


def _first_not_older(
    header: BatchHeader, heads: RecordHeads, timestamp_ms: int, start_offset: int
) -> FoundRecord | None:
    """Search one portion, without an object for each record: so many would trigger Python's garbage collector often."""
    if _newest_ms(header, heads) < timestamp_ms:
        return None
    least = _NEVER if header.has_append_time else timestamp_ms - header.base_timestamp_ms
    first = start_offset - header.base_offset
    for index, delta in enumerate(heads.timestamp_deltas):
        if delta >= least and heads.offset_deltas[index] >= first:
            return _record(header, heads, index)
    return None


def _newest(header: BatchHeader, heads: RecordHeads, start_offset: int) -> FoundRecord | None:
    """Return the first of the newest records of a portion, or None."""
    first = start_offset - header.base_offset
    timestamps: Sequence[int] = heads.timestamp_deltas
    if min(heads.offset_deltas, default=first) < first:
        timestamps = [
            delta if heads.offset_deltas[index] >= first else _NEVER
            for index, delta in enumerate(heads.timestamp_deltas)
        ]
    newest_delta = max(timestamps, default=_NEVER)
    if newest_delta == _NEVER:
        return None
    if header.has_append_time:
        return _record(header, heads, next(index for index, delta in enumerate(timestamps) if delta != _NEVER))
    return _record(header, heads, timestamps.index(newest_delta))


def _newest_ms(header: BatchHeader, heads: RecordHeads) -> int:
    """Return the largest timestamp of a portion; below every possible one if the portion is empty."""
    if header.has_append_time:
        return header.max_timestamp_ms
    return header.base_timestamp_ms + (heads.summary()[1] if heads.timestamp_deltas else _NEVER)


def _record(header: BatchHeader, heads: RecordHeads, index: int) -> FoundRecord:
    """Return a record of a portion by its index in the portion."""
    timestamp_ms = header.max_timestamp_ms
    if not header.has_append_time:
        timestamp_ms = header.base_timestamp_ms + heads.timestamp_deltas[index]
    return FoundRecord(timestamp_ms, header.base_offset + heads.offset_deltas[index], header.leader_epoch)
