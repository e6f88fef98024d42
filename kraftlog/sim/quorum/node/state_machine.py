"""The production state machine of one process, its subscribers and its snapshots."""

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
"""The approximate size of a batch's body. Snapshots are due after a number of bytes."""

NEVER_BYTES: Final = 1 << 40

SNAPSHOT_INTERVAL_MS: Final = 60_000
"""A new snapshot is due when the last one is this old."""


class StateMachine:
    """The `MetadataMachine` of a process, wrapped to record what it does.

    It is also the controller's port to the machine.
    """

    name: Final = STATE_MACHINE
    can_load_snapshots: Final = True

    def __init__(self, process: SteppedProcess, store: SimulatedStore) -> None:
        self._process = process
        self._store = store
        runtime = SimulatedRuntime(process)  # its worker is not the shell's
        self._machine = MetadataMachine(store, runtime)
        self._acknowledged_end_offset = Offset(0)
        store.is_acknowledged = lambda: self.has_acknowledged
        config = _snapshot_config(process.host.parameters.snapshot_interval)
        self.generator = SnapshotGenerator(store, self._take_snapshot, config, runtime)
        self.generator.tell(lambda: process.shell.snapshot_taken())
        self._runtime = runtime
        self._machine.subscribe(self.generator)
        self._machine.set_state_digest_callback(lambda digest: process.shell.step(StateDigestReported(digest)))
        self._machine.set_corruption_callback(self.corruption_found)
        self.generator.set_corruption_callback(self.corruption_found)

    # --- the listener -------------------------------------------------------------------------------------------------

    def handle_commit(self, batches: tuple[Batch, ...], on_done: OnDone) -> None:
        """Apply the batches."""
        self._machine.handle_commit(batches, on_done)

    def handle_load_snapshot(self, snapshot: SnapshotReader, on_done: OnDone) -> None:
        """Load the snapshot."""
        self._machine.handle_load_snapshot(snapshot, on_done)

    def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch, on_done: OnDone) -> None:
        """Record the leader change and pass it on."""
        start_offset = self._process.feed.epoch_start_offset
        self._process.step.deliveries.append(Delivery(leader=leader_and_epoch, epoch_start_offset=start_offset))
        self._machine.handle_leader_change(leader_and_epoch, on_done)

    def begin_shutdown(self, on_done: OnDone) -> None:
        """Begin the machine's shutdown."""
        self._machine.begin_shutdown(on_done)

    def abandon(self) -> None:
        """Stop without finishing the work in progress."""
        self._machine.abandon()

    # --- the controller's port ----------------------------------------------------------------------------------------

    @property
    def applied_end_offset(self) -> Offset:
        """The applied end offset of the machine."""
        return self._machine.applied_end_offset

    @property
    def unavailable_reason(self) -> str | None:
        """The reason why the machine is unavailable; None if it is available."""
        return self._machine.unavailable_reason

    @property
    def has_open_transaction(self) -> bool:
        """Whether the machine has an open metadata transaction."""
        return self._machine.has_open_transaction

    def refuse_if_fenced(self) -> None:
        """Raise the machine's error if it is fenced."""
        self._machine.refuse_if_fenced()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Notify `subscriber` from now on."""
        self._machine.subscribe(subscriber)

    def install_publisher(self, publisher: MetadataPublisher) -> None:
        """Pass the present state and every later change to `publisher`."""
        self._machine.install_publisher(publisher)

    def set_commit_callback(self, on_committed: Callable[[Offset], bool]) -> None:
        """Call `on_committed` with each new committed end offset, and record what it acknowledges."""

        def noted(end_offset: Offset) -> bool:
            has_acknowledged = on_committed(end_offset)
            if has_acknowledged:
                self._process.host.marks.hit("an operation was acknowledged before it was applied")
                self._acknowledged_end_offset = end_offset
            return has_acknowledged

        self._machine.set_commit_callback(noted)

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def has_acknowledged(self) -> bool:
        """Whether an operation was acknowledged whose records are not applied yet."""
        return self._acknowledged_end_offset > self._machine.applied_end_offset

    @property
    def is_fenced(self) -> bool:
        """Whether the machine has stopped for good."""
        return self._machine.is_fenced

    def fence(self, expected: StateDigest, own: StateDigest) -> None:
        """Fence the machine, whose digest differs from the quorum's."""
        self._machine.fence(expected, own)

    def scrub_at_start(self) -> None:
        """Scrub if there is bit rot, which must be found. Also scrub at one start in three, and find nothing."""
        view = self._process.machine.view
        if view.has_bit_rot or (view.life + view.node_id) % 3 == 0:
            self.scrub()

    def scrub(self) -> None:
        """Read all tables. If corruption is found, fence the machine and ask for a rebuild."""
        reason = self._store.find_corruption()
        if reason is not None and not self.is_fenced:
            self._process.host.marks.hit("rot was found by a scrub")
            self.corruption_found(reason)

    def corruption_found(self, reason: str) -> None:
        """Fence the machine because of bit rot, as a node does (`kraftlog.process.server`)."""
        machine = self._process.machine
        if not machine.view.has_bit_rot:
            self._process.host.report_violation(f"node {machine.node_id} found rot where there is none: {reason}")
        self._machine.fence_corrupt(reason)
        self._process.shell.step(StateMachineFenced())

    def wait_applied(self, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> None:
        """Call `on_done` when `end_offset` is applied or the time is over, as for a read."""
        self._machine.wait_applied(end_offset, timeout_ms, on_done)

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def _take_snapshot(self, on_taken: OnTaken) -> _NothingToCancel:
        """Take a snapshot of the tables' present content, while commits continue (SN-30)."""
        process = self._process
        if process.machine.view.has_diverged and not process.machine.view.has_bit_rot:
            # A snapshot would spread the divergence (docs/faults/not-covered.md).
            self._runtime.call_soon(lambda: on_taken(None, StorageError("this run takes none of what has diverged")))
            return _NothingToCancel()
        image = self._store.tables.connection.serialize()
        taken: list[TakenSnapshot] = []

        def done(error: BaseException | None) -> None:
            on_taken(taken[0] if taken else None, error)

        self._runtime.run_aside(lambda: taken.append(take_snapshot(image, process.snapshots)), done)
        return _NothingToCancel()


def _snapshot_config(interval: int) -> SnapshotConfig:
    """Return a config that takes a snapshot after `interval` batches; 0: only in place of a damaged one."""
    if interval == 0:
        return SnapshotConfig(max_bytes_between=NEVER_BYTES, max_interval_ms=0)
    return SnapshotConfig(interval * BATCH_BYTES, SNAPSHOT_INTERVAL_MS)


class _NothingToCancel:
    """The handle of a snapshot that cannot be cancelled."""

    def cancel(self) -> None:
        """Do nothing: the snapshot is taken to its end."""
