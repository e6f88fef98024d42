"""Who reaches nobody opens no epochs."""

from __future__ import annotations

from typing import Final

from raft.core.states import Role
from sim.invariants.invariant import Invariant
from sim.observation import NodeView, Observed, Step

QUIET_US: Final = 60_000_000
"""After so long every answer that was on its way has arrived."""


class EpochsBounded(Invariant):
    """Time and restarts make no voter the candidate of a new epoch that was cut off from every majority for a minute.

    Cut off: no message from it arrives at so many others, or none of theirs at it, that it cannot win a pre-vote. What
    was on its way when the link was cut has arrived long since. A clogged link is not a cut one. A process that was a
    candidate when it ended is one again in its next life, in the same epoch; one that was paused may read old answers.
    """

    number = 13
    title = "who reaches nobody opens no epochs"
    source = "KIP-996"

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._epochs: dict[int, int] = {}
        """By node: the highest epoch that it has been in."""

    def after_step(self, step: Step) -> None:
        """Look at a candidate of a new epoch."""
        node = step.node
        found = node.durable_election
        in_memory = 0 if node.replica is None else node.replica.leader_and_epoch.epoch
        before = self._epochs.get(node.node_id, 0)
        epoch = self._epochs[node.node_id] = max(before, in_memory, 0 if found is None else found.epoch)
        if epoch == before or node.replica is None or node.replica.role is not Role.CANDIDATE:
            return
        if step.label in ("start", "timer") and self._is_cut_off(node, step.now_us):
            self.violated(f"node {node.node_id} is cut off from a majority and the candidate of epoch {epoch}")

    def _is_cut_off(self, node: NodeView, now_us: int) -> bool:
        world: Observed = self.world
        reached = 1
        for other in world.voter_ids:
            if other == node.node_id:
                continue
            since = [world.cut_since_us.get(link) for link in ((node.node_id, other), (other, node.node_id))]
            reached += not any(cut_us is not None and now_us - cut_us > QUIET_US for cut_us in since)
        return reached < world.majority
