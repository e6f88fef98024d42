"""The record that has a timestamp, to answer ListOffsets: a batch's records are inflated and read for that (DB-51)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.record_batch import Compression
from kraftlog.kafka.record_heads import RecordHeads
from kraftlog.storage.batch_records import BatchRecords, InflationMemory
from kraftlog.storage.formats.batch_header import BATCH_BYTES_MIN, BatchHeader

INFLATED_BYTES_MAX: Final = 1024**3
"""As far as a batch is inflated: a thousand times the default of max.message.bytes, as for one that is produced."""

_NEVER: Final = -(2**65)


class FoundRecord(NamedTuple):
    """A record by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class BatchBytes(NamedTuple):
    """A batch as it is in the log."""

    header: BatchHeader
    data: bytes


Search = Generator[bool, None, FoundRecord | None]
"""Looks for a record. Each step reads a piece of a batch, and tells whether it waits for memory; then there is the
result.

No step but the first of a batch reads a file: the log may change between two steps.
"""


def result_of(search: Search) -> FoundRecord | None:
    """The result, with all steps done now."""
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: FoundRecord | None = end.value
            return found


def first_not_older(batch: BatchBytes, timestamp_ms: int, start_offset: int, memory: InflationMemory) -> Search:
    """The first record from `start_offset` on with at least this timestamp.

    Of a batch that cannot be read it is the first one: a reader then gets a few that are older, and misses none.
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
    """The first record from `start_offset` on with the largest timestamp; of a batch that cannot be read, the last."""
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
    """The newest record of several batches, of equal ones the first; None if none has a timestamp."""
    best: FoundRecord | None = None
    for batch in batches:
        found = yield from newest(batch, start_offset, memory)
        if found is not None and found.timestamp_ms >= 0 and (best is None or found.timestamp_ms > best.timestamp_ms):
            best = found
    return best


def _heads(batch: BatchBytes, memory: InflationMemory) -> Generator[RecordHeads | None, None, None]:
    """The portions; None while there is no memory. After each the turn may end."""
    header = batch.header
    view = memoryview(batch.data)[BATCH_BYTES_MIN : header.size_bytes]
    try:
        codec = Compression(header.compression)
    except ValueError:
        raise MalformedBytes(f"batch at offset {header.base_offset}", "its codec is none that Kafka has") from None
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
    """Of a portion. No object is made for each record: of so many, Python would look for garbage again and again."""
    if _newest_ms(header, heads) < timestamp_ms:
        return None
    least = _NEVER if header.has_append_time else timestamp_ms - header.base_timestamp_ms
    first = start_offset - header.base_offset
    for index, delta in enumerate(heads.timestamp_deltas):
        if delta >= least and heads.offset_deltas[index] >= first:
            return _record(header, heads, index)
    return None


def _newest(header: BatchHeader, heads: RecordHeads, start_offset: int) -> FoundRecord | None:
    """The first of the newest records of a portion."""
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
    """The largest timestamp; below every other if there is no record."""
    if header.has_append_time:
        return header.max_timestamp_ms
    return header.base_timestamp_ms + (heads.summary()[1] if heads.timestamp_deltas else _NEVER)


def _record(header: BatchHeader, heads: RecordHeads, index: int) -> FoundRecord:
    """A record of a portion by its index there."""
    timestamp_ms = header.max_timestamp_ms
    if not header.has_append_time:
        timestamp_ms = header.base_timestamp_ms + heads.timestamp_deltas[index]
    return FoundRecord(timestamp_ms, header.base_offset + heads.offset_deltas[index], header.leader_epoch)
