"""The bytes on a disk decode to the batches that were written."""

from __future__ import annotations

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.step import Step
from raft.storage.batch import decode_batches


class PairRule(Invariant):
    """New batches on a disk decode to themselves and equal the batches in the node's memory.

    A node that was killed in the step has no memory to compare with. Only batches below the flushed end offset are
    compared: above it the disk may hold batches that memory has truncated since.
    """

    number = 23
    title = "the disk holds what was written"
    source = "TigerBeetle, TIGER_STYLE"
    looks_at = frozenset({"disk_changed"})

    def after_step(self, step: Step) -> None:
        """Decode and compare the new batches."""
        node = step.node
        log = node.durable_log
        for batch in log.batches[log.first_changed :]:
            if decode_batches(batch.data) != (batch,):
                self.violated(f"the batch at offset {batch.base_offset} on the disk of node {node.node_id} is damaged")
            if node.log is None or node.has_lost_data or batch.end_offset > node.log.flushed_end_offset:
                continue
            if batch.base_offset < node.log.log_start_offset:
                continue  # below the log start: only its segment file still exists
            in_memory = node.log.read_batches(batch.base_offset, 1, Offset(batch.end_offset))
            if in_memory != (batch,):
                self.violated(
                    f"the disk of node {node.node_id} holds another batch at offset {batch.base_offset} than its memory"
                )
