"""A snapshot of the producers of a partition, version 1 (DB-75, FM-30):

    version 1 (int16), CRC-32C of everything after it (uint32), count (int32), then the entries, 46 bytes each:
    producer id (int64), epoch (int16), last sequence (int32), last offset (int64), last offset - first one (int32),
    timestamp (int64), coordinator epoch (int32), first offset of the open transaction (int64)

-1 stands for no batch, no timestamp, no coordinator, no transaction. A producer has one entry for each of its last
batches (`ProducerState.to_entries`); in Kafka's snapshots it has one entry, for its last batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from kraftbase.checksum import crc32c
from kraftlog.kafka.errors import MalformedBytes

VERSION: Final = 1
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class ProducerEntry(NamedTuple):
    """An entry of a snapshot: a producer, and one of its batches."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the content of a snapshot."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def checksum_in(data: bytes) -> int:
    """Return the CRC field of a complete snapshot."""
    return int(_HEAD.unpack_from(data)[1])


def decode_snapshot(data: bytes, path: str, known_crc: int | None = None) -> list[ProducerEntry]:
    """Return the entries of a snapshot. Raises MalformedBytes; then the caller uses an older snapshot.

    `known_crc` is the recorded CRC of the snapshot that was written to this file; None if unknown.
    """
    if len(data) < _HEAD.size + _COUNT.size:
        raise MalformedBytes(path, f"it has only {len(data)} bytes")
    version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if version != VERSION:
        raise MalformedBytes(path, f"its version is {version}; only {VERSION} is known")
    if crc != crc32c(body):
        raise MalformedBytes(path, f"its CRC field is {crc:#010x}, and the CRC of its bytes is {crc32c(body):#010x}")
    if known_crc not in (None, crc):
        raise MalformedBytes(
            path, f"its CRC is {crc:#010x}, and the snapshot that was written here had {known_crc:#010x}"
        )
    (count,) = _COUNT.unpack_from(body)
    entries = body[_COUNT.size :]
    if len(entries) != count * _ENTRY.size:
        raise MalformedBytes(path, f"{count} entries do not fit its {len(entries)} bytes")
    return [ProducerEntry._make(entry) for entry in _ENTRY.iter_unpack(entries)]
