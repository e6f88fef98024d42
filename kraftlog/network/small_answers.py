"""When small answers are written: the first one at once, those that follow it soon after, together.

Consider a client process with 500 connections, 20 of which ask at the same time. It sleeps, on another processor. To
wake it for each of 20 answers takes the broker an eighth of the work for all of them; so it is woken by the first one,
and finds the others when it has read that. Who asks alone does not wait, and no answer does that a disk or another
broker has kept waiting already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

SMALL_BYTES: Final = 4096
"""Larger answers are written at once: what is written is counted, and may be too much to go on."""

WAITING_MAX: Final = 16
"""When so many wait, all are written."""

WAIT_SECONDS_MAX: Final = 0.001
"""When one has waited for so long, all are written as soon as the request in hand is handled."""


class Writer(Protocol):
    """A connection that has answers to write."""

    def write(self) -> None:
        """Write them. Never raises: others are written after it."""
        ...


class SmallAnswers:
    """Those of one event loop that wait. `call_soon` calls when the loop comes round, `now` is a clock in seconds."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], now: Callable[[], float]) -> None:
        self._call_soon = call_soon
        self._now = now
        self._is_one_written = False
        """Since the loop came round."""
        self._waiting: list[Writer] = []
        self._since = 0.0

    def write(self, writer: Writer, size_bytes: int) -> None:
        """Have a connection whose requests were just handled write its answers of so many bytes, at once or soon."""
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
        """Write what waits: something is to be done that takes time."""
        waiting, self._waiting = self._waiting, []
        for writer in waiting:
            writer.write()

    def _come_round(self) -> None:
        self._is_one_written = False
        self.write_waiting()
