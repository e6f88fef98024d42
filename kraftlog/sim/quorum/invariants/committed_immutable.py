"""Committed records never change."""

from __future__ import annotations

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import NodeView, batches_of
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step


class CommittedImmutable(Invariant):
    """Once any node knew a batch as committed at an offset, no node ever has another one committed there.

    The invariant keeps the world's committed log, as the first node with more records reports it. There are no false
    positives.
    """

    number = 5
    title = "committed records never change"
    source = "openraft oracle"
    looks_at = frozenset({"is_news", "deliveries"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._known: dict[int, tuple[int, Offset]] = {}
        """By node: its life, and the high watermark up to which it was compared in that life."""

    def after_step(self, step: Step) -> None:
        """Compare the batches that the node newly knows as committed."""
        node = step.node
        if node.replica is None or node.log is None or node.is_behind:
            return
        high_watermark = node.replica.high_watermark
        life, known = self._known.get(node.node_id, (node.life, Offset(0)))
        if life != node.life:
            known = Offset(0)
        known = max(known, node.log.log_start_offset)
        if high_watermark <= known:
            return
        if self._compare(node, known, high_watermark):
            self._known[node.node_id] = (node.life, high_watermark)
        else:
            self._take_delivered(step, high_watermark)

    def _take_delivered(self, step: Step, high_watermark: Offset) -> None:
        """Use the batches that the listener received: damage hides older offsets of the log."""
        for delivery in step.deliveries:
            for batch in delivery.batches:
                if batch.base_offset == self.world.committed_end_offset and batch.end_offset <= high_watermark:
                    self.world.committed.append(batch)

    def _compare(self, node: NodeView, start: Offset, end: Offset) -> bool:
        """Compare from `start` to `end`. Return False if damage prevents reading."""
        world = self.world
        batches = batches_of(node, start, end)
        if batches is None:
            return False
        if not batches or batches[-1].end_offset != end:
            self.violated(f"node {node.node_id} knows {end} as committed, but its log does not hold everything below")
        for batch in batches:
            committed = world.committed_at(batch.base_offset)
            if committed is None:
                world.committed.append(batch)
            elif committed != batch:
                self.violated(
                    f"node {node.node_id} has a batch of epoch {batch.epoch} at offset {batch.base_offset} as"
                    f" committed, where one of epoch {committed.epoch} was committed earlier"
                )
        return True
