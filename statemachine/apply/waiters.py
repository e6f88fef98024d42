"""Waiters for offsets: many at once, which come and give up at any time."""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from raft.core.types import Offset

GONE_MIN: Final = 100
"""At most this many places of waiters that gave up stay, instead of rebuilding the heap."""


class OffsetWaiters:
    """Wakes those whose offset is reached. To come, to be woken and to give up each cost a few steps of a heap.

    Used on one event loop.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """By the number in which they came."""
        self._places: list[tuple[Offset, int]] = []
        """A heap of the offsets, with the waiters' numbers; some have given up."""
        self._numbers = count()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def wait(self, end_offset: Offset, timeout_seconds: float) -> None:
        """Wait until everything below `end_offset` is reached. Raises TimeoutError, and what `fail` is given."""
        number, reached = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = reached
        heappush(self._places, (end_offset, number))
        try:
            async with asyncio.timeout(timeout_seconds):
                await reached
        finally:
            if self._waiting.pop(number, None) is not None:
                self._tidy()

    def _tidy(self) -> None:
        """Forget the places of those that gave up when they are the majority, so that they do not pile up."""
        if len(self._places) > 2 * len(self._waiting) + GONE_MIN:
            self._places = [place for place in self._places if place[1] in self._waiting]
            heapify(self._places)

    def reach(self, end_offset: Offset) -> None:
        """Wake those that wait for that offset, or an earlier one."""
        while self._places and self._places[0][0] <= end_offset:
            _, number = heappop(self._places)
            reached = self._waiting.pop(number, None)
            if reached is not None and not reached.done():
                reached.set_result(None)

    def fail(self, error: Exception) -> None:
        """Fail every waiter with `error`."""
        waiting, self._waiting = self._waiting, {}
        self._places.clear()
        for reached in waiting.values():
            if not reached.done():
                reached.set_exception(error)
