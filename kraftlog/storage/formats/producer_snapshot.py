"""A snapshot of the producers of a partition, version 1 (DB-75, FM-30):

    version 1 (int16), CRC-32C of everything after it (uint32), count (int32), then the entries, 46 bytes each:
    producer id (int64), epoch (int16), last sequence (int32), last offset (int64), last offset - first one (int32),
    timestamp (int64), coordinator epoch (int32), first offset of the open transaction (int64)

-1 stands for no batch, no timestamp, no coordinator, no transaction. A producer has an entry for each of its last
batches (`ProducerState.to_entries`), in a snapshot of Kafka's for its last one only.
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
    """A batch of a producer, and the producer, as a snapshot has them."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The content of a snapshot."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def checksum_in(data: bytes) -> int:
    """The CRC that a whole snapshot has in it."""
    return int(_HEAD.unpack_from(data)[1])


def decode_snapshot(data: bytes, path: str, known_crc: int | None = None) -> list[ProducerEntry]:
    """The entries of a snapshot. Raises MalformedBytes: then an older one is to be used.

    `known_crc`: the CRC that it has if it is the snapshot that was written there; None if that is not known.
    """
    if len(data) < _HEAD.size + _COUNT.size:
        raise MalformedBytes(path, f"it has {len(data)} bytes only")
    version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if version != VERSION:
        raise MalformedBytes(path, f"its version is {version}; only {VERSION} is known")
    if crc != crc32c(body):
        raise MalformedBytes(path, f"its CRC is {crc:#010x}, that of its bytes {crc32c(body):#010x}")
    if known_crc not in (None, crc):
        raise MalformedBytes(
            path, f"its CRC is {crc:#010x}, that of the snapshot that was written was {known_crc:#010x}"
        )
    (count,) = _COUNT.unpack_from(body)
    entries = body[_COUNT.size :]
    if len(entries) != count * _ENTRY.size:
        raise MalformedBytes(path, f"{count} entries are not in {len(entries)} bytes")
    return [ProducerEntry._make(entry) for entry in _ENTRY.iter_unpack(entries)]
