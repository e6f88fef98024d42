"""A log begins where everything before it is in a snapshot."""

from __future__ import annotations

from sim.invariants.invariant import Invariant
from sim.observation import Step


class LogStart(Invariant):
    """Without snapshots a log begins at offset 0, in memory and on the disk. No false positives."""

    number = 17
    title = "a log begins where a snapshot ends"
    source = "Kafka's simulation test, SnapshotAtLogStart; KAFKA-14238"

    def after_step(self, step: Step) -> None:
        """Look at the log's start."""
        node = step.node
        if node.log is not None and node.log.log_start_offset != 0:
            self.violated(f"the log of node {node.node_id} begins at {node.log.log_start_offset} without a snapshot")
        batches = node.durable_log.batches
        if step.disk_changed and batches and batches[0].base_offset != 0:
            self.violated(f"the disk of node {node.node_id} begins at {batches[0].base_offset} without a snapshot")
