"""Sees that clients are gone whose connections are not read just now.

An event loop learns of the end of a connection by reading it. While a connection is not read, because its requests wait
or are in hand, the kernel knows of the end all the same: epoll reports it, whatever was sent before it and is unread.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress


class UnreadConnections:
    """Those of one event loop. Close it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._told: dict[int, Callable[[], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._look)

    def watch(self, file: int, on_end: Callable[[], None]) -> None:
        """Call back once if the peer of a socket sends nothing more, or is gone; at once if that is so already."""
        self._told[file] = on_end
        self._epoll.register(file, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def forget(self, file: int, on_end: Callable[[], None]) -> None:
        """The connection is read again, or closed. Its file may be another connection's by now."""
        if self._told.get(file) == on_end:
            del self._told[file]
            with suppress(OSError):  # a file that was closed has left by itself
                self._epoll.unregister(file)

    def close(self) -> None:
        """Watch nothing more."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _look(self) -> None:
        for file, _ in self._epoll.poll(0):
            if (told := self._told.get(file)) is not None:
                told()
