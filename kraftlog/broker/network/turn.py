"""When answers are written in one turn of the event loop: the first one at once, small ones after it together.

Consider a client process with 500 connections, 20 of which ask at the same time. It sleeps, on another processor. To
wake it for each of 20 answers takes the broker an eighth of the work for all of them; so it is woken by the first one,
and finds the others when it has read that. Who asks alone does not wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

SMALL_ANSWER_BYTES: Final = 4096
"""Larger answers are written at once: what is written is counted, and may be too much to go on."""

WAITING_MAX: Final = 16
"""When so many wait they are written, before the turn has ended."""


class Writer(Protocol):
    """A connection that has answers to write."""

    def write(self) -> None:
        """Write them."""
        ...


class Turn:
    """The turn of the loop that is under way. `call_soon` calls in the next one."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._is_under_way = False
        self._waiting: list[Writer] = []

    def write(self, writer: Writer, size_bytes: int) -> None:
        """Have `writer` write its answers of so many bytes now, or with others at the end of the turn at the latest."""
        if not 0 < size_bytes <= SMALL_ANSWER_BYTES:
            writer.write()
        elif self._is_under_way:
            self._waiting.append(writer)
            if len(self._waiting) >= WAITING_MAX:
                self._write_waiting()
        else:
            self._is_under_way = True
            self._call_soon(self._end)
            writer.write()

    def _end(self) -> None:
        self._is_under_way = False
        self._write_waiting()

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for writer in waiting:
            writer.write()
