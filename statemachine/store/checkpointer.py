"""When the write-ahead log of a node's metadata database starts over, between the transactions that fill it.

It runs in the thread that applies large runs, so that such a run and a checkpoint never meet. A run that is applied on
the event loop waits for the moment in which the writer must be still. The loop itself waits for neither.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import structlog

from kraftbase.errors import FlushFailed
from statemachine.store.store import MetadataStore
from statemachine.store.write_ahead_log import START_OVER_BYTES_MIN, WARN_BYTES

RETRY_SECONDS: Final = 1.0
"""How long to wait after an attempt that did not succeed."""

WAIT_FOR_READERS_SECONDS: Final = 0.05
"""How long the writer is stopped for the sake of readers: what a page of a list takes them."""

LONG_WAIT_SECONDS: Final = 1.0
"""The same when it is large. New readers do not hold it up, so it succeeds unless one is older than this."""

LONG_WAIT_PAUSE_SECONDS: Final = 10.0
"""A long wait in vain is followed by none for this long: an old reader takes a tenth of the writer's time at most."""

WARNING_PAUSE_SECONDS: Final = 60.0

LOOK_SECONDS: Final = 1.0
"""How often to look whether it is due, even if nothing is written: the log, or another program, may take the room."""

T = TypeVar("T")
logger = structlog.get_logger(__name__)


class Checkpointer:
    """Makes the write-ahead log of a store start over. Everything is called on the event loop."""

    def __init__(self, store: MetadataStore, executor: ThreadPoolExecutor) -> None:
        """`executor` has one thread: the one that writes large runs to the store."""
        self._store = store
        self._executor = executor
        self._task: asyncio.Task[None] | None = None
        self._stillness: asyncio.Future[None] | None = None
        self._not_before = 0.0
        """When the next attempt may begin."""
        self._look: asyncio.TimerHandle | None = None
        self._is_held = False
        """Whether a reader has defeated the last attempt since it became large."""
        self._no_long_wait_before = 0.0
        self._no_warning_before = 0.0
        self._is_paused = False
        self._fault: FlushFailed | None = None

    async def before_writing(self) -> None:
        """Wait until a transaction may be written at once.

        Raises WriteAheadLogHeld, a StoreUnavailable, if the write-ahead log has become as large as it may.
        """
        if self._store.write_ahead_log.is_full:
            await self._in_thread(lambda: self._store.write_ahead_log.check_bound())
        while self._stillness is not None:
            await asyncio.shield(self._stillness)

    async def after_writing(self) -> None:
        """Start over when it is time; returns later when it has become large. Raises FlushFailed."""
        if self._fault is not None:
            raise self._fault
        if self._is_paused:
            return
        self._look_again()
        if self._store.write_ahead_log.is_large and not self._is_held:
            await asyncio.shield(self._begin())
        else:
            self._begin_if_due()

    async def make_room(self) -> bool:
        """Start over now, for want of room; returns whether there is more room than before. Raises FlushFailed."""
        size_bytes = self._store.write_ahead_log.size_bytes
        if self._is_paused or size_bytes == 0:
            return False
        await asyncio.shield(self._begin())
        if self._fault is not None:
            raise self._fault
        return self._store.write_ahead_log.size_bytes < size_bytes

    async def pause(self) -> None:
        """Wait until nothing is in progress; nothing more begins before `resume`."""
        self._is_paused = True
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._task is not None:
            await asyncio.shield(self._task)

    def resume(self) -> None:
        """Continue."""
        self._is_paused = False

    # --- one attempt --------------------------------------------------------------------------------------------------

    def _begin_if_due(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._is_paused and now >= self._not_before and self._store.write_ahead_log.is_due:
            self._begin()

    def _begin(self) -> asyncio.Task[None]:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return self._task

    async def _run(self) -> None:
        try:
            await self._in_thread(lambda: self._store.write_ahead_log.copy())
            await self._start_over()
            if self._is_held:
                await self._warn()
            if self._store.write_ahead_log.is_due:
                self._leave_it()
        except sqlite3.Error as error:
            logger.warning("no checkpoint of the metadata database; the next one is tried later", reason=str(error))
            self._leave_it()
        except FlushFailed as error:
            self._fault = error
        finally:
            self._task = None

    async def _start_over(self) -> None:
        now = asyncio.get_running_loop().time
        is_large = self._store.write_ahead_log.is_large
        is_long = is_large and now() >= self._no_long_wait_before
        wait_seconds = LONG_WAIT_SECONDS if is_long else WAIT_FOR_READERS_SECONDS
        self._stillness = asyncio.get_running_loop().create_future()
        try:
            is_done = await self._in_thread(lambda: self._store.write_ahead_log.start_over(wait_seconds))
        finally:
            self._stillness.set_result(None)
            self._stillness = None
        self._is_held = is_large and not is_done
        if is_long and not is_done:
            self._no_long_wait_before = now() + LONG_WAIT_PAUSE_SECONDS

    async def _warn(self) -> None:
        size_bytes, now = self._store.write_ahead_log.size_bytes, asyncio.get_running_loop().time()
        if size_bytes < WARN_BYTES or now < self._no_warning_before:
            return
        self._no_warning_before = now + WARNING_PAUSE_SECONDS
        logger.warning(
            "a long read transaction keeps the write-ahead log of the metadata database",
            size_bytes=size_bytes,
            readers=await self._in_thread(lambda: self._store.write_ahead_log.holders()),
        )

    def _leave_it(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + RETRY_SECONDS

    def _look_again(self) -> None:
        if self._look is None and self._store.write_ahead_log.size_bytes >= START_OVER_BYTES_MIN:
            self._look = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        self._begin_if_due()
        self._look_again()

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)
