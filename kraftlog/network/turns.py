"""Whose requests are handled when: connections take turns, so that none of them keeps the event loop for long.

A connection works for `SLICE_SECONDS` at most, and all of them for `TURN_SECONDS` in one turn of the loop. What is left
then waits for the next turn of the loop. In between the loop does everything else: it sends heartbeats, takes metadata,
and reads from sockets. In the next turn the connection that has waited longest after a slice of its own goes on first,
then those that have had none yet, then the others.

So a client that asks for little waits for a turn of the loop, whatever others ask for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any, Final, Protocol

SLICE_SECONDS: Final = 0.002
TURN_SECONDS: Final = 0.005

WAIT_SECONDS: Final = 0.005
"""After that a connection looks again whether it has what its work waits for: not in each turn of the loop, which would
keep a processor busy."""


class SliceEnd(Enum):
    """Why a slice of work has ended."""

    DONE = auto()
    """All of it is done."""
    TIME = auto()
    """Its time is over."""
    WAITS = auto()
    """It waits for what others hold."""


def go_through(waiting: deque[Iterator[Any]], may_go_on: Callable[[], bool]) -> SliceEnd:
    """Do what waits, in its order, until `may_go_on` says no, or a step that it waits for others.

    What was begun waits first then.
    """
    while waiting:
        steps = waiting.popleft()
        for waits in steps:
            if waits or not may_go_on():
                waiting.appendleft(steps)
                return SliceEnd.WAITS if waits else SliceEnd.TIME
    return SliceEnd.DONE


class Worker(Protocol):
    """A connection that has work to do."""

    def take_turn(self) -> None:
        """Work for a slice. Never raises, but what must end the process."""
        ...


class Turns:
    """Those of one event loop. `call_soon` calls back in the loop's next turn, `now` is a clock in seconds."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], now: Callable[[], float]) -> None:
        self.ends_at = 0.0
        """From when on no connection begins in this turn of the loop; in the past until one begins."""
        self._call_soon = call_soon
        self._now = now
        self._is_called = False
        """Whether `_come_round` is to be called in the loop's next turn."""
        self._fresh: deque[Worker] = deque()
        self._others: deque[Worker] = deque()

    def may_begin(self, now: float) -> bool:
        """Whether work may begin although `ends_at` has passed: so it is if this is the loop's next turn."""
        if self._is_called:
            return False
        self.ends_at = now + TURN_SECONDS
        self._is_called = True
        self._call_soon(self._come_round)
        return True

    def wait(self, worker: Worker, *, is_fresh: bool) -> None:
        """Have a connection take a turn soon, never at once. One that has had a slice meanwhile is not fresh."""
        (self._fresh if is_fresh else self._others).append(worker)
        self._call()

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._call_soon(self._come_round)

    def _come_round(self) -> None:
        """The loop's next turn has come."""
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
