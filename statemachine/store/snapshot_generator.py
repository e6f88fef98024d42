"""When a node takes snapshots of its metadata: after enough bytes, after enough time, or on request (SN-30)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final

import structlog

from kraftbase.errors import StorageError
from raft.core.types import LeaderAndEpoch, Offset
from snapshot.names import PART_SUFFIX, SUFFIX
from statemachine.store.background import last_line, run_to_end, start_module
from statemachine.store.private_copy import DIRECTORY_VARIABLE
from statemachine.store.scrub import ROTTEN_EXIT_CODE
from statemachine.store.snapshot_worker import TakenSnapshot, decode_taken
from statemachine.store.store import MetadataStore

RETRY_SECONDS: Final = 60.0
"""How long to wait after a snapshot could not be taken."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotConfig:
    """When snapshots are taken."""

    max_bytes_between: int = 20 * 1024 * 1024
    """Take one when this many bytes of records were applied since the last."""
    max_interval_ms: int = 60 * 60 * 1000
    """Take one when the last is this old and anything was applied since; 0: never for that reason."""


class SnapshotGenerator:
    """Follows the state machine as its subscriber. One snapshot is taken at a time, in a process of its own."""

    def __init__(self, store: MetadataStore, directory: str, config: SnapshotConfig) -> None:
        """`directory` is the node's snapshot store's. Nothing happens before the first call."""
        self._store = store
        self._directory = directory
        self._config = config
        self._bytes_at_last = store.applied_bytes
        self._last_end_offset = Offset(0)
        self._taking: asyncio.Task[TakenSnapshot] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_failed = False
        self._is_shut_down = False
        self._on_taken: Callable[[], None] = lambda: None
        self._on_rotten: Callable[[str], None] = lambda reason: None

    def tell(self, on_taken: Callable[[], None]) -> None:
        """Call `on_taken` after each new snapshot from now on."""
        self._on_taken = on_taken

    def set_rot_callback(self, on_rotten: Callable[[str], None]) -> None:
        """Call `on_rotten` if the database turns out not to be what was applied: no snapshot is taken of it."""
        self._on_rotten = on_rotten

    def replace_damaged(self) -> None:
        """A snapshot was damaged and deleted: take another one in the background."""
        if not self._is_shut_down and not self._has_failed and self._store.applied_end_offset > 0:
            self._start_in_background()

    async def take(self) -> TakenSnapshot:
        """A snapshot of at least what is applied now. Raises StorageError if it cannot be taken."""
        wanted = self._store.applied_end_offset
        while True:
            taken = await asyncio.shield(self._start())
            if taken.snapshot_id.offset >= wanted:
                return taken

    # --- calls of the state machine -----------------------------------------------------------------------------------

    def applied(self, end_offset: Offset) -> None:
        """Take a snapshot in the background if enough was applied since the last one, or since one was loaded."""
        self._bytes_at_last = min(self._bytes_at_last, self._store.applied_bytes)  # SN-32
        if self._is_shut_down or self._has_failed or self._taking is not None:
            return
        if self._store.applied_bytes - self._bytes_at_last >= self._config.max_bytes_between:
            self._start_in_background()
        elif self._timer is None and self._config.max_interval_ms:
            self._wait(self._config.max_interval_ms / 1000)

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Every node takes its own snapshots, whichever node leads."""

    def shut_down(self) -> None:
        """Take no more."""
        self._is_shut_down = True
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        """Abandon the snapshot that is being taken, if one is."""
        self.shut_down()
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)

    # --- taking one ---------------------------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._has_failed = False
        if self._taking is None and self._store.applied_end_offset > self._last_end_offset:
            self._start_in_background()

    def _start_in_background(self) -> None:
        self._start().add_done_callback(_log_failure)

    def _start(self) -> asyncio.Task[TakenSnapshot]:
        if self._taking is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._taking = asyncio.get_running_loop().create_task(self._take())
        return self._taking

    async def _take(self) -> TakenSnapshot:
        bytes_before = self._store.applied_bytes
        try:
            taken = await self._run_process()
        except BaseException:
            if not self._is_shut_down:
                self._has_failed = True
                self._wait(RETRY_SECONDS)
            raise
        else:
            self._bytes_at_last = bytes_before
            self._has_failed = False
            self._last_end_offset = taken.snapshot_id.offset
            self._on_taken()
            if taken.is_new:
                logger.info("snapshot taken", path=taken.path, size_bytes=taken.size_bytes)
            return taken
        finally:
            self._taking = None

    async def _run_process(self) -> TakenSnapshot:
        if self._is_shut_down:
            raise StorageError("this node shuts down; ask another")
        token = token_hex(8)
        process = start_module(
            "statemachine.store.snapshot_worker",
            (str(self._store.path), self._directory, token),
            {DIRECTORY_VARIABLE: str(self._store.path.absolute().parent)},
        )
        try:
            code, said, complaints = await run_to_end(process)
        except BaseException:
            self._remove_part(token)
            raise
        if code != 0:
            self._remove_part(token)
            reason = last_line(complaints) or f"its process ended with {code}"
            if code == ROTTEN_EXIT_CODE:
                self._on_rotten(reason)
            raise StorageError(f"the snapshot could not be taken: {reason}")
        return decode_taken(said)

    def _remove_part(self, token: str) -> None:
        """A process that was killed leaves its part of a file, again with each attempt."""
        for part in Path(self._directory).glob(f"*-{token}{SUFFIX}{PART_SUFFIX}"):
            with suppress(OSError):  # the next start removes it
                part.unlink()


def _log_failure(task: asyncio.Task[TakenSnapshot]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("no snapshot was taken", reason=str(error))
