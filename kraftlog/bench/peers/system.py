"""A system that is compared: three servers, as a client sees them."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from kraftbase.errors import ApiError, ErrorCode

VISIBLE_TIMEOUT_SECONDS: Final = 10.0

WhenVisible = Callable[[int], Awaitable[int]]
"""Takes the result of `submit`; returns when the operation became visible, in nanoseconds of CLOCK_MONOTONIC."""


class System(ABC):
    """A running system. Its operation sets one small value, new each time, durably on a majority."""

    @abstractmethod
    async def submit(self) -> int:
        """Carry out one operation at the leader, without a retry; return its place in the order of operations.

        Raises ApiError if it failed.
        """

    @abstractmethod
    def watching(self) -> AbstractAsyncContextManager[WhenVisible]:
        """Watch a node that does not lead, within the block. Operations must run one at a time."""


class Watch:
    """The last operation that is visible on a watched node, and since when."""

    def __init__(self) -> None:
        self._place = -1
        self._since_ns = 0
        self._changed = asyncio.Event()

    def reached(self, place: int) -> None:
        """Note that the operation at `place` is visible now."""
        self._since_ns = time.monotonic_ns()
        self._place = place
        self._changed.set()

    @asynccontextmanager
    async def fed_by(self, stream: Coroutine[Any, Any, None]) -> AsyncIterator[WhenVisible]:
        """Run `stream`, which calls `reached`, within the block."""
        feeding = asyncio.create_task(stream)
        feeding.add_done_callback(lambda _: self._changed.set())
        try:
            yield lambda place: self._wait_for(place, feeding)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def _wait_for(self, place: int, feeding: asyncio.Task[None]) -> int:
        """Wait until `place` is visible, and return since when; exact if no later operation is.

        Raises ApiError REQUEST_TIMED_OUT, or the error that ended the stream.
        """
        try:
            async with asyncio.timeout(VISIBLE_TIMEOUT_SECONDS):
                while self._place < place:
                    if feeding.done():
                        feeding.result()
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{place} is not visible on another node after {VISIBLE_TIMEOUT_SECONDS:g} s; it is at {self._place}",
            ) from None
        return self._since_ns
