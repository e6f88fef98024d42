"""Whether a connection is read. Bytes that are not read stay with the client: TCP's flow control makes it wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kraftlog.network.connection_states import READ, Pause
from kraftlog.network.counters import Counters
from kraftlog.network.unread import UnreadConnections


class Reading:
    """The reading side of one connection, from `begin` to `end`."""

    def __init__(self, unread: UnreadConnections, counters: Counters, on_deserted: Callable[[], None]) -> None:
        """`on_deserted` is called if the client sends nothing more, or is gone, while the connection is not read."""
        self.pause: Pause = READ
        """Why the connection is not read; NONE if it is."""
        self._unread = unread
        self._counters = counters
        self._on_deserted = on_deserted
        self._transport: asyncio.Transport | None = None
        self._file = -1

    def begin(self, transport: asyncio.Transport) -> None:
        """The connection is made, and is read."""
        self._transport = transport
        self._file = transport.get_extra_info("socket").fileno()

    def set_pause(self, pause: Pause, *, is_deserted: bool) -> None:
        """Read, or stop reading for the reason `pause`. If the connection `is_deserted`, its end is known already."""
        if pause is self.pause or self._transport is None or self._transport.is_closing():
            return
        was_read, self.pause = self.pause is READ, pause
        if pause is READ:
            self._transport.resume_reading()
            self._is_read()
        elif was_read:
            self._transport.pause_reading()
            if not is_deserted:
                self._unread.watch(self._file, self._on_deserted)
            self._counters.connections_paused += 1

    def end(self) -> None:
        """The connection is closed: it no longer counts as paused."""
        if self.pause is not READ:
            self.pause = READ
            self._is_read()

    def _is_read(self) -> None:
        self._unread.remove(self._file, self._on_deserted)
        self._counters.connections_paused -= 1
