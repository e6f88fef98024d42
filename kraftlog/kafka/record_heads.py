"""What a broker must know about each record in a batch: its offset, its timestamp and whether it has a key."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final

from kraftlog.kafka import record_reader
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.records import RECORD_BYTES_MIN

SLOW_WORK: Final = 10
HEADERS_A_SLOW_RECORD: Final = 10
LOOKED_BYTES_A_RECORD: Final = 10
"""The work of reading records, in units of one record that the loop reads. A record that is read one number at a time
is `SLOW_WORK`, and so is each group of `HEADERS_A_SLOW_RECORD` headers in it. In records that the loop reads,
`LOOKED_BYTES_A_RECORD` bytes outside of keys and values are one unit."""


def _column() -> array[int]:
    return array("q")


@dataclass(slots=True)
class RecordHeads:
    """The heads of consecutive records, in columns."""

    first_index: int
    """The index in the batch of the first of these records."""
    timestamp_deltas: array[int] = field(default_factory=_column)
    offset_deltas: array[int] = field(default_factory=_column)
    without_key: bytearray = field(default_factory=bytearray)
    """1 for each record that has no key, 0 for others."""
    slow_count: int = 0
    """How many were read one number at a time; `HEADERS_A_SLOW_RECORD` of their headers count as one more."""
    looked_bytes: int = 0
    """The bytes of the other records, outside of keys and values."""

    @property
    def end_index(self) -> int:
        """The index in the batch of the record after them."""
        return self.first_index + len(self.offset_deltas)

    @property
    def work(self) -> int:
        """The work of reading them, in units of one record that the loop reads."""
        return max(len(self.offset_deltas), self.looked_bytes // LOOKED_BYTES_A_RECORD) + SLOW_WORK * self.slow_count

    def add(self, offset_delta: int, timestamp_delta: int, *, has_key: bool) -> None:
        """Add the next record."""
        self.timestamp_deltas.append(timestamp_delta)
        self.offset_deltas.append(offset_delta)
        self.without_key.append(not has_key)

    def read(self, data: Buffer, at: int, limit: int) -> int:
        """Add at most `limit` records, from a position on; return the position after the last one that was added.

        If fewer are added, the record at that position is cut off or not valid.
        """
        row = len(self.offset_deltas)
        limit = min(limit, (len(data) - at) // RECORD_BYTES_MIN)
        if limit <= 0:
            return at
        zeros = bytes(limit * self.offset_deltas.itemsize)
        self.timestamp_deltas.frombytes(zeros)
        self.offset_deltas.frombytes(zeros)
        self.without_key.extend(bytes(limit))
        stop, end_row, skipped = record_reader.loop.read_heads(
            data, at, row, limit, self.timestamp_deltas, self.offset_deltas, self.without_key
        )
        if end_row < row + limit:
            del self.timestamp_deltas[end_row:], self.offset_deltas[end_row:], self.without_key[end_row:]
        self.looked_bytes += stop - at - skipped
        return stop

    def summary(self) -> tuple[int, int, int]:
        """Return the smallest and the largest timestamp delta, and the first row whose offset delta is not the record's
        index, or -1. There must be at least one record.
        """
        return record_reader.loop.summarize(
            self.timestamp_deltas, self.offset_deltas, 0, len(self.offset_deltas), self.first_index
        )
