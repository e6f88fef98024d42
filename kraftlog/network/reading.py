"""Whether a connection is read. What is not read stays in its client's own memory: TCP tells it to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kraftlog.network.counters import Counters
from kraftlog.network.unread import UnreadConnections


class Reading:
    """Of one connection, from `begin` to `end`."""

    def __init__(self, unread: UnreadConnections, counters: Counters, on_deserted: Callable[[], None]) -> None:
        """`on_deserted` is called when the client sends nothing more, or is gone, while it is not read."""
        self.is_on = True
        self._unread = unread
        self._counters = counters
        self._on_deserted = on_deserted
        self._transport: asyncio.Transport | None = None
        self._file = -1

    def begin(self, transport: asyncio.Transport) -> None:
        """The connection is there, and is read."""
        self._transport = transport
        self._file = transport.get_extra_info("socket").fileno()

    def turn(self, *, is_on: bool, is_deserted: bool) -> None:
        """Read, or do not; of one that `is_deserted` nobody need be told again."""
        if self._transport is None or is_on == self.is_on or self._transport.is_closing():
            return
        self.is_on = is_on
        if is_on:
            self._transport.resume_reading()
            self._is_read()
        else:
            self._transport.pause_reading()
            if not is_deserted:
                self._unread.watch(self._file, self._on_deserted)
            self._counters.connections_paused += 1

    def end(self) -> None:
        """The connection is closed: nothing of it is unread."""
        if not self.is_on:
            self.is_on = True
            self._is_read()

    def _is_read(self) -> None:
        self._unread.forget(self._file, self._on_deserted)
        self._counters.connections_paused -= 1
