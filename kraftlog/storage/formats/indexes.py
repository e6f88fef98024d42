"""The entries of index files, big-endian and without a checksum (FM-30); a wrong index is rebuilt from the log.

.index       8 bytes   offset - base offset (int32), position of the batch that ends with this offset (int32)
.timeindex  12 bytes   timestamp in milliseconds (int64), offset - base offset (int32)
.txnindex   34 bytes   version 0 (int16), producer id, first offset, last offset, last stable offset (int64 each)
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from kraftlog.kafka.errors import MalformedBytes

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")
TRANSACTION_VERSION: Final = 0
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""The largest distance of an offset from its segment's base offset."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction: an entry in the index of the segment with its marker (DB-73)."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    """The offset after the marker, or the first offset of the earliest transaction that was still open then."""

    def encode(self) -> bytes:
        """Return the bytes of the entry."""
        return TRANSACTION_ENTRY.pack(TRANSACTION_VERSION, *self)


def decode_aborted(data: bytes, path: str) -> list[AbortedTransaction]:
    """Return the entries of a `.txnindex`; an incomplete last entry is ignored. Raises MalformedBytes."""
    whole = data[: len(data) - len(data) % TRANSACTION_ENTRY.size]
    found = []
    for version, *entry in TRANSACTION_ENTRY.iter_unpack(whole):
        if version != TRANSACTION_VERSION:
            raise MalformedBytes(path, f"an entry has version {version}; only {TRANSACTION_VERSION} is known")
        found.append(AbortedTransaction(*entry))
    return found


def can_be_decoded(data: bytes, path: str) -> bool:
    """Whether `decode_aborted` accepts the bytes."""
    try:
        decode_aborted(data, path)
    except MalformedBytes:
        return False
    return True
