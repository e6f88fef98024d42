"""The store of a simulated process (`statemachine.store.store_port.StorePort`) over its machine's database.

The tables are the production's. Their file is not: a database in memory, whose images survive the process, and a
write-ahead log of which only the size is known.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from kraftbase.runtime import OnDone, Timer
from kraftbase.types import Offset
from kraftlog.sim.engine.virtual.crash import ProcessKilled
from kraftlog.sim.quorum.node.database import Database
from kraftlog.sim.quorum.node.stepped_process import SteppedProcess
from kraftlog.sim.quorum.observation.node_view import AppliedState
from kraftlog.sim.quorum.observation.step import Delivery
from raft.core.types import Batch, StateDigest
from raft.listener import CommittedBatch
from snapshot.reader import SnapshotReader
from statemachine.replay.deltas import MetadataDelta
from statemachine.store.metadata_tables import MetadataTables, PreparedRun, StoreUnavailable
from statemachine.store.write_ahead_log import MEBIBYTE, START_OVER_BYTES, WAIT_SHARE, WriteAheadLogHeld
from statemachine.tables.database import ROTTEN
from statemachine.tables.table import Table

ROWS_ACKNOWLEDGED_MAX: Final = 30
"""A run with more rows is applied before anything in it is acknowledged. It is low, so that there are such runs."""


class SimulatedWriteAheadLog:
    """`statemachine.store.store_port.WriteAheadLogPort`: it grows with each transaction, and a reader may keep it."""

    TRANSACTION_BYTES: Final = 2 * MEBIBYTE
    """Each transaction is taken to be that large: a few are enough."""
    FULL_BYTES: Final = 80 * MEBIBYTE
    """Far less than on a real disk."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.size_bytes = 0

    @property
    def is_due(self) -> bool:
        """From a size on."""
        return self.size_bytes >= START_OVER_BYTES

    @property
    def is_large(self) -> bool:
        """From a larger one on."""
        return self.size_bytes >= START_OVER_BYTES * WAIT_SHARE

    @property
    def is_full(self) -> bool:
        """From the largest one on."""
        return self.size_bytes >= self.FULL_BYTES

    def copy(self) -> None:
        """Copies nothing: it cannot be lost."""

    def start_over(self, wait_seconds: float = 0.0) -> bool:
        """Unless a reader keeps it."""
        if self._database.is_held:
            return False
        self.size_bytes = 0
        return True

    def holders(self) -> str:
        """The fault."""
        return "a simulated reader"

    def check_bound(self) -> None:
        """Raise WriteAheadLogHeld if it is full."""
        if self.is_full:
            raise WriteAheadLogHeld(f"{self.holders()} keeps the write-ahead log")


