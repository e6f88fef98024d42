"""The record that has a timestamp: the one time when a batch's records are read, to answer ListOffsets (DB-51)."""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from kraftlog.broker.log.formats.batch_header import BATCH_BYTES_MIN, BatchHeader
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.record_batch import Compression, RecordBatch, read_batch
from kraftlog.kafka.records import Record, read_records

GZIP_WINDOW_BITS: Final = 31
OPENED_BYTES_MAX: Final = 64 * 1024 * 1024
"""A batch that is larger than this when it is opened is not read."""


class FoundRecord(NamedTuple):
    """A record by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def first_not_older(data: bytes, header: BatchHeader, timestamp_ms: int, start_offset: int) -> FoundRecord:
    """The first record from `start_offset` on with at least this timestamp, in a batch that has one.

    Of a batch that is compressed with anything but gzip, for which there is no codec here, it is the first record: a
    reader then gets a few that are older, and misses none.
    """
    for record in _records(data, header):
        if record.offset >= start_offset and record.timestamp_ms >= timestamp_ms:
            return FoundRecord(record.timestamp_ms, record.offset, header.leader_epoch)
    return FoundRecord(header.max_timestamp_ms, max(start_offset, header.base_offset), header.leader_epoch)


def newest(data: bytes, header: BatchHeader, start_offset: int) -> FoundRecord:
    """The first record from `start_offset` on with the largest timestamp; of a batch that cannot be opened, the last.

    Its last offset is not below `start_offset`.
    """
    records = [record for record in _records(data, header) if record.offset >= start_offset]
    if not records:
        return FoundRecord(header.max_timestamp_ms, header.last_offset, header.leader_epoch)
    record = max(records, key=lambda record: record.timestamp_ms)
    return FoundRecord(record.timestamp_ms, record.offset, header.leader_epoch)


def _records(data: bytes, header: BatchHeader) -> tuple[Record, ...]:
    """The records, or nothing if they cannot be read."""
    batch = read_batch(data)
    try:
        if batch is None:
            return ()
        if not header.is_compressed:
            return batch.records()
        return _opened(batch, data) if header.compression == Compression.GZIP else ()
    except (MalformedBytes, zlib.error):
        return ()


def _opened(batch: RecordBatch, data: bytes) -> tuple[Record, ...]:
    opener = zlib.decompressobj(GZIP_WINDOW_BITS)
    opened = opener.decompress(data[BATCH_BYTES_MIN:], OPENED_BYTES_MAX)
    if opener.unconsumed_tail:
        return ()
    return read_records(
        opened, 0, batch.record_count, batch.base_offset, batch.last_offset_delta, batch.base_timestamp_ms,
        batch.max_timestamp_ms if batch.has_log_append_time else None,
    )  # fmt: skip
