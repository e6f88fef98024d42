"""The log start, applied, flushed, committed and log end offsets are in order."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.step import Step


class StateOrdering(Invariant):
    """log start <= high watermark <= log end, flushed <= log end, applied <= what is on the disk.

    A new process knows no high watermark and has applied what the previous one applied. A disk that has lost data may
    hold less than is applied until it has recovered the data.
    """

    number = 16
    title = "offsets are in order"
    source = "openraft StateOrdering; etcd, log.go"
    looks_at = frozenset({"is_news"})

    def after_step(self, step: Step) -> None:
        """Compare the offsets."""
        node = step.node
        if node.replica is None or node.log is None or node.is_behind:
            return
        log, high_watermark = node.log, node.replica.high_watermark
        if high_watermark >= 0 and not log.log_start_offset <= high_watermark <= log.log_end_offset:
            self.violated(f"node {node.node_id}: {log.log_start_offset} <= {high_watermark} <= {log.log_end_offset}")
        if log.flushed_end_offset > log.log_end_offset:
            self.violated(f"node {node.node_id}: flushed {log.flushed_end_offset}, log end {log.log_end_offset}")
        if node.applied is None or node.has_lost_data:
            return
        if node.applied.end_offset > node.durable_log.end_offset:
            self.violated(
                f"node {node.node_id} has applied up to {node.applied.end_offset}, but its disk ends at"
                f" {node.durable_log.end_offset}"
            )
