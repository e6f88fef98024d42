"""A record as the clients' commands read and print it, and a digest of many. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct as Packing
from typing import Final

DIGEST_BYTES: Final = 16

_LENGTH: Final = Packing(">q")
_NULL_LENGTH: Final = -1
_MODULUS: Final = 1 << (8 * DIGEST_BYTES)

Headers = tuple[tuple[str, bytes | None], ...]


class InvalidLine(ValueError):
    """A line is not a record. The message has the reason and the correct form, without the line's number."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record: one that is to be written, or one that was read. None is Kafka's null."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    """Since 1970. None: the client's clock decides; or a record that was read has none."""
    partition: int | None = None
    """None: chosen by the key, or at random without a key."""
    offset: int | None = None
    """Only of a record that was read."""

    @property
    def size_bytes(self) -> int:
        """Of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class ContentDigest:
    """A digest of records that does not depend on their order or partitions.

    Keys, values and headers count; partitions, offsets and timestamps do not. It is the sum, modulo 2^128, of a hash of
    each record. So the sum of two digests is the digest of all their records, and a repeated record changes it.
    """

    def __init__(self) -> None:
        self._sum = 0

    def add(self, record: Record) -> None:
        """Count one record."""
        parts = [record.key, record.value]
        for name, value in record.headers:
            parts += name.encode(), value
        hashed = blake2b(digest_size=DIGEST_BYTES)
        for part in parts:
            hashed.update(_LENGTH.pack(_NULL_LENGTH if part is None else len(part)))
            hashed.update(part or b"")
        self._sum = (self._sum + int.from_bytes(hashed.digest(), "big")) % _MODULUS

    def merge(self, other: ContentDigest) -> None:
        """Count all records of another digest."""
        self._sum = (self._sum + other._sum) % _MODULUS

    def hex(self) -> str:
        """The digest as 32 hexadecimal digits; of no record it is zero."""
        return self._sum.to_bytes(DIGEST_BYTES, "big").hex()
