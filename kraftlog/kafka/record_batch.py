"""Record batches of version 2 (KIP-98, FM-14), the only ones that Kafka 4 has, and their records.

    offset bytes field                      what it is
         0     8 base offset                of the first record; a broker sets it
         8     4 batch length               bytes after this field
        12     4 partition leader epoch     a broker sets it
        16     1 magic                      2
        17     4 CRC                        CRC-32C of everything after it, so not of the four fields above
        21     2 attributes                 bits 0 to 2 compression, 3 log append time, 4 transactional, 5 control
        23     4 last offset delta          last offset - base offset; stays when compaction removes records
        27     8 base timestamp             milliseconds
        35     8 max timestamp
        43     8 producer id                -1 without idempotence
        51     2 producer epoch
        53     4 base sequence
        57     4 count of records
        61       the records, compressed or not

A batch is a view of bytes. Its records are read on demand, and not if they are compressed: this module inflates
nothing, `kraftlog.kafka.codecs` does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from kraftbase.checksum import extend_crc32c
from kraftbase.errors import KraftlogError
from kraftlog.kafka.errors import MalformedBytes, UnknownFormat, UnwritableValue
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.records import Record, encode_record, read_records

MAGIC: Final = 2
CRC_PIECE_BYTES: Final = 128 * 1024
"""The CRC needs bytes, so a view is copied, in pieces of this size, which fit in the processor's cache."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CHECKED: Final = struct.Struct(">hiqqqhii")
_UNCHECKED: Final = struct.Struct(">qiibI")
HEADER_BYTES: Final = HEADER.size
LENGTH_END: Final = 12
"""The batch length counts from here."""

_COMPRESSION_BITS: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
"""The attribute of a batch of control records."""


class Compression(IntEnum):
    """How the records of a batch are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressedBatch(KraftlogError):
    """The records of a batch cannot be read because they are compressed."""


class RecordBatch(NamedTuple):
    """A batch: the fields of its header, in their order, and all of its bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    data: memoryview

    @property
    def end_offset(self) -> int:
        """The offset after the last offset."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """How the records are compressed. Raises UnknownFormat for a codec that Kafka 4.3 does not have."""
        bits = self.attributes & _COMPRESSION_BITS
        if bits > Compression.ZSTD:
            raise UnknownFormat(_name(self.base_offset), f"its compression is {bits}, which Kafka 4.3 does not have")
        return Compression(bits)

    @property
    def is_control(self) -> bool:
        """Whether the records are control records."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the records are of a producer's transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def has_log_append_time(self) -> bool:
        """Whether every record has the batch's max timestamp, which the broker set at the append."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    def check_crc(self) -> None:
        """Raise MalformedBytes unless the CRC matches the bytes."""
        found = crc32c_of(self.data[_UNCHECKED.size :])
        if found != self.crc:
            raise MalformedBytes(
                _name(self.base_offset), f"its CRC is {self.crc:#010x}, that of its bytes {found:#010x}"
            )

    def records(self) -> tuple[Record, ...]:
        """The records. Raises MalformedBytes, and CompressedBatch if they are compressed."""
        if self.compression:
            raise CompressedBatch(
                f"the records of the {_name(self.base_offset)} are compressed with {self.compression.name.lower()},"
                " and this reader inflates nothing"
            )
        return read_records(
            bytes(self.data), HEADER_BYTES, self.record_count, self.base_offset, self.last_offset_delta,
            self.base_timestamp_ms, self.max_timestamp_ms if self.has_log_append_time else None,
        )  # fmt: skip


def read_batch(data: Buffer, at: int = 0) -> RecordBatch | None:
    """Return the batch at a position, or None if the bytes end within it. The CRC is not checked.

    Raises MalformedBytes for an impossible length or count, and UnknownFormat for another magic than 2.
    """
    left = len(data) - at
    if left < HEADER_BYTES:
        return None
    header = HEADER.unpack_from(data, at)
    base_offset, length, magic = header[0], header[1], header[3]
    if magic != MAGIC:
        raise UnknownFormat(_name(base_offset), f"its magic is {magic}, and only batches of magic {MAGIC} are read")
    if length < HEADER_BYTES - LENGTH_END:
        raise MalformedBytes(_name(base_offset), f"its length is {length}, less than a header's")
    if header[12] < 0 or header[6] < 0:
        raise MalformedBytes(_name(base_offset), f"it has {header[12]} records and the last offset delta {header[6]}")
    if length > left - LENGTH_END:
        return None
    return RecordBatch._make((*header, memoryview(data)[at : at + LENGTH_END + length]))


def read_batches(data: Buffer, at: int = 0) -> Iterator[RecordBatch]:
    """Yield the whole batches from a position on; one that is cut off is left out. Raises as `read_batch`."""
    view = memoryview(data)
    while (batch := read_batch(view, at)) is not None:
        yield batch
        at += len(batch.data)


def encode_batch(
    records: Sequence[Record], *, base_offset: int, partition_leader_epoch: int, attributes: int = 0,
    last_offset_delta: int | None = None, base_timestamp_ms: int | None = None, max_timestamp_ms: int | None = None,
    producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1,
) -> bytes:  # fmt: skip
    """Return a batch of uncompressed records. Deltas and timestamps that are not given follow from the records.

    Raises UnwritableValue, also for attributes that say that the records are compressed.
    """
    if attributes & _COMPRESSION_BITS:
        raise UnwritableValue(_name(base_offset), "records are not compressed here")
    deltas = [record.offset - base_offset for record in records]
    last_offset_delta = max(deltas, default=-1) if last_offset_delta is None else last_offset_delta
    if deltas != sorted(deltas) or (deltas and not 0 <= deltas[0] <= deltas[-1] <= last_offset_delta):
        raise UnwritableValue(_name(base_offset), f"its records' offsets do not ascend from 0 to {last_offset_delta}")
    timestamps = [record.timestamp_ms for record in records]
    if base_timestamp_ms is None:
        base_timestamp_ms = timestamps[0] if timestamps else -1
    try:
        body = b"".join([encode_record(record, base_offset, base_timestamp_ms) for record in records])
        checked = _CHECKED.pack(
            attributes,
            last_offset_delta,
            base_timestamp_ms,
            max(timestamps, default=-1) if max_timestamp_ms is None else max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
        crc = crc32c_of(checked + body)
        length = HEADER_BYTES - LENGTH_END + len(body)
        return _UNCHECKED.pack(base_offset, length, partition_leader_epoch, MAGIC, crc) + checked + body
    except (struct.error, ValueError) as error:
        raise UnwritableValue(_name(base_offset), str(error)) from error


def crc32c_of(data: Buffer) -> int:
    """Return the CRC-32C of bytes, without copying all of them at once."""
    crc = 0
    for at in range(0, len(data), CRC_PIECE_BYTES):
        crc = extend_crc32c(crc, bytes(data[at : at + CRC_PIECE_BYTES]))
    return crc


def _name(base_offset: int) -> str:
    return f"batch at offset {base_offset}"
