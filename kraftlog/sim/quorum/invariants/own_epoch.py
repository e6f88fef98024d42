"""A leader commits records of older epochs only together with one of its own."""

from __future__ import annotations

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step


class OwnEpoch(Invariant):
    """A leader moves its high watermark only past a record of its own epoch.

    It may keep the high watermark that it had as a follower when it was elected. There are no false positives.
    """

    number = 7
    title = "older epochs are committed with the leader's own"
    source = "Raft, 5.4.2; logcabin #44"
    looks_at = frozenset({"is_news"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._known: dict[int, tuple[int, int, Offset]] = {}

    def after_step(self, step: Step) -> None:
        """Check the epoch of the last record below a leader's new high watermark."""
        node = step.node
        if node.replica is None:
            return
        epoch, high_watermark = node.replica.epoch, node.replica.high_watermark
        known = self._known.get(node.node_id)
        if known == (node.life, epoch, high_watermark):
            return
        self._known[node.node_id] = (node.life, epoch, high_watermark)
        if not node.replica.is_leader or known is None or known[:2] != (node.life, epoch):
            return
        start_offset = node.replica.epoch_start_offset
        if start_offset is not None and high_watermark <= start_offset:
            self.violated(
                f"node {node.node_id} moved the high watermark to {high_watermark}, but its epoch {epoch} starts at"
                f" {start_offset}"
            )
