"""The high watermark never goes back."""

from __future__ import annotations

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step


class MonotonicHighWatermark(Invariant):
    """A process's high watermark never goes back and is never above the end of its log.

    A new process knows no more than its newest snapshot and its log start; a sole voter knows everything in its log.
    There are no false positives.
    """

    number = 15
    title = "the high watermark never goes back"
    source = "Kafka's simulation test, openraft"
    looks_at = frozenset({"is_news", "started"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._known: dict[int, tuple[int, Offset]] = {}

    def after_step(self, step: Step) -> None:
        """Compare with the previous high watermark and with the end of the log."""
        node = step.node
        if node.replica is None or node.log is None:
            return
        high_watermark = node.replica.high_watermark
        life, before = self._known.get(node.node_id, (0, Offset(-1)))
        if life != node.life:
            latest = node.replica.latest_snapshot_id
            known = max(node.log.log_start_offset, -1 if latest is None else latest.offset) or -1
            if step.started and high_watermark > known and len(self.world.voter_ids) > 1:
                self.violated(f"node {node.node_id} has just started, but reports {high_watermark} as committed")
            before = Offset(-1)
        if high_watermark < before:
            self.violated(f"the high watermark of node {node.node_id} went back from {before} to {high_watermark}")
        if high_watermark > node.log.log_end_offset and not node.is_behind:
            self.violated(
                f"node {node.node_id} knows {high_watermark} as committed, but its log ends at"
                f" {node.log.log_end_offset}"
            )
        self._known[node.node_id] = (node.life, high_watermark)
