"""Separate threads for reads that may take long."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

from kraftbase.errors import ApiError, ErrorCode
from statemachine.tables.database import open_reader

QUERIES_MAX: Final = 256
"""How many queries may wait for their turn."""

STEPS_BETWEEN_CLOCK_READS: Final = 10_000
"""Instructions of SQLite's machine: about a tenth of a millisecond."""

T = TypeVar("T")


class Lane:
    """A thread for calls that may take long, one after the other."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting = 0

    def shut_down(self) -> None:
        """Wait for the running call; waiting ones are cancelled."""
        self._thread.shutdown(cancel_futures=True)

    async def run(self, function: Callable[[], T]) -> T:
        """Run `function` in the thread. Raises ApiError(THROTTLING_QUOTA_EXCEEDED) if too many wait."""
        if self._waiting >= QUERIES_MAX:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{QUERIES_MAX} queries are waiting; try again later")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function)
        finally:
            self._waiting -= 1

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Wait for the running call; later calls wait for the end of the context."""
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


class QueryLane(Lane):
    """Reads on one database over a connection of its own, each on a consistent state."""

    def __init__(self, name: str, path: Path, read_seconds_max: float) -> None:
        """A read that takes longer than `read_seconds_max` is ended: it would hold the write-ahead log."""
        super().__init__(name)
        self._path = path
        self._read_seconds_max = read_seconds_max
        self._connection = open_reader(path)

    def reopen(self) -> None:
        """Continue with the database that is at the path now. No call may be running: see `held`."""
        self._connection = open_reader(self._path)

    def close_connection(self) -> None:
        """Close the connection to the database. No call may be running: see `held`."""
        self._connection.close()

    async def query(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` as `run` does, in a transaction. Raises REQUEST_TIMED_OUT, too, if it takes too long."""
        return await self.run(lambda: self._read(function))

    def _read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        deadline = time.monotonic() + self._read_seconds_max
        self._connection.set_progress_handler(lambda: time.monotonic() >= deadline, STEPS_BETWEEN_CLOCK_READS)
        self._connection.execute("BEGIN")
        try:
            return function(self._connection)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the read took longer than {self._read_seconds_max:g} s (metadata.read.max.ms); ask for less",
            ) from None
        finally:
            self._connection.set_progress_handler(None, 0)
            self._connection.execute("ROLLBACK")
