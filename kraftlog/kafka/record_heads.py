"""What a broker must know of the records in a batch: of each the offset, the timestamp and whether it has a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SLOW_WORK: Final = 10
HEADERS_A_SLOW_RECORD: Final = 10
HEADER_BYTES_A_RECORD: Final = 8
"""A record that is read one number at a time counts as so many others, and so do so many of its headers; of other
records so many bytes of headers count as one."""


@dataclass(slots=True)
class RecordHeads:
    """What is known of some records that follow each other."""

    first_index: int
    """How many records of the batch are before them."""
    offset_deltas: list[int] = field(default_factory=list)
    timestamp_deltas: list[int] = field(default_factory=list)
    without_key: list[int] = field(default_factory=list)
    """The indexes, in the batch, of those that have no key."""
    slow_count: int = 0
    """How many were read one number at a time; `HEADERS_A_SLOW_RECORD` headers count as one."""
    header_bytes: int = 0
    """The bytes of the headers of the other records."""

    @property
    def end_index(self) -> int:
        """How many records of the batch are before them or among them."""
        return self.first_index + len(self.offset_deltas)

    @property
    def work(self) -> int:
        """How much work it was to read them; one for a record."""
        return len(self.offset_deltas) + SLOW_WORK * self.slow_count + self.header_bytes // HEADER_BYTES_A_RECORD

    def add(self, offset_delta: int, timestamp_delta: int, *, has_key: bool) -> None:
        """Add the next record."""
        if not has_key:
            self.without_key.append(self.end_index)
        self.offset_deltas.append(offset_delta)
        self.timestamp_deltas.append(timestamp_delta)
