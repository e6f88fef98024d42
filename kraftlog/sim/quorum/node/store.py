"""The store of a simulated process (`statemachine.store.store_port.StorePort`) on its machine's database.

The tables are the production tables. In place of a file there is a database in memory, whose images survive the
process, and a write-ahead log of which only the size is simulated.
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
from statemachine.tables.database import CORRUPT
from statemachine.tables.table import Table

ROWS_ACKNOWLEDGED_MAX: Final = 30
"""A run of batches with more rows is acknowledged only when it is applied.

The limit is low, so that such runs occur.
"""


class SimulatedWriteAheadLog:
    """`statemachine.store.store_port.WriteAheadLogPort`: it grows with each transaction, and a reader may hold it."""

    TRANSACTION_BYTES: Final = 2 * MEBIBYTE
    """The size that each transaction counts as, so that a few are enough to fill the log."""
    FULL_BYTES: Final = 80 * MEBIBYTE
    """The limit, far below that of a real disk."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.size_bytes = 0

    @property
    def is_due(self) -> bool:
        """Whether the log is large enough to start over."""
        return self.size_bytes >= START_OVER_BYTES

    @property
    def is_large(self) -> bool:
        """Whether the log is so large that the store should wait for readers."""
        return self.size_bytes >= START_OVER_BYTES * WAIT_SHARE

    @property
    def is_full(self) -> bool:
        """Whether the log has reached its limit."""
        return self.size_bytes >= self.FULL_BYTES

    def copy(self) -> None:
        """Do nothing: there is no file to copy to."""

    def start_over(self, wait_seconds: float = 0.0) -> bool:
        """Start the log over, unless a reader holds it. Return whether it did."""
        if self._database.is_held:
            return False
        self.size_bytes = 0
        return True

    def holders(self) -> str:
        """Return the name of the simulated reader."""
        return "a simulated reader"

    def check_bound(self) -> None:
        """Raise WriteAheadLogHeld if the log is full."""
        if self.is_full:
            raise WriteAheadLogHeld(f"{self.holders()} keeps the write-ahead log")


class SimulatedStore:
    """The store of one process, which may be killed before and after each transaction."""

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
        """Returns whether the records of the next write were already acknowledged."""
        self.write_ahead_log = SimulatedWriteAheadLog(self._database)

    # --- the applied state --------------------------------------------------------------------------------------------

    @property
    def reader(self) -> sqlite3.Connection:
        """The connection to the tables, outside any transaction: each transaction is one call."""
        return self.tables.connection

    @property
    def applied_end_offset(self) -> Offset:
        """The applied end offset of the tables."""
        return self.tables.applied.end_offset

    @property
    def applied_bytes(self) -> int:
        """The applied bytes of the tables."""
        return self.tables.applied_bytes

    def changed_at(self, table: Table[Any]) -> Offset:
        """Return the offset at which `table` last changed."""
        return self.tables.changed_at(table)

    @property
    def has_open_transaction(self) -> bool:
        """Whether the tables have an open metadata transaction."""
        return self.tables.has_open_transaction

    @property
    def waiting_bytes(self) -> int:
        """The bytes that wait for the end of a metadata transaction."""
        return self.tables.waiting_bytes

    @property
    def state_digest(self) -> StateDigest | None:
        """The last state digest of the tables."""
        return self.tables.state_digest

    def take_state_digests(self) -> list[StateDigest]:
        """Return the new state digests of the tables."""
        return self.tables.take_state_digests()

    def take_deltas(self) -> list[MetadataDelta]:
        """Return the new deltas of the tables."""
        return self.tables.take_deltas()

    # Return the new deltas of the tables.

    def prepare(
        self, batches: Iterable[CommittedBatch], *, removals_max: int | None = None, rows_max: int | None = None
    ) -> PreparedRun | None:
        """Prepare a run as the tables do, with a low limit on rows."""
        run = list(batches)
        prepared = self.tables.prepare(run, removals_max=removals_max, rows_max=ROWS_ACKNOWLEDGED_MAX)
        self._prepared = _encoded(run)
        if prepared is None:
            self.process.host.marks.hit("a run was too much to acknowledge before it was applied")
        return prepared

    def commit(self, prepared: PreparedRun) -> None:
        """Commit a prepared run in one transaction, on the loop."""
        if self.is_acknowledged() and self._random.random() < self.process.host.append_kill_rate:
            raise ProcessKilled
        self._write(self._prepared, lambda: self.tables.commit(prepared, note_delta=self.has_publishers))

    def apply(self, batches: Iterable[CommittedBatch]) -> None:
        """Apply batches in one transaction, in the worker."""
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
        """Update the applied state in the node's view."""
        applied, view = self.tables.applied, self.process.machine.view
        view.applied, view.tables = AppliedState(applied.end_offset, applied.digest), self.tables.connection

    def _refuse_if_unavailable(self) -> None:
        if self._database.is_locked:
            self.process.host.marks.hit("a database could not be written for a while")
            raise StoreUnavailable("a simulated process has locked the database")

    # --- loading a snapshot -------------------------------------------------------------------------------------------

    def load(self, snapshot: SnapshotReader) -> None:
        """Fill new tables next to the old ones, in the worker."""
        self._refuse_if_unavailable()
        self.process.crash_point()
        self._loaded, self._loading = self._database.filled(snapshot), snapshot

    def use_loaded(self, on_done: OnDone, *, unless: Callable[[], bool]) -> Timer:
        """Put the loaded tables in place, in a step of its own, unless `unless()` is true."""

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
        """Replace the old tables with the loaded ones. A kill leaves one or the other."""
        loaded, snapshot = self._loaded, self._loading
        if loaded is None or snapshot is None:
            raise ValueError("nothing was loaded")
        self.process.crash_point()
        self.tables = self._database.put_in_place(loaded)
        self._loaded = self._loading = None
        self.process.step.deliveries.append(Delivery(snapshot_id=snapshot.snapshot_id))
        self.note_applied()
        self.process.host.marks.hit("the state machine loaded a snapshot")
        self.process.crash_point()

    # --- faults of the database ---------------------------------------------------------------------------------------

    def mark_diverged(self, reason: str) -> None:
        """Make the next process start with an empty database."""
        self.process.crash_point()
        self._database.set_aside(is_corrupt=reason.startswith(CORRUPT))

    def find_corruption(self) -> str | None:
        """Scrub the tables; return the corruption found."""
        return self._database.find_corruption()


def _encoded(run: Iterable[CommittedBatch]) -> tuple[Batch, ...]:
    return tuple(batch.encoded for batch in run)
