"""Everything below a node's flushed end offset would survive a power cut."""

from __future__ import annotations

from kraftbase.types import Epoch, Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step


class FlushedIsDurable(Invariant):
    """Everything below the flushed end offset in memory is on the disk, in the same batches.

    A disk that has lost data is left out until it has recovered it. Only the last batch is compared: those below it
    were compared when they were the last.
    """

    number = 47
    title = "flushed is durable"
    source = "our own; etcd #14143"
    looks_at = frozenset({"is_news", "disk_changed"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._checked: dict[int, tuple[int, Offset]] = {}
        """By node: its life, and the flushed end offset that was last compared with the present content of its disk."""

    def after_step(self, step: Step) -> None:
        """Compare the flushed end offset with the disk when one of them has changed."""
        node = step.node
        if node.log is None or node.has_lost_data:
            self._checked.pop(node.node_id, None)
            return
        flushed = node.log.flushed_end_offset
        place = (node.life, flushed)
        if not step.disk_changed and self._checked.get(node.node_id) == place:
            return
        self._checked[node.node_id] = place
        if flushed <= node.log.log_start_offset == node.durable_log.start.offset:
            return
        held = node.durable_log.at(flushed - 1)
        if held is None:
            self.violated(
                f"node {node.node_id} has flushed up to {flushed}, but its disk ends at {node.durable_log.end_offset}"
            )
        end_offset = node.log.log_end_offset
        start = node.log.epochs.end_offset_for_epoch(Epoch(held.epoch - 1), end_offset)
        end = node.log.epochs.end_offset_for_epoch(held.epoch, end_offset)
        if end.epoch != held.epoch or not start.offset < flushed <= end.offset:
            self.violated(f"the disk of node {node.node_id} holds another epoch at {flushed - 1} than its memory")
