"""When small answers are written: the first one at once, the next ones together, a moment later.

Consider a client process with 500 connections, 20 of which send requests at the same time. It sleeps on another
processor, and to wake it for each of 20 answers costs the broker an eighth of the work for all of them. So the first
answer wakes it, and it finds the others when it has read that one. A single request is answered without this delay, and
so is every request that had to wait for a disk or another broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

SMALL_BYTES: Final = 4096
"""Larger answers are written at once: their unsent bytes must be counted before the next request may be handled."""

WAITING_MAX: Final = 16
"""When this many connections wait, all are written."""

WAIT_SECONDS_MAX: Final = 0.001
"""When one has waited this long, all are written after the current request."""


class Writer(Protocol):
    """A connection with answers to write."""

    def write(self) -> None:
        """Write the answers. Never raises: other connections are written after this one."""
        ...


class SmallAnswers:
    """The small answers of one event loop. `call_soon` calls in the loop's next turn; `now` is a clock in seconds."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], now: Callable[[], float]) -> None:
        self._call_soon = call_soon
        self._now = now
        self._is_one_written = False
        """Whether one was written in this turn of the loop."""
        self._waiting: list[Writer] = []
        self._since = 0.0

    def write(self, writer: Writer, size_bytes: int) -> None:
        """Write the `size_bytes` of answers of a connection whose requests were just handled, at once or soon."""
        if not 0 < size_bytes <= SMALL_BYTES:
            writer.write()
        elif self._is_one_written:
            if not self._waiting:
                self._since = self._now()
            self._waiting.append(writer)
        else:
            self._is_one_written = True
            self._call_soon(self._come_round)
            writer.write()
        if self._waiting and (len(self._waiting) >= WAITING_MAX or self._now() - self._since >= WAIT_SECONDS_MAX):
            self.write_waiting()

    def write_waiting(self) -> None:
        """Write all waiting answers, before work that takes long."""
        waiting, self._waiting = self._waiting, []
        for writer in waiting:
            writer.write()

    def _come_round(self) -> None:
        self._is_one_written = False
        self.write_waiting()
