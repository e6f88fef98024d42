"""Detects that a client is gone while its connection is not read.

An event loop learns of a connection's end by reading it. While it is not read, because its requests wait or are being
handled, epoll still reports the end, whatever bytes lie unread before it.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress


class UnreadConnections:
    """The unread connections of one event loop. Close it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._on_end: dict[int, Callable[[], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._poll)

    def watch(self, file: int, on_end: Callable[[], None]) -> None:
        """Call `on_end` once if the peer of a socket sends nothing more, or is gone; soon if that is so already."""
        self._on_end[file] = on_end
        self._epoll.register(file, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def remove(self, file: int, on_end: Callable[[], None]) -> None:
        """The connection is read again, or closed. Its file number may belong to another connection by now."""
        if self._on_end.get(file) == on_end:
            del self._on_end[file]
            with suppress(OSError):  # epoll has removed a closed file already
                self._epoll.unregister(file)

    def close(self) -> None:
        """Stop watching."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _poll(self) -> None:
        for file, _ in self._epoll.poll(0):
            if (on_end := self._on_end.get(file)) is not None:
                on_end()
