"""Committed records are on a majority of disks."""

from __future__ import annotations

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import NodeView
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step


class CommittedOnQuorum(Invariant):
    """When a leader moves the high watermark, a majority of the voters has synced everything below it.

    A voter whose disk has lost data since it acknowledged counts as having had it. Only leaders are checked, for
    records of their own epoch; a follower repeats what its leader sent.
    """

    number = 6
    title = "committed records are on a majority of disks"
    source = "openraft CommittedOnQuorum, Kafka's MajorityReachedHighWatermark"
    looks_at = frozenset({"is_news"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._checked: dict[int, tuple[int, Offset]] = {}

    def after_step(self, step: Step) -> None:
        """Check a leader's new high watermark."""
        node = step.node
        if node.replica is None or not node.replica.is_leader or node.is_behind:
            return
        high_watermark = node.replica.high_watermark
        life, judged = self._checked.get(node.node_id, (node.life, Offset(-1)))
        if life == node.life and high_watermark <= judged:
            return
        self._checked[node.node_id] = (node.life, high_watermark)
        if high_watermark <= 0 or (life != node.life and high_watermark <= judged):
            return
        if node.has_lost_data and self.world.committed_at(high_watermark - 1) is None:
            return  # the leader cannot read what it commits from its damaged disk, and no node has reported it
        having = [
            voter_id for voter_id in self.world.voter_ids if self._has(self.world.nodes[voter_id], high_watermark)
        ]
        if len(having) < self.world.majority:
            self.violated(
                f"node {node.node_id} knows {high_watermark} as committed, but only the disks of {having} hold all"
                " below"
            )

    def _has(self, voter: NodeView, high_watermark: Offset) -> bool:
        if voter.has_lost_data:
            return True
        last = self.world.committed_at(high_watermark - 1)
        return last is not None and voter.durable_log.holds(high_watermark - 1, last.epoch)
