"""Virtual time: what is to happen, in order. Ties happen in the order in which they were agreed on."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

MICROSECONDS_PER_MS: Final = 1_000
MICROSECONDS_PER_SECOND: Final = 1_000_000


class Timer:
    """Something that will happen unless it is called off."""

    __slots__ = ("callback", "is_cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        """Call it off."""
        self.is_cancelled = True


class EventQueue:
    """Timers in the order of their times, and the present time in microseconds."""

    def __init__(self) -> None:
        self.now_us = 0
        self._sequence = 0
        self._queue: list[tuple[int, int, Timer]] = []

    def after(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` in `delay_us`."""
        timer = Timer(callback)
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_us + max(0, delay_us), self._sequence, timer))
        return timer

    def run_next(self, end_us: int) -> bool:
        """Let time pass to the next timer and keep it; False, and it is `end_us`, if there is none until then."""
        while self._queue:
            if self._queue[0][0] > end_us:
                break
            self.now_us, _, timer = heapq.heappop(self._queue)
            if not timer.is_cancelled:
                timer.callback()
                return True
        self.now_us = end_us
        return False
