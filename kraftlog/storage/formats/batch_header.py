"""The header of a batch in a partition's log; to a broker the rest of the batch is opaque bytes (FM-14).

The layout is in `kraftlog.kafka.record_batch`. The CRC does not cover the base offset and the leader epoch, so a leader
writes them into the client's bytes. It does cover the timestamps: writing an append time requires a new CRC.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from kraftbase.checksum import crc32c, extend_crc32c
from kraftbase.sentinels import NO_SEQUENCE
from kraftlog.kafka.errors import MalformedBytes, UnknownFormat
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_batch import CONTROL, CRC_PIECE_BYTES, HEADER, HEADER_BYTES, LENGTH_END, MAGIC

MAX_SEQUENCE: Final = 2**31 - 1
BATCH_BYTES_MIN: Final = HEADER_BYTES
SIZE_END: Final = LENGTH_END
"""The number of bytes of a batch up to the end of its length field."""

_CRC_START: Final = 21
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_COMPRESSION: Final = 0x07
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_EPOCH_AT: Final = 12
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35


class BatchHeader(NamedTuple):
    """The header of a batch."""

    base_offset: int
    batch_length: int
    leader_epoch: int
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

    @property
    def size_bytes(self) -> int:
        """The bytes of the whole batch."""
        return LENGTH_END + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, even if compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap to 0 after 2^31 - 1 (DB-70)."""
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE if self.base_sequence >= 0 else NO_SEQUENCE

    @property
    def is_control(self) -> bool:
        """Whether its record is a control record, such as the end marker of a transaction."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether its records are part of a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def has_append_time(self) -> bool:
        """Whether the broker set the max timestamp, which is then the timestamp of every record."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_compressed(self) -> bool:
        """Whether its records are compressed."""
        return bool(self.attributes & _COMPRESSION)

    @property
    def compression(self) -> int:
        """The number of the codec, which may be unknown."""
        return self.attributes & _COMPRESSION


def unpack_header(data: Buffer, at: int = 0) -> BatchHeader:
    """Unpack the header at a position, without checks; `data` must have all of its bytes."""
    return BatchHeader._make(HEADER.unpack_from(data, at))


def read_header(data: Buffer, at: int = 0) -> BatchHeader:
    """Unpack and check the header at a position; `data` must have all of its bytes. The CRC is not checked.

    Raises MalformedBytes for impossible values, UnknownFormat for another magic than 2.
    """
    header = unpack_header(data, at)
    if header.magic != MAGIC:
        raise UnknownFormat(
            f"batch at offset {header.base_offset}",
            f"its magic is {header.magic}; only batches of magic {MAGIC} are read",
        )
    if (
        header.batch_length < HEADER_BYTES - LENGTH_END
        or header.last_offset_delta < 0
        or header.record_count < 0
        or header.base_offset < 0
    ):
        raise MalformedBytes(
            f"batch at offset {header.base_offset}",
            f"its length is {header.batch_length}, its last offset delta {header.last_offset_delta}, its count of"
            f" records {header.record_count}: that is not possible",
        )
    return header


def read_headers(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each complete batch. Raises the errors of `read_header`."""
    at, end = 0, len(data)
    while end - at >= HEADER_BYTES:
        header = read_header(data, at)
        if header.size_bytes > end - at:
            return
        yield at, header
        at += header.size_bytes


def has_right_crc(header: BatchHeader, data: Buffer, at: int = 0) -> bool:
    """Whether the CRC in the header matches the batch at a position of `data`, which must have all of it."""
    return crc_of(data, at + _CRC_START, at + header.size_bytes) == header.crc


def crc_of(data: Buffer, start: int, end: int) -> int:
    """Return the CRC-32C of some bytes, computed in pieces that fit into the processor's cache."""
    if end - start <= CRC_PIECE_BYTES:
        return crc32c(bytes(data[start:end]))
    crc = 0
    for at in range(start, end, CRC_PIECE_BYTES):
        crc = extend_crc32c(crc, bytes(data[at : min(end, at + CRC_PIECE_BYTES)]))
    return crc


def writable(data: Buffer) -> bytearray | memoryview:
    """Return `data` itself if it is writable, else a copy."""
    if isinstance(data, bytearray) or (isinstance(data, memoryview) and not data.readonly):
        return data
    return bytearray(data)


def set_place(data: bytearray | memoryview, at: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and the leader epoch into the batch at a position."""
    _OFFSET.pack_into(data, at, base_offset)
    _EPOCH.pack_into(data, at + _EPOCH_AT, leader_epoch)


def set_append_time(data: bytearray | memoryview, at: int, header: BatchHeader, now_ms: int) -> None:
    """Write the append time, which applies to all records, and the new CRC into the batch."""
    _ATTRIBUTES.pack_into(data, at + _CRC_START, header.attributes | _LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(data, at + _MAX_TIMESTAMP_AT, now_ms)
    _CRC.pack_into(data, at + _CRC_AT, crc_of(data, at + _CRC_START, at + header.size_bytes))


def set_max_timestamp(data: bytearray | memoryview, at: int, header: BatchHeader, timestamp_ms: int) -> None:
    """Write the largest timestamp of the records and the new CRC into the batch."""
    _MAX_TIMESTAMP.pack_into(data, at + _MAX_TIMESTAMP_AT, timestamp_ms)
    _CRC.pack_into(data, at + _CRC_AT, crc_of(data, at + _CRC_START, at + header.size_bytes))
