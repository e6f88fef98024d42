"""The state machine of one process: committed batches are applied to its tables, a run at a time.

As `statemachine.apply.machine` does it on a real node: operations are acknowledged before a small run is
written, and other events may happen in between.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from kraftbase.errors import StorageError
from kraftlog.sim.node.controller_host import ControllerHost
from kraftlog.sim.node.database import take_snapshot
from kraftlog.sim.node.register_service import RegisterService
from kraftlog.sim.node.stepped_process import SteppedProcess
from kraftlog.sim.observation.node_view import AppliedState
from kraftlog.sim.observation.step import Delivery
from kraftlog.sim.virtual.crash import ProcessKilled
from raft.core.events import StateDigestReported
from raft.core.types import Batch, Offset
from raft.delivery import ListenerCursor
from raft.listener import CommittedBatch
from snapshot.reader import SnapshotReader
from statemachine.apply.machine import REMOVALS_ON_LOOP_MAX

ROWS_ACKNOWLEDGED_MAX: Final = 30
"""A run with more rows is applied before anything in it is acknowledged. It is low, so that there are such runs."""


class ApplyLoop:
    """See the module. The tables themselves are the process's."""

    def __init__(
        self,
        process: SteppedProcess,
        register_service: RegisterService,
        controller_host: ControllerHost,
        random: Random,
    ) -> None:
        self.process = process
        self._register_service = register_service
        self._controller_host = controller_host
        self._cursor = ListenerCursor(process.log, process.tables.applied.end_offset or None)
        self._random = random
        self._is_scheduled = False
        self._is_loading = False
        self.has_acknowledged = False
        """What it applies next is acknowledged."""
        self._is_snapshotting = False
        self._applied_since_snapshot = 0

    @property
    def next_offset(self) -> Offset:
        """Everything below is applied; -1: it is new, and has not begun."""
        return self._cursor.next_offset

    def take_snapshot_soon(self) -> None:
        """Take one as soon as there is nothing else to do."""
        self._applied_since_snapshot = self.process.environment.parameters.snapshot_interval
        self.schedule()

    def schedule(self) -> None:
        """Check, in a step of its own, whether there is anything to apply."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.process.runtime.call_soon(self._deliver)

    def note_applied(self) -> None:
        """Let the checkers see how far the tables are."""
        applied = self.process.tables.applied
        view = self.process.machine.view
        view.applied, view.tables = AppliedState(applied.end_offset, applied.digest), self.process.tables.connection

    def _deliver(self) -> None:
        process = self.process
        self._is_scheduled = False
        if process.is_fenced or self._is_loading or self.has_acknowledged:
            return
        if self._cursor.needs_snapshot(process.committed_end_offset, process.shell.snapshots.latest):
            self._is_loading = True
            process.shell.snapshots.open_latest(self._load)
            return
        while batches := self._cursor.next_batches(process.committed_end_offset):
            run = [CommittedBatch(batch) for batch in batches]
            prepared = process.tables.prepare(run, removals_max=REMOVALS_ON_LOOP_MAX, rows_max=ROWS_ACKNOWLEDGED_MAX)
            if prepared is None:
                process.environment.marks.hit("a run was too much to acknowledge before it was applied")
                self._apply(batches, partial(process.tables.apply, run))
                continue
            write = partial(process.tables.commit, prepared)
            if self._controller_host.committed(prepared.end_offset):
                process.environment.marks.hit("an operation was acknowledged before it was applied")
                self.has_acknowledged = True
                process.runtime.call_soon(partial(self._apply_acknowledged, batches, write))
                return
            self._apply(batches, write)
        self._announce_leader()
        self._snapshot_if_due()

    def _apply_acknowledged(self, batches: tuple[Batch, ...], write: Callable[[], None]) -> None:
        """In a step of its own: other events, also the end, may come between the acknowledgement and this."""
        if self._random.random() < self.process.environment.append_kill_rate:
            raise ProcessKilled
        if not self.process.is_fenced:
            self._apply(batches, write)
        self.has_acknowledged = False
        self._deliver()

    def _apply(self, batches: tuple[Batch, ...], write: Callable[[], None]) -> None:
        process = self.process
        process.crash_point()
        process.step.deliveries.append(Delivery(batches))
        write()
        process.machine.database.committed(process.tables)
        self._cursor.next_offset = batches[-1].end_offset
        self.note_applied()
        process.crash_point()
        for digest in process.tables.take_state_digests():
            process.shell.step(StateDigestReported(digest))
        self._register_service.applied(batches[-1].end_offset)
        self._controller_host.applied(batches[-1].end_offset)
        self._applied_since_snapshot += len(batches)
        self._announce_leader()

    def _load(self, reader: SnapshotReader | None) -> None:
        """A snapshot replaces what the tables hold; a kill leaves the old tables or the new ones."""
        process = self.process
        self._is_loading = False
        if reader is None or process.is_fenced:
            self.schedule()
            return
        with reader:
            process.crash_point()
            process.tables = process.machine.database.loaded(reader)
            process.step.deliveries.append(Delivery(snapshot_id=reader.snapshot_id))
            self._cursor.next_offset = reader.snapshot_id.offset
        self.note_applied()
        process.crash_point()
        process.environment.marks.hit("the state machine loaded a snapshot")
        self._applied_since_snapshot = 0
        if process.tables.state_digest is not None:
            process.shell.step(StateDigestReported(process.tables.state_digest))
        self._register_service.applied(process.tables.applied.end_offset)
        self._controller_host.applied(process.tables.applied.end_offset)
        self.schedule()

    def _snapshot_if_due(self) -> None:
        """Take a snapshot of what the tables hold now, while commits continue (SN-30)."""
        interval = self.process.environment.parameters.snapshot_interval
        if self._is_snapshotting or not 0 < interval <= self._applied_since_snapshot:
            return
        if self.process.machine.view.has_diverged:
            return  # the divergence would spread with its snapshots (docs/faults.md)
        self._applied_since_snapshot = 0
        self._is_snapshotting = True
        image = self.process.tables.connection.serialize()

        def done(error: BaseException | None) -> None:
            self._is_snapshotting = False
            if error is None:
                self.process.shell.snapshot_taken()
            elif not isinstance(error, StorageError):
                self.process.fatal(error)

        self.process.runtime.run_aside(lambda: take_snapshot(image, self.process.snapshots), done)

    def _announce_leader(self) -> None:
        process = self.process
        if process.leader is None:
            return
        leader, _, epoch_start_offset = process.leader
        announced = self._cursor.next_leader(leader, epoch_start_offset)
        if announced is not None:
            process.step.deliveries.append(Delivery(leader=announced, epoch_start_offset=epoch_start_offset))
            self._register_service.leader_changed(announced)
            self._controller_host.leader_changed(announced)
