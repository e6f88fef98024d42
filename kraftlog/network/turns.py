"""The order in which connections are served: they take turns, so that none keeps the event loop for long.

A connection works for at most `SLICE_SECONDS`, and all connections for `TURN_SECONDS` in one turn of the loop. The rest
waits for the next turn. In between the loop does everything else: it sends heartbeats, applies metadata, and reads from
sockets. The next turn begins with the connection that has waited longest after a slice of its own, then serves those
that have had no slice yet, then the others.

So a client with small requests waits for about one turn of the loop, whatever other clients send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any, Final, Protocol

SLICE_SECONDS: Final = 0.002
TURN_SECONDS: Final = 0.005

WAIT_SECONDS: Final = 0.005
"""How long a connection waits before it checks again for a resource that its work waits for. To check in each turn of
the loop would keep a processor busy."""


class SliceEnd(Enum):
    """Why a slice ended."""

    DONE = auto()
    """All of the work is done."""
    TIME = auto()
    """The time of the slice is over."""
    WAITS = auto()
    """The work waits for a resource that others hold."""


def go_through(waiting: deque[Iterator[Any]], may_go_on: Callable[[], bool]) -> SliceEnd:
    """Do the waiting work in order, until `may_go_on` returns False, or a step yields that it waits for a resource.

    The work in progress then stays first in `waiting`.
    """
    while waiting:
        steps = waiting.popleft()
        for waits in steps:
            if waits or not may_go_on():
                waiting.appendleft(steps)
                return SliceEnd.WAITS if waits else SliceEnd.TIME
    return SliceEnd.DONE


class Worker(Protocol):
    """A connection with work to do."""

    def take_turn(self) -> None:
        """Work for a slice. Raises only what must end the process."""
        ...


class Turns:
    """The turns of one event loop. `call_soon` calls in the loop's next turn; `now` is a clock in seconds."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], now: Callable[[], float]) -> None:
        self.ends_at = 0.0
        """The end of this turn's time: no connection begins after it. In the past if none has begun in this turn."""
        self._call_soon = call_soon
        self._now = now
        self._is_called = False
        """Whether `_come_round` will be called in the loop's next turn."""
        self._fresh: deque[Worker] = deque()
        self._others: deque[Worker] = deque()

    def may_begin(self, now: float) -> bool:
        """Whether work may begin although `ends_at` has passed. It may if this is already the loop's next turn."""
        if self._is_called:
            return False
        self.ends_at = now + TURN_SECONDS
        self._is_called = True
        self._call_soon(self._come_round)
        return True

    def wait(self, worker: Worker, *, is_fresh: bool) -> None:
        """Give a connection a turn soon, never at once. `is_fresh`: it has not just had a slice."""
        (self._fresh if is_fresh else self._others).append(worker)
        self._call()

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._call_soon(self._come_round)

    def _come_round(self) -> None:
        """Called in the loop's next turn."""
        self._is_called = False
        self.ends_at = self._now() + TURN_SECONDS
        is_first = True
        while self._fresh or self._others:
            queue = self._fresh if self._fresh and not (is_first and self._others) else self._others
            is_first = False
            queue.popleft().take_turn()
            if self._now() >= self.ends_at:
                break
        if self._fresh or self._others:
            self._call()
