"""The production state machine of one process: what feeds it, what follows it, and its snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftbase.errors import StorageError
from kraftbase.runtime import OnDone
from kraftbase.types import Offset
from kraftlog.sim.quorum.node.database import take_snapshot
from kraftlog.sim.quorum.node.runtime import SimulatedRuntime
from kraftlog.sim.quorum.node.stepped_process import SteppedProcess
from kraftlog.sim.quorum.node.store import SimulatedStore
from kraftlog.sim.quorum.observation.node_view import STATE_MACHINE
from kraftlog.sim.quorum.observation.step import Delivery
from raft.core.events import StateDigestReported, StateMachineFenced
from raft.core.types import Batch, LeaderAndEpoch, StateDigest
from snapshot.reader import SnapshotReader
from statemachine.apply.applied import Subscriber
from statemachine.apply.machine import MetadataMachine
from statemachine.apply.publishers import MetadataPublisher
from statemachine.store.snapshot_generator import OnTaken, SnapshotConfig, SnapshotGenerator
from statemachine.store.snapshot_worker import TakenSnapshot

BATCH_BYTES: Final = 50
"""About what the body of a batch has: snapshots are due by bytes."""

NEVER_BYTES: Final = 1 << 40

SNAPSHOT_INTERVAL_MS: Final = 60_000
"""A snapshot of this age is followed by another one."""


class StateMachine:
    """The listener of a process: a `MetadataMachine`, watched. It is the controller's port to it, too."""

    name: Final = STATE_MACHINE
    can_load_snapshots: Final = True

    def __init__(self, process: SteppedProcess, store: SimulatedStore) -> None:
        self._process = process
        self._store = store
        runtime = SimulatedRuntime(process)  # its worker is not the shell's
        self._machine = MetadataMachine(store, runtime)
        self._acknowledged_end_offset = Offset(0)
        store.is_acknowledged = lambda: self.has_acknowledged
        config = _snapshot_config(process.environment.parameters.snapshot_interval)
        self.generator = SnapshotGenerator(store, self._take_snapshot, config, runtime)
        self.generator.tell(lambda: process.shell.snapshot_taken())
        self._runtime = runtime
        self._machine.subscribe(self.generator)
        self._machine.set_state_digest_callback(lambda digest: process.shell.step(StateDigestReported(digest)))
        self._machine.set_rot_callback(self.found_rot)
        self.generator.set_rot_callback(self.found_rot)

    # --- the listener -------------------------------------------------------------------------------------------------

    def handle_commit(self, batches: tuple[Batch, ...], on_done: OnDone) -> None:
        """Apply them."""
        self._machine.handle_commit(batches, on_done)

    def handle_load_snapshot(self, snapshot: SnapshotReader, on_done: OnDone) -> None:
        """Load it."""
        self._machine.handle_load_snapshot(snapshot, on_done)

    def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch, on_done: OnDone) -> None:
        """Pass it on."""
        start_offset = self._process.feed.epoch_start_offset
        self._process.step.deliveries.append(Delivery(leader=leader_and_epoch, epoch_start_offset=start_offset))
        self._machine.handle_leader_change(leader_and_epoch, on_done)

    def begin_shutdown(self, on_done: OnDone) -> None:
        """Stop."""
        self._machine.begin_shutdown(on_done)

    def abandon(self) -> None:
        """Stop."""
        self._machine.abandon()

    # --- the controller's port ----------------------------------------------------------------------------------------

    @property
    def applied_end_offset(self) -> Offset:
        """The machine's."""
        return self._machine.applied_end_offset

    @property
    def unavailable_reason(self) -> str | None:
        """The machine's."""
        return self._machine.unavailable_reason

    @property
    def has_open_transaction(self) -> bool:
        """The machine's."""
        return self._machine.has_open_transaction

    def refuse_if_fenced(self) -> None:
        """As the machine does."""
        self._machine.refuse_if_fenced()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Notify it from now on."""
        self._machine.subscribe(subscriber)

    def install_publisher(self, publisher: MetadataPublisher) -> None:
        """Show it the state, and every change."""
        self._machine.install_publisher(publisher)

    def set_commit_callback(self, on_committed: Callable[[Offset], bool]) -> None:
        """Notify it from now on."""

        def noted(end_offset: Offset) -> bool:
            has_acknowledged = on_committed(end_offset)
            if has_acknowledged:
                self._process.environment.marks.hit("an operation was acknowledged before it was applied")
                self._acknowledged_end_offset = end_offset
            return has_acknowledged

        self._machine.set_commit_callback(noted)

    # --- its state ----------------------------------------------------------------------------------------------------

    @property
    def has_acknowledged(self) -> bool:
        """Whether anything was acknowledged that is not applied."""
        return self._acknowledged_end_offset > self._machine.applied_end_offset

    @property
    def is_fenced(self) -> bool:
        """Whether it has stopped for good."""
        return self._machine.is_fenced

    def fence(self, expected: StateDigest, own: StateDigest) -> None:
        """Its digest is not the quorum's."""
        self._machine.fence(expected, own)

    def scrub_at_start(self) -> None:
        """Always if there is rot, which must be found; else at one start in three: then nothing may be found."""
        view = self._process.machine.view
        if view.has_rotted or (view.life + view.node_id) % 3 == 0:
            self.scrub()

    def scrub(self) -> None:
        """Read all tables; a state machine that finds rot stops, and asks to be rebuilt."""
        reason = self._store.find_rot()
        if reason is not None and not self.is_fenced:
            self._process.environment.marks.hit("rot was found by a scrub")
            self.found_rot(reason)

    def found_rot(self, reason: str) -> None:
        """As a node does it (`kraftlog.process.server`)."""
        machine = self._process.machine
        if not machine.view.has_rotted:
            self._process.environment.report_violation(
                f"node {machine.node_id} found rot where there is none: {reason}"
            )
        self._machine.fence_rotten(reason)
        self._process.shell.step(StateMachineFenced())

    def wait_applied(self, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> None:
        """As a read does."""
        self._machine.wait_applied(end_offset, timeout_ms, on_done)

    # --- its snapshots ------------------------------------------------------------------------------------------------

    def _take_snapshot(self, on_taken: OnTaken) -> _NothingToCancel:
        """Of what the tables hold now, while commits continue (SN-30)."""
        process = self._process
        if process.machine.view.has_diverged and not process.machine.view.has_rotted:
            # The divergence would spread with its snapshots (docs/faults/not-covered.md).
            self._runtime.call_soon(lambda: on_taken(None, StorageError("this run takes none of what has diverged")))
            return _NothingToCancel()
        image = self._store.tables.connection.serialize()
        taken: list[TakenSnapshot] = []

        def done(error: BaseException | None) -> None:
            on_taken(taken[0] if taken else None, error)

        self._runtime.run_aside(lambda: taken.append(take_snapshot(image, process.snapshots)), done)
        return _NothingToCancel()


def _snapshot_config(interval: int) -> SnapshotConfig:
    """A snapshot after so many batches; 0: none, unless one was damaged."""
    if interval == 0:
        return SnapshotConfig(max_bytes_between=NEVER_BYTES, max_interval_ms=0)
    return SnapshotConfig(interval * BATCH_BYTES, SNAPSHOT_INTERVAL_MS)


class _NothingToCancel:
    """A snapshot that is taken to its end."""

    def cancel(self) -> None:
        """It ends by itself."""
