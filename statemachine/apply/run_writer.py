"""Writes one run of committed batches: acknowledge it, let the answers leave, write it (CT-10).

Small runs are written on the event loop; others in the worker, while reads continue and see the previous state. While
there is no room on the disk, or another process has locked the database, it tries again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import structlog

from kraftbase.runtime import OnDone, Runtime
from kraftbase.types import Offset
from raft.listener import CommittedBatch
from statemachine.apply.obstacle import Obstacle
from statemachine.replay.replay import ReplayError
from statemachine.store.checkpointer import Checkpointer
from statemachine.store.metadata_tables import PreparedRun, StoreUnavailable
from statemachine.store.store_port import StorePort
from statemachine.store.write_ahead_log import WriteAheadLogHeld

REMOVALS_ON_LOOP_MAX: Final = 0
"""How many topics, or partitions with remote data, may lose all their rows on the loop: a topic takes up to 10,000
partitions along, 30 milliseconds of work, and a partition has any number of remote segments."""

UNAVAILABLE_PAUSE_MS: Final = 500
"""How long to wait before a transaction that had no room or met a lock is tried again."""

OnCommitted = Callable[[Offset], bool]
"""Called with the end of a committed run that is written on the loop next; returns whether it acknowledged anything."""

logger = structlog.get_logger(__name__)


class OnLoop(NamedTuple):
    """The limits of a run that is written on the event loop, rather than by the worker."""

    bytes_max: int = 32 * 1024
    """By default up to about 800 records."""
    rows_max: int = 1_000
    """Few bytes may still be many rows: a remote segment has one for each leader epoch. A row takes 0.1 milliseconds
    or less, and a publisher's part comes on top."""


class RunWriter:
    """See the module. One run at a time."""

    def __init__(
        self,
        store: StorePort,
        runtime: Runtime,
        checkpointer: Checkpointer,
        obstacle: Obstacle,
        on_corruption: Callable[[str], None],
        on_loop: OnLoop,
    ) -> None:
        """`on_corruption` is called when the rows that a record would change are not those that were applied."""
        self._store = store
        self._runtime = runtime
        self._checkpointer = checkpointer
        self._obstacle = obstacle
        self._on_corruption = on_corruption
        self._on_loop = on_loop
        self.on_committed: OnCommitted = lambda end_offset: False
        self.acknowledged_end_offset = Offset(0)
        """The offset below which records were acknowledged here, written or not."""
        self._batches: Sequence[CommittedBatch] = ()
        self._on_done: OnDone = lambda error: None

    # Consider a leader whose store has applied everything below 100. A client creates topic a: offsets 100 and 101.
    # They are committed, and this class gets them. First the controller answers the client: the end offset is 102. Only
    # when the answer is with the network are the rows written to SQLite: the client does not wait for that.
    #
    # A read that arrives in between must see topic a: the client has the answer and may have sent the read. So
    # `acknowledged_end_offset` is 102 while 100 is applied, and reads wait for 102 even if they ask for a lower offset
    # (`MetadataMachine.wait_applied`). A client that reads from another node waits there for 102, which its answer has
    # as the end offset.
    #
    # Nothing is lost if the process ends in between: the log has both records, and the store applies them after the
    # next start. If the database cannot be written, the answer was right nevertheless, since topic a is committed. Then
    # reads are refused here with KAFKA_STORAGE_ERROR, rather than answered without topic a, and so are new operations.
    def write(self, batches: Sequence[CommittedBatch], on_done: OnDone) -> None:
        """Write the run, when that is possible; `on_done` is called with an error that must stop the node.

        Once the state machine is fenced the run is skipped; once it is shut down, `on_done` is not called.
        """
        self._batches, self._on_done = batches, on_done
        self._try()

    def _try(self) -> None:
        if self._obstacle.is_final:
            self._end(None)
            return
        try:
            prepared = self._prepared()
            if prepared is None:
                self._checkpointer.before_writing(self._write_aside)
            elif self.on_committed(prepared.end_offset):
                self.acknowledged_end_offset = prepared.end_offset
                self._runtime.call_after_answers(partial(self._write_when_still, prepared))
            else:
                self._write_when_still(prepared)
        except BaseException as error:
            self._written(error)

    def _prepared(self) -> PreparedRun | None:
        """The run prepared for writing on the loop; None if it is too large for that.

        Batches that wait for the end of a transaction count, for it may end here.
        """
        size_bytes = self._store.waiting_bytes + sum(batch.size_bytes for batch in self._batches)
        if size_bytes > self._on_loop.bytes_max:
            return None
        return self._store.prepare(self._batches, removals_max=REMOVALS_ON_LOOP_MAX, rows_max=self._on_loop.rows_max)

    def _write_aside(self, error: BaseException | None) -> None:
        if error is not None:
            self._written(error)
        else:
            self._runtime.run_on_disk(lambda: self._store.apply(self._batches), self._written)

    def _write_when_still(self, prepared: PreparedRun) -> None:
        try:
            self._checkpointer.before_writing(partial(self._write, prepared))
        except BaseException as error:
            self._written(error)

    def _write(self, prepared: PreparedRun, error: BaseException | None) -> None:
        if error is None and not self._obstacle.is_final:
            try:
                self._store.commit(prepared)
            except BaseException as failure:
                error = failure
        self._written(error)

    def _written(self, error: BaseException | None) -> None:
        match error:
            case None:
                self._obstacle.passing_reason = None
                self._end(None)
            case StoreUnavailable():
                if self._obstacle.passing_reason is None:
                    logger.error("committed records wait to be applied", reason=str(error))
                self._obstacle.passing_reason = str(error)
                if isinstance(error, WriteAheadLogHeld):
                    self._wait()
                else:
                    self._checkpointer.make_room(self._room_made)
            case ReplayError() | sqlite3.DatabaseError() | ValueError():
                self._check_for_corruption(error)
            case _:
                self._end(error)

    def _room_made(self, has_more: bool, error: BaseException | None) -> None:
        if error is not None:
            self._end(error)
        elif has_more:
            self._try()
        else:
            self._wait()

    def _wait(self) -> None:
        self._runtime.call_later(UNAVAILABLE_PAUSE_MS, self._try)

    def _check_for_corruption(self, error: BaseException) -> None:
        """Check whether the rows that the record would change are wrong, rather than the record."""
        found: list[str | None] = []

        def look() -> None:
            found.append(self._store.find_corruption())

        def looked(failure: BaseException | None) -> None:
            if failure is None and found[0] is not None:
                self._on_corruption(found[0])
                self._end(None)
            else:
                self._end(failure or error)

        self._runtime.run_on_disk(look, looked)

    def _end(self, error: BaseException | None) -> None:
        if not self._obstacle.is_shut_down:
            self._on_done(error)
