"""Virtual time: scheduled events in order. Events of the same time run in the order in which they were scheduled."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

MICROSECONDS_PER_MS: Final = 1_000
MICROSECONDS_PER_SECOND: Final = 1_000_000


class Timer:
    """An event that will happen unless it is cancelled."""

    __slots__ = ("callback", "is_cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do not run the event."""
        self.is_cancelled = True


class EventQueue:
    """Scheduled events in the order of their times, and the present time in microseconds."""

    def __init__(self) -> None:
        self.now_us = 0
        self._sequence = 0
        self._queue: list[tuple[int, int, Timer]] = []

    def after(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_us`. With 0 or less it runs now, after the events already scheduled for now."""
        timer = Timer(callback)
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_us + max(0, delay_us), self._sequence, timer))
        return timer

    def run_next(self, end_us: int) -> bool:
        """Advance time to the next event and run it; with none until `end_us`, advance to that and return False."""
        while self._queue:
            if self._queue[0][0] > end_us:
                break
            self.now_us, _, timer = heapq.heappop(self._queue)
            if not timer.is_cancelled:
                timer.callback()
                return True
        self.now_us = end_us
        return False
