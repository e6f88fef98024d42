"""The entries of index files, big-endian and without a checksum (FM-30): what is wrong in them is rebuilt from the log.

.index       8 bytes   offset - base offset (int32), position in the log of the batch that ends at it (int32)
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
"""The largest distance of an offset from its segment's first one."""


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted, in the index of the segment that has its marker (DB-73)."""

    producer_id: int
    first_offset: int
    last_offset: int
    """That of the marker."""
    last_stable_offset: int
    """Behind the marker, or the first offset of another transaction that was open then."""

    def encode(self) -> bytes:
        """The entry."""
        return TRANSACTION_ENTRY.pack(TRANSACTION_VERSION, *self)


def decode_aborted(data: bytes, path: str) -> list[AbortedTransaction]:
    """The entries of a `.txnindex`; a part of one at the end was not finished and is ignored. Raises MalformedBytes."""
    whole = data[: len(data) - len(data) % TRANSACTION_ENTRY.size]
    found = []
    for version, *entry in TRANSACTION_ENTRY.iter_unpack(whole):
        if version != TRANSACTION_VERSION:
            raise MalformedBytes(path, f"an entry has version {version}; only {TRANSACTION_VERSION} is known")
        found.append(AbortedTransaction(*entry))
    return found


def can_be_decoded(data: bytes, path: str) -> bool:
    """Whether `decode_aborted` takes it."""
    try:
        decode_aborted(data, path)
    except MalformedBytes:
        return False
    return True