class SimulatedStore:
    """See the module. Its process may be killed before and after each transaction."""

    def __init__(self, process: SteppedProcess, tables: MetadataTables, random: Random) -> None:
        self.process = process
        self._database: Database = process.machine.database
        self._random = random
        self._loaded: MetadataTables | None = None
        self._loading: SnapshotReader | None = None
        self._prepared: tuple[Batch, ...] = ()
        self.tables = tables
        self.has_publishers = False
        self.is_acknowledged: Callable[[], bool] = lambda: False
        """Whether what is written next was acknowledged before."""
        self.write_ahead_log = SimulatedWriteAheadLog(self._database)

    # --- what is applied ----------------------------------------------------------------------------------------------

    @property
    def reader(self) -> sqlite3.Connection:
        """The tables as they are: between transactions, because each is one call."""
        return self.tables.connection

    @property
    def applied_end_offset(self) -> Offset:
        """Of the tables."""
        return self.tables.applied.end_offset

    @property
    def applied_bytes(self) -> int:
        """Of the tables."""
        return self.tables.applied_bytes

    def changed_at(self, table: Table[Any]) -> Offset:
        """Of the tables."""
        return self.tables.changed_at(table)

    @property
    def has_open_transaction(self) -> bool:
        """Of the tables."""
        return self.tables.has_open_transaction

    @property
    def waiting_bytes(self) -> int:
        """Of the tables."""
        return self.tables.waiting_bytes

    @property
    def state_digest(self) -> StateDigest | None:
        """Of the tables."""
        return self.tables.state_digest

    def take_state_digests(self) -> list[StateDigest]:
        """Of the tables."""
        return self.tables.take_state_digests()

    def take_deltas(self) -> list[MetadataDelta]:
        """Of the tables."""
        return self.tables.take_deltas()

    # --- writing ------------------------------------------------------------------------------------------------------

    def prepare(
        self, batches: Iterable[CommittedBatch], *, removals_max: int | None = None, rows_max: int | None = None
    ) -> PreparedRun | None:
        """As the tables do; a few rows are already too many."""
        run = list(batches)
        prepared = self.tables.prepare(run, removals_max=removals_max, rows_max=ROWS_ACKNOWLEDGED_MAX)
        self._prepared = _encoded(run)
        if prepared is None:
            self.process.environment.marks.hit("a run was too much to acknowledge before it was applied")
        return prepared

    def commit(self, prepared: PreparedRun) -> None:
        """One transaction, on the loop."""
        if self.is_acknowledged() and self._random.random() < self.process.environment.append_kill_rate:
            raise ProcessKilled
        self._write(self._prepared, lambda: self.tables.commit(prepared, note_delta=self.has_publishers))

    def apply(self, batches: Iterable[CommittedBatch]) -> None:
        """One transaction, in the worker."""
        run = list(batches)
        self._write(_encoded(run), lambda: self.tables.apply(run, note_delta=self.has_publishers))

    def _write(self, batches: tuple[Batch, ...], write: Callable[[], None]) -> None:
        self._refuse_if_unavailable()
        self.process.crash_point()
        self.process.step.deliveries.append(Delivery(batches))
        write()
        self.write_ahead_log.size_bytes += SimulatedWriteAheadLog.TRANSACTION_BYTES
        self._database.committed()
        self.note_applied()
        self.process.crash_point()

    def note_applied(self) -> None:
        """Let the checkers see how far the tables are."""
        applied, view = self.tables.applied, self.process.machine.view
        view.applied, view.tables = AppliedState(applied.end_offset, applied.digest), self.tables.connection

    def _refuse_if_unavailable(self) -> None:
        if self._database.is_locked:
            self.process.environment.marks.hit("a database could not be written for a while")
            raise StoreUnavailable("a simulated process has locked the database")

    # --- a snapshot in its place --------------------------------------------------------------------------------------

    def load(self, snapshot: SnapshotReader) -> None:
        """New tables beside the old ones, in the worker."""
        self._refuse_if_unavailable()
        self.process.crash_point()
        self._loaded, self._loading = self._database.filled(snapshot), snapshot

    def use_loaded(self, on_done: OnDone, *, unless: Callable[[], bool]) -> Timer:
        """In a step of its own."""

        def use() -> None:
            try:
                if not unless():
                    self.put_in_place()
            except BaseException as error:
                on_done(error)
            else:
                on_done(None)

        return self.process.after(0, "soon", use)

    def put_in_place(self) -> None:
        """The new tables take the place of the old ones; a kill leaves the old or the new ones."""
        loaded, snapshot = self._loaded, self._loading
        if loaded is None or snapshot is None:
            raise ValueError("nothing was loaded")
        self.process.crash_point()
        self.tables = self._database.put_in_place(loaded)
        self._loaded = self._loading = None
        self.process.step.deliveries.append(Delivery(snapshot_id=snapshot.snapshot_id))
        self.note_applied()
        self.process.environment.marks.hit("the state machine loaded a snapshot")
        self.process.crash_point()

    # --- what is wrong with it ----------------------------------------------------------------------------------------

    def mark_diverged(self, reason: str) -> None:
        """The next process begins with an empty database."""
        self.process.crash_point()
        self._database.set_aside(is_rotten=reason.startswith(ROTTEN))

    def find_rot(self) -> str | None:
        """What a scrub finds."""
        return self._database.find_rot()


def _encoded(run: Iterable[CommittedBatch]) -> tuple[Batch, ...]:
    return tuple(batch.encoded for batch in run)
