"""The leader's appends on their way to the log: prepared, scheduled, drained (LI-20 to LI-26).

An append gets its offsets when it is prepared. While a flush is in progress, appends gather here; then they leave as
one batch, with their bodies joined byte by byte.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kraftbase.types import Offset


@dataclass(frozen=True, slots=True)
class Append:
    """One client's append."""

    append_id: int
    body: bytes
    record_count: int
    end_offset: Offset


class _Drained(NamedTuple):
    """An append that was written: its body is in the log."""

    append_id: int
    size: int
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class DrainedBatch:
    """Appends that are written as one batch."""

    body: bytes
    record_count: int


class Accumulator:
    """Appends in the order of their offsets: prepared but not drained, then drained but not committed."""

    # Consider a leader whose log ends at 100:
    #
    #     prepare A, 3 records   A has offsets 100 to 102, and nothing is written
    #     prepare B, 2 records   B has 103 and 104
    #     schedule               A and B may be written
    #     prepare C, 1 record    C has 105, and waits for the next schedule
    #     drain                  one batch of 5 records at 100; C stays, also while that batch is flushed
    #     high watermark 105     A and B are complete, in that order
    #
    # Offsets are assigned before anything is written, so that a controller can put them into its responses. If appends
    # were drained in another order, or one were left out, those offsets would be wrong. So there is one queue, and only
    # its front is drained.
    __slots__ = ("_prepared", "_scheduled_count", "_uncommitted", "next_offset", "pending_bytes")

    def __init__(self, next_offset: Offset) -> None:
        self.next_offset = next_offset
        """The base offset of the next append."""
        self.pending_bytes = 0
        """The size of all bodies that are prepared and not committed."""
        self._prepared: deque[Append] = deque()
        self._scheduled_count = 0
        self._uncommitted: deque[_Drained] = deque()

    @property
    def has_scheduled(self) -> bool:
        """Whether an append is scheduled and not drained."""
        return self._scheduled_count > 0

    def prepare(self, append_id: int, body: bytes, record_count: int) -> None:
        """Add an append and assign it the next offsets (LI-20)."""
        self.next_offset = Offset(self.next_offset + record_count)
        self.pending_bytes += len(body)
        self._prepared.append(Append(append_id, body, record_count, self.next_offset))

    def schedule(self) -> None:
        """Allow everything that is prepared by now to be drained (LI-25)."""
        self._scheduled_count = len(self._prepared)

    def drain(self, batch_bytes_max: int) -> Iterator[DrainedBatch]:
        """Yield the scheduled appends in batches of at most `batch_bytes_max`; no append is split (LI-22)."""
        while self._scheduled_count:
            bodies: list[bytes] = []
            size, record_count = 0, 0
            while self._scheduled_count and (not bodies or size + len(self._prepared[0].body) <= batch_bytes_max):
                append = self._prepared.popleft()
                self._scheduled_count -= 1
                self._uncommitted.append(_Drained(append.append_id, len(append.body), append.end_offset))
                bodies.append(append.body)
                size += len(append.body)
                record_count += append.record_count
            yield DrainedBatch(bodies[0] if len(bodies) == 1 else b"".join(bodies), record_count)

    def take_committed(self, high_watermark: Offset) -> list[int]:
        """Remove and return the ids of appends that the high watermark has passed."""
        committed = []
        while self._uncommitted and self._uncommitted[0].end_offset <= high_watermark:
            append = self._uncommitted.popleft()
            self.pending_bytes -= append.size
            committed.append(append.append_id)
        return committed

    def take_all(self) -> list[int]:
        """Remove and return the ids of all appends, committed or not: leadership is lost (LI-26)."""
        append_ids = [append.append_id for append in self._uncommitted]
        append_ids += [append.append_id for append in self._prepared]
        self._uncommitted.clear()
        self._prepared.clear()
        self._scheduled_count = 0
        self.pending_bytes = 0
        return append_ids
