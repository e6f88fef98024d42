"""A thread and a connection of its own for reads that may take their time, one after the other."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

from raft.core.errors import ErrorCode, ProtocolError
from statemachine.schema import open_reader

QUERIES_MAX: Final = 256
"""How many queries may wait for their turn."""

T = TypeVar("T")


class QueryLane:
    """Reads on one database, each on a consistent state."""

    def __init__(self, name: str, path: Path) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._path = path
        self._connection = open_reader(path)
        self._waiting = 0

    def reopen(self) -> None:
        """Go on with the database that is at the path now. Nothing may run: see `held`."""
        self._connection = open_reader(self._path)

    def close_connection(self) -> None:
        """Let go of the database. Nothing may run: see `held`."""
        self._connection.close()

    def shut_down(self) -> None:
        """Wait for a running query."""
        self._thread.shutdown()

    async def query(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` in the thread. Raises ProtocolError(THROTTLING_QUOTA_EXCEEDED) if too many wait."""
        if self._waiting >= QUERIES_MAX:
            raise ProtocolError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{QUERIES_MAX} queries are waiting; try again later"
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._query, function)
        finally:
            self._waiting -= 1

    def _query(self, function: Callable[[sqlite3.Connection], T]) -> T:
        self._connection.execute("BEGIN")
        try:
            return function(self._connection)
        finally:
            self._connection.execute("ROLLBACK")

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Queries that run are waited for; those that come wait for the end of the context."""
        loop = asyncio.get_running_loop()
        is_idle, may_go_on = asyncio.Event(), threading.Event()

        def hold() -> None:
            loop.call_soon_threadsafe(is_idle.set)
            may_go_on.wait()

        holding = loop.run_in_executor(self._thread, hold)
        try:
            await is_idle.wait()
            yield
        finally:
            may_go_on.set()
            await holding
