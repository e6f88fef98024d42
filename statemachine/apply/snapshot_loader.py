"""Replaces a state machine's database by a snapshot. Reads see the old database until then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from kraftbase.errors import OutOfSpace
from kraftbase.runtime import OnDone, Runtime, Timer
from snapshot.reader import SnapshotReader
from statemachine.apply.obstacle import Obstacle
from statemachine.store.checkpointer import Checkpointer
from statemachine.store.metadata_tables import StoreUnavailable
from statemachine.store.store_port import StorePort

LOADING_PAUSE_MS: Final = 500
"""How long to wait before a snapshot that had no room or met a lock is loaded again."""

logger = structlog.get_logger(__name__)


class SnapshotLoader:
    """See the module. One snapshot at a time."""

    def __init__(self, store: StorePort, runtime: Runtime, checkpointer: Checkpointer, obstacle: Obstacle) -> None:
        self._store = store
        self._runtime = runtime
        self._checkpointer = checkpointer
        self._obstacle = obstacle
        self._snapshot: SnapshotReader | None = None
        self._on_done: OnDone = lambda error: None
        self._using: Timer | None = None
        """Cancels the wait for running queries."""
        self._on_stopped: Callable[[], None] = lambda: None

    def load(self, snapshot: SnapshotReader, on_done: OnDone) -> None:
        """Load `snapshot`, when that is possible; `on_done` is called with an error that must stop the node.

        Once the state machine is fenced no snapshot is loaded; once it is shut down, `on_done` is not called.
        """
        self._snapshot, self._on_done = snapshot, on_done
        # When the old database is closed, on the event loop, SQLite copies the rest of its write-ahead log.
        self._checkpointer.make_room(self._pause_checkpoints)

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """Stop waiting for queries, as the state machine is shut down; `on_stopped` may be called now."""
        if self._using is None:
            on_stopped()
        else:
            self._on_stopped = on_stopped
            self._using.cancel()

    def _pause_checkpoints(self, has_more: bool, error: BaseException | None) -> None:
        if error is not None:
            self._end(error)
        else:
            # A checkpoint would open the old database while the new one takes its place.
            self._checkpointer.pause(self._try)

    def _try(self) -> None:
        snapshot = self._snapshot
        if self._obstacle.is_final or snapshot is None:
            self._end(None)
        else:
            self._runtime.run_on_disk(lambda: self._store.load(snapshot), self._made)

    def _made(self, error: BaseException | None) -> None:
        if error is not None or self._obstacle.is_final:
            self._ended(error)
        else:
            self._using = self._store.use_loaded(self._used, unless=lambda: self._obstacle.is_final)

    def _used(self, error: BaseException | None) -> None:
        self._using = None
        if self._obstacle.is_shut_down:
            self._on_stopped()
        else:
            self._ended(error)

    def _ended(self, error: BaseException | None) -> None:
        if isinstance(error, StoreUnavailable | OutOfSpace):
            if self._obstacle.passing_reason is None:
                logger.error("a snapshot waits to be loaded", reason=str(error))
            self._obstacle.passing_reason = str(error)
            self._runtime.call_later(LOADING_PAUSE_MS, self._try)
            return
        if error is None:
            self._obstacle.passing_reason = None
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self._snapshot = None
        if not self._obstacle.is_shut_down:
            self._checkpointer.resume()
            self._on_done(error)
