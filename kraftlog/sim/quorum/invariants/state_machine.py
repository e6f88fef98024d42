"""State machines that have applied the same records are equal."""

from __future__ import annotations

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import STATE_MACHINE, AppliedState
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step


class StateMachineSafety(Invariant):
    """Two state machines with the same applied end offset have the same digest, over all nodes and lives.

    The digest covers the applied records and the tables. A node that a fault made differ is left out: it must be
    fenced.
    """

    number = 26
    title = "state machines agree"
    source = "Raft, 5.4.3; TigerBeetle's storage checker, etcd HashKV"
    looks_at = frozenset({"deliveries", "started"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._digests: dict[Offset, str] = {}

    def after_step(self, step: Step) -> None:
        """Compare the digest with the first one seen at that offset."""
        applied = step.node.applied
        if applied is None or step.node.has_diverged:
            return
        first = self._digests.setdefault(applied.end_offset, applied.digest)
        if first != applied.digest:
            self.violated(
                f"node {step.node.node_id} has applied {applied.end_offset} with {applied.digest}, another node {first}"
            )


class AppliedOnce(Invariant):
    """A state machine's applied records continue exactly where it stopped, even over restarts.

    A new process may start from an earlier commit, because SQLite does not wait for the disk. It is then at an offset
    that was applied before, never above the previous process's offset.
    """

    number = 27
    title = "each record is applied once, in order"
    source = "etcd #13766"
    looks_at = frozenset({"deliveries", "started"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._applied: dict[int, AppliedState] = {}
        self._limits: dict[int, Offset] = {}

    def after_step(self, step: Step) -> None:
        """Follow the deliveries and the applied offset."""
        node = step.node
        if node.applied is None:
            for delivery in step.deliveries:  # killed during the step: it may have applied everything
                if delivery.listener != STATE_MACHINE:
                    continue
                if delivery.snapshot_id is not None:
                    self._limits[node.node_id] = delivery.snapshot_id.offset
                if delivery.batches:
                    self._limits[node.node_id] = delivery.batches[-1].end_offset
            return
        before = self._applied.get(node.node_id)
        self._applied[node.node_id] = node.applied
        if step.started:
            limit = max(
                self._limits.pop(node.node_id, Offset(0)), before.end_offset if before is not None else Offset(0)
            )
            if node.applied.end_offset > limit:
                self.violated(f"node {node.node_id} starts with {node.applied.end_offset} applied, but had {limit}")
            return
        position = Offset(0) if before is None else before.end_offset
        for delivery in step.deliveries:
            if delivery.listener != STATE_MACHINE:
                continue
            if delivery.snapshot_id is not None:
                position = delivery.snapshot_id.offset
            for batch in delivery.batches:
                if batch.base_offset != position:
                    self.violated(
                        f"node {node.node_id} received the batch at {batch.base_offset}, but has applied {position}"
                    )
                position = batch.end_offset
        if node.applied.end_offset != position:
            self.violated(f"node {node.node_id} received everything below {position}, but has applied {node.applied}")


class BitRotIsFound(Invariant):
    """A node whose tables are corrupted applies nothing before they are rebuilt.

    The node must detect the corruption by itself, at the next start at the latest. The fault reports which rows it
    corrupted.
    """

    number = 66
    title = "bit rot is detected and repaired"
    source = "TigerBeetle's grid scrubber"
    looks_at = frozenset({"deliveries"})

    def after_step(self, step: Step) -> None:
        """Check that nothing is applied to corrupted tables."""
        for delivery in step.deliveries:
            is_applied = delivery.listener == STATE_MACHINE and (delivery.batches or delivery.snapshot_id is not None)
            if is_applied and step.node.has_bit_rot:
                self.violated(f"node {step.node.node_id} applies records to corrupted tables")

    def at_end(self) -> None:
        """Check that every running node has intact tables."""
        for node_id, node in self.world.nodes.items():
            if node.has_bit_rot and node.replica is not None:
                self.violated(f"node {node_id} still has corrupted tables")
