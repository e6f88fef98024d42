"""Checks that the cluster served every window in which it owed service.

A window is 10 seconds that lie wholly within an interval in which service was owed (`kraftlog.chaos.truth`); windows
begin each second, so they overlap. In each at least 10 writes must have been acknowledged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

WINDOW_SECONDS: Final = 10.0
STEP_SECONDS: Final = 1.0
ACKNOWLEDGED_MIN: Final = 10


@dataclass(frozen=True, slots=True)
class Window:
    """One window and the number of writes acknowledged in it."""

    start: float
    acknowledged: int

    @property
    def is_served(self) -> bool:
        """Whether enough writes were acknowledged."""
        return self.acknowledged >= ACKNOWLEDGED_MIN


def windows(intervals: Sequence[tuple[float, float]], acknowledged_at: Sequence[float]) -> list[Window]:
    """All windows of the intervals; `acknowledged_at` has the ordered times of acknowledged writes, same clock."""
    found = []
    for begin, end in intervals:
        for step in range(
            int((end - begin - WINDOW_SECONDS) / STEP_SECONDS) + 1 if end - begin >= WINDOW_SECONDS else 0
        ):
            start = begin + step * STEP_SECONDS
            count = bisect_left(acknowledged_at, start + WINDOW_SECONDS) - bisect_left(acknowledged_at, start)
            found.append(Window(start, count))
    return found


def longest_gap(intervals: Sequence[tuple[float, float]], acknowledged_at: Sequence[float]) -> tuple[float, float]:
    """Return the longest time without an acknowledged write while service was owed: its start and its seconds."""
    longest = (0.0, 0.0)
    for begin, end in intervals:
        within = acknowledged_at[bisect_left(acknowledged_at, begin) : bisect_left(acknowledged_at, end)]
        for earlier, later in pairwise([begin, *within, end]):
            if later - earlier > longest[1]:
                longest = (earlier, later - earlier)
    return longest
