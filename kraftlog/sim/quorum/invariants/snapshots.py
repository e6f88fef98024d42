"""Snapshots are complete, and equal on all nodes."""

from __future__ import annotations

from hashlib import sha256

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.durable_state import snapshot_fault
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.types import OffsetAndEpoch


class SnapshotsAreEqual(Invariant):
    """Two snapshots with the same id have the same bytes, on all nodes and over all lives.

    Nodes whose state machine a fault made differ, or whose snapshots a fault damaged, are left out.
    """

    number = 29
    title = "a snapshot's bytes follow from its id"
    source = "TigerBeetle, byte-identical checkpoints"
    looks_at = frozenset({"disk_changed"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._digests: dict[OffsetAndEpoch, bytes] = {}

    def after_step(self, step: Step) -> None:
        """Compare the new snapshots."""
        node = step.node
        if node.has_diverged or node.has_damaged_snapshots:
            return
        for snapshot_id in node.durable_snapshots.new:
            digest = sha256(node.durable_snapshots.found[snapshot_id]).digest()
            if self._digests.setdefault(snapshot_id, digest) != digest:
                self.violated(f"node {node.node_id} has another snapshot {snapshot_id} than was seen before")


class SnapshotsAreWhole(Invariant):
    """A file with a snapshot's name on a disk is complete, and contains only committed records.

    A fault may damage it later: such a node is left out until it has no damaged snapshot left.
    """

    number = 30
    title = "every snapshot file is complete"
    source = "Kafka, Snapshots.java; KAFKA-15312"
    looks_at = frozenset({"disk_changed"})

    def after_step(self, step: Step) -> None:
        """Read the new snapshots."""
        node = step.node
        if node.has_damaged_snapshots:
            return
        for snapshot_id in node.durable_snapshots.new:
            fault = snapshot_fault(snapshot_id, node.durable_snapshots.found[snapshot_id])
            if fault is not None:
                self.violated(f"node {node.node_id} has a damaged snapshot: {fault}")
            last = self.world.committed_at(snapshot_id.offset - 1)
            if last is None or last.end_offset != snapshot_id.offset or last.epoch != snapshot_id.epoch:
                self.violated(
                    f"node {node.node_id} has the snapshot {snapshot_id}, but the last committed batch is {last}"
                )
