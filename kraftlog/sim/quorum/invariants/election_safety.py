"""Each epoch has at most one leader."""

from __future__ import annotations

from kraftbase.types import Epoch, NodeId
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step


class ElectionSafety(Invariant):
    """Each epoch has at most one leader, over all nodes and all time, in memory and on disk.

    A node's belief about another leader counts, because it comes from a message. There are no false positives.
    """

    number = 1
    title = "one leader per epoch"
    source = "Raft, 5.2; Kafka's simulation test, SingleLeader"
    looks_at = frozenset({"is_news", "disk_changed"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._leaders: dict[Epoch, NodeId] = {}

    def after_step(self, step: Step) -> None:
        """Record the leader that the node knows, and the leader in its durable quorum state."""
        node = step.node
        if node.replica is not None:
            leader_id, epoch = node.replica.leader_and_epoch
            if leader_id is not None and self._leaders.setdefault(epoch, leader_id) != leader_id:
                self.violated(
                    f"epoch {epoch} is led by {self._leaders[epoch]}, node {node.node_id} reports {leader_id}"
                )
        if step.disk_changed and node.durable_election is not None:
            found = node.durable_election
            if (
                found.leader_id is not None
                and self._leaders.setdefault(found.epoch, found.leader_id) != found.leader_id
            ):
                self.violated(
                    f"epoch {found.epoch} is led by {self._leaders[found.epoch]}, the disk of node {node.node_id} says"
                    f" {found.leader_id}"
                )
