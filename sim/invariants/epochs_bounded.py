"""Who reaches nobody opens no epochs."""

from __future__ import annotations

from typing import Final

from raft.core.states import Role
from sim.invariants.invariant import Invariant
from sim.observation import NodeView, Observed, Step

QUIET_US: Final = 60_000_000
"""After so long without a word from a majority every candidacy that began with one has ended, slow clocks included."""


class EpochsBounded(Invariant):
    """A voter that has been cut off from every majority for a minute is no candidate (KIP-996).

    Cut off: no message from it arrives at so many others, or none of theirs at it, that it cannot win a pre-vote. What
    was on its way when the link was cut has arrived long since. A clogged link is not a cut one.
    """

    number = 13
    title = "who reaches nobody opens no epochs"
    source = "KIP-996"

    def after_step(self, step: Step) -> None:
        """Look at a candidate."""
        node = step.node
        if node.replica is None or node.replica.role is not Role.CANDIDATE:
            return
        if any(label in step.label for label in ("start", "timer")) and self._is_cut_off(node, step.now_us):
            self.violated(f"node {node.node_id} is cut off from a majority and a candidate")

    def _is_cut_off(self, node: NodeView, now_us: int) -> bool:
        world: Observed = self.world
        reached = 1
        for other in world.voter_ids:
            if other == node.node_id:
                continue
            since = [world.cut_since_us.get(link) for link in ((node.node_id, other), (other, node.node_id))]
            reached += not any(cut_us is not None and now_us - cut_us > QUIET_US for cut_us in since)
        return reached < world.majority
