"""When a node takes snapshots of its metadata: after enough bytes, after enough time, or on request (SN-30)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias

import structlog

from kraftbase.errors import StorageError
from kraftbase.runtime import Runtime, Timer
from kraftbase.said_once import SaidOnce
from kraftbase.types import Offset
from raft.core.types import LeaderAndEpoch
from statemachine.store.scrub import CorruptDatabase
from statemachine.store.snapshot_worker import TakenSnapshot

RETRY_MS: Final = 60_000
"""How long to wait after a snapshot could not be taken."""

OnTaken: TypeAlias = Callable[[TakenSnapshot | None, BaseException | None], None]
"""Called once, with the snapshot or with the error."""

TakeSnapshot: TypeAlias = Callable[[OnTaken], Timer]
"""Begins to take a snapshot of the applied state; never calls back within the call. Cancel the returned timer to
abandon the snapshot; the callback is called then, too. `statemachine.store.snapshot_process.SnapshotProcess` is one.
"""

logger = structlog.get_logger(__name__)


class AppliedStore(Protocol):
    """The applied end and size. `statemachine.store.store.MetadataStore` is one."""

    @property
    def applied_end_offset(self) -> Offset:
        """The offset after the last applied record."""
        ...

    @property
    def applied_bytes(self) -> int:
        """The size of the bodies of all batches applied since the store was opened."""
        ...


@dataclass(frozen=True, slots=True)
class SnapshotConfig:
    """When snapshots are taken."""

    max_bytes_between: int = 20 * 1024 * 1024
    """Take one when this many bytes of records were applied since the last."""
    max_interval_ms: int = 60 * 60 * 1000
    """Take one when the last is this old and a record was applied since; 0: never for that reason."""


class SnapshotGenerator:
    """Follows the state machine as its subscriber. One snapshot is taken at a time."""

    def __init__(
        self, store: AppliedStore, take_snapshot: TakeSnapshot, config: SnapshotConfig, runtime: Runtime
    ) -> None:
        """Nothing happens before the first call."""
        self._store = store
        self._take_snapshot = take_snapshot
        self._config = config
        self._runtime = runtime
        self._bytes_at_last = store.applied_bytes
        self._last_end_offset = Offset(0)
        self._taking: Timer | None = None
        """Cancels the snapshot that is being taken."""
        self._waiting: list[tuple[Offset, OnTaken]] = []
        """The callers that have requested a snapshot of at least that much."""
        self._timer: Timer | None = None
        self._has_failed = False
        self._failures = SaidOnce()
        self._is_shut_down = False
        self._on_closed: Callable[[], None] = lambda: None
        self._on_taken: Callable[[], None] = lambda: None
        self._on_corruption: Callable[[str], None] = lambda reason: None

    def tell(self, on_taken: Callable[[], None]) -> None:
        """Call `on_taken` after each new snapshot from now on."""
        self._on_taken = on_taken

    def set_corruption_callback(self, on_corruption: Callable[[str], None]) -> None:
        """Call `on_corruption` if the database is not what was applied; then no snapshot of it is taken."""
        self._on_corruption = on_corruption

    def replace_damaged(self) -> None:
        """A snapshot was damaged and deleted: take another one in the background."""
        if not self._is_shut_down and not self._has_failed and self._store.applied_end_offset > 0:
            self._start()

    def take(self, on_taken: OnTaken) -> None:
        """Take a snapshot of at least what is applied now; `on_taken` gets StorageError if that is not possible."""
        if self._is_shut_down:
            on_taken(None, StorageError("this node shuts down; ask another"))
            return
        self._waiting.append((self._store.applied_end_offset, on_taken))
        self._start()

    # --- calls of the state machine -----------------------------------------------------------------------------------

    def applied(self, end_offset: Offset) -> None:
        """Take a snapshot in the background if enough was applied since the last one, or since one was loaded."""
        self._bytes_at_last = min(self._bytes_at_last, self._store.applied_bytes)  # SN-32
        if self._is_shut_down or self._has_failed or self._taking is not None:
            return
        if self._store.applied_bytes - self._bytes_at_last >= self._config.max_bytes_between:
            self._start()
        elif self._timer is None and self._config.max_interval_ms:
            self._wait(self._config.max_interval_ms)

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Every node takes its own snapshots, whichever node leads."""

    def shut_down(self) -> None:
        """Stop taking snapshots."""
        self._is_shut_down = True
        if self._timer is not None:
            self._timer.cancel()

    def close(self, on_closed: Callable[[], None]) -> None:
        """Abandon the snapshot that is being taken, if any; call `on_closed` when its process has ended."""
        self.shut_down()
        if self._taking is None:
            on_closed()
        else:
            self._on_closed = on_closed
            self._taking.cancel()

    # --- taking one ---------------------------------------------------------------------------------------------------

    def _wait(self, milliseconds: float) -> None:
        self._timer = self._runtime.call_later(milliseconds, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._has_failed = False
        if self._taking is None and self._store.applied_end_offset > self._last_end_offset:
            self._start()

    def _start(self) -> None:
        if self._taking is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._taking = self._take_snapshot(partial(self._ended, self._store.applied_bytes))

    def _ended(self, bytes_before: int, taken: TakenSnapshot | None, error: BaseException | None) -> None:
        self._taking = None
        if taken is not None:
            self._bytes_at_last = bytes_before
            self._has_failed = False
            self._failures.ends()
            self._last_end_offset = taken.snapshot_id.offset
            self._on_taken()
            if taken.is_new:
                logger.info("snapshot taken", path=taken.path, size_bytes=taken.size_bytes)
            self._answer(taken)
        else:
            self._failed(error)
        if self._is_shut_down:
            self._on_closed()

    def _answer(self, taken: TakenSnapshot) -> None:
        """Callers that have requested less have it; for others another snapshot is taken."""
        waiting, self._waiting = self._waiting, []
        for wanted, on_taken in waiting:
            if wanted <= taken.snapshot_id.offset:
                on_taken(taken, None)
            else:
                self._waiting.append((wanted, on_taken))
        if self._waiting and not self._is_shut_down:
            self._start()

    def _failed(self, error: BaseException | None) -> None:
        if isinstance(error, CorruptDatabase):
            self._on_corruption(str(error))
        failure = StorageError(f"the snapshot could not be taken: {error}")
        waiting, self._waiting = self._waiting, []
        if not self._is_shut_down:
            if not waiting and self._failures.begins():
                logger.error("snapshot was not taken; it is tried again", reason=str(failure))
            self._has_failed = True
            self._wait(RETRY_MS)
        for _, on_taken in waiting:
            on_taken(None, failure)
