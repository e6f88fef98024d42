"""Record batches as they are in files and responses, reduced to what checkers compare."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END: Final = 12
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_MARKER_TYPE: Final = slice(68, 70)
"""The bytes of a marker's record with its type: the second half of its key, behind five bytes of lengths and deltas."""
SET_BY_BROKER_BYTES: Final = 16
"""Base offset, length and leader epoch, which the CRC does not cover."""


class Batch(NamedTuple):
    """A complete batch at a position."""

    position: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    data: bytes

    @property
    def content(self) -> bytes:
        """The bytes that the producer sent, without those that a broker sets."""
        return content_of(self.data)

    @property
    def is_of_transaction(self) -> bool:
        """Whether it has records of a transaction."""
        return bool(self.attributes & _TRANSACTIONAL) and not self.is_marker

    @property
    def is_marker(self) -> bool:
        """Whether it ends a transaction."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_abort(self) -> bool:
        """Whether it aborts a transaction."""
        return self.is_marker and self.data[_MARKER_TYPE] == bytes(2)

    @property
    def sequence_key(self) -> tuple[int, int, int] | None:
        """A key that only one batch may have: producer, epoch and sequence; None without idempotence."""
        if self.producer_id < 0 or self.base_sequence < 0:
            return None
        return self.producer_id, self.producer_epoch, self.base_sequence

    @property
    def records_key(self) -> tuple[int, bytes] | None:
        """A key that only one batch may have in all epochs: producer and records; None without idempotence.

        No producer here sends different batches with the same bytes.
        """
        if self.producer_id < 0 or self.base_sequence < 0:
            return None
        return self.producer_id, self.data[_HEADER.size :]


def content_of(data: bytes | bytearray | memoryview) -> bytes:
    """Return the bytes that the producer sent, without those that a broker sets."""
    return bytes(data[SET_BY_BROKER_BYTES:])


def whole_batches(data: bytes | bytearray | memoryview) -> list[Batch]:
    """Return the batches from the beginning up to the first incomplete one."""
    found: list[Batch] = []
    position = 0
    while position + _HEADER.size <= len(data):
        (base_offset, length, leader_epoch, magic, _, attributes, last_delta, _, max_timestamp_ms,
         producer_id, producer_epoch, base_sequence, _) = _HEADER.unpack_from(data, position)  # fmt: skip
        end = position + _LENGTH_END + length
        if magic != 2 or length < _HEADER.size - _LENGTH_END or end > len(data):
            break
        found.append(
            Batch(
                position, base_offset, base_offset + last_delta, leader_epoch, attributes, max_timestamp_ms,
                producer_id, producer_epoch, base_sequence, bytes(data[position:end]),
            )
        )  # fmt: skip
        position = end
    return found
