"""What a node calls flushed would survive a power cut."""

from __future__ import annotations

from sim.invariants.invariant import Invariant
from sim.observation import Step


class FlushedIsDurable(Invariant):
    """Everything below the flushed end offset in memory is on the disk, the same batches.

    A disk that has lost data is left out until it has it back. The last batch stands for those below it: they were
    compared when they were the last.
    """

    number = 47
    title = "flushed is durable"
    source = "our own; etcd #14143"

    def after_step(self, step: Step) -> None:
        """Compare the flushed end with the disk's."""
        node = step.node
        if node.log is None or node.has_lost_data:
            return
        flushed = node.log.flushed_end_offset
        if flushed == 0:
            return
        held = node.durable_log.at(flushed - 1)
        if held is None:
            self.violated(
                f"node {node.node_id} calls {flushed} flushed, and its disk holds {node.durable_log.end_offset}"
            )
        in_memory = node.log.epochs.end_offset_for_epoch(held.epoch, node.log.log_end_offset)
        if in_memory.epoch != held.epoch or in_memory.offset < flushed:
            self.violated(f"the disk of node {node.node_id} holds another epoch at {flushed - 1} than its memory")
