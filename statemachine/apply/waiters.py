"""Waiters for offsets: many at once, which come and are cancelled at any time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from kraftbase.runtime import OnDone, Runtime, Timer
from kraftbase.types import Offset

GONE_MIN: Final = 100
"""At most this many places of cancelled waiters stay, instead of rebuilding the heap."""


class Waiter:
    """One waiter. `cancel` it when its result is no longer wanted."""

    __slots__ = ("_number", "_on_done", "_waiters", "timer")

    def __init__(self, waiters: OffsetWaiters, number: int, on_done: OnDone) -> None:
        self._waiters = waiters
        self._number = number
        self._on_done = on_done
        self.timer: Timer | None = None

    def cancel(self) -> None:
        """Stop waiting; nothing happens if the waiter has been called back."""
        self._waiters.forget(self._number)

    def call_back(self, error: BaseException | None) -> None:
        """Its wait has ended."""
        if self.timer is not None:
            self.timer.cancel()
        self._on_done(error)


class OffsetWaiters:
    """Calls back the waiters whose offset is reached. Adding, calling back and cancelling each cost a few heap steps.

    Used on one event loop.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[int, Waiter] = {}
        """The waiters, by number in order of arrival."""
        self._places: list[tuple[Offset, int]] = []
        """A heap of the offsets, with the waiters' numbers; some are cancelled."""
        self._numbers = count()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def wait(self, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> Waiter:
        """Call back when everything below `end_offset` is reached.

        `on_done` is called with TimeoutError when the offset is not reached in time, and with the argument of `fail`.
        """
        number = next(self._numbers)
        waiter = self._waiting[number] = Waiter(self, number, on_done)
        heappush(self._places, (end_offset, number))
        waiter.timer = self._runtime.call_later(max(0, timeout_ms), lambda: self._time_out(number))
        return waiter

    def forget(self, number: int) -> Waiter | None:
        """The waiter with that number no longer waits."""
        waiter = self._waiting.pop(number, None)
        if waiter is not None:
            if waiter.timer is not None:
                waiter.timer.cancel()
            self._tidy()
        return waiter

    def _time_out(self, number: int) -> None:
        waiter = self.forget(number)
        if waiter is not None:
            waiter.call_back(TimeoutError())

    def _tidy(self) -> None:
        """Remove the places of cancelled waiters when they are the majority, so that they do not accumulate."""
        if len(self._places) > 2 * len(self._waiting) + GONE_MIN:
            self._places = [place for place in self._places if place[1] in self._waiting]
            heapify(self._places)

    def reach(self, end_offset: Offset) -> None:
        """Call back the waiters for that offset or an earlier one."""
        while self._places and self._places[0][0] <= end_offset:
            _, number = heappop(self._places)
            waiter = self._waiting.pop(number, None)
            if waiter is not None:
                waiter.call_back(None)

    def fail(self, error: Exception) -> None:
        """Fail every waiter with `error`."""
        waiting, self._waiting = self._waiting, {}
        self._places.clear()
        for waiter in waiting.values():
            waiter.call_back(error)
