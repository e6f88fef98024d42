"""Applied records are never truncated from the log."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import TruncateFullyAndStartAt, TruncateLog
from raft.core.types import OffsetAndEpoch


class AppliedIsKept(Invariant):
    """Applied records were committed: a process does not truncate them, and starts without them only to recover.

    A recovering replica has lost some applied records. It may truncate what an older copy of its log has in their
    place.
    """

    number = 65
    title = "applied records are not truncated"
    source = "a log that was rolled back under its database served records that were never committed"
    looks_at = frozenset({"started", TruncateLog, TruncateFullyAndStartAt})

    def after_step(self, step: Step) -> None:
        """Check a start, and actions that truncate."""
        node = step.node
        if node.replica is None or node.log is None or node.applied is None or node.replica.is_recovering:
            return
        end_offset = node.applied.end_offset
        for action in step.actions:
            cut = action.end_offset if isinstance(action, TruncateLog) else end_offset
            if isinstance(action, TruncateFullyAndStartAt):
                cut = action.snapshot_id.offset
            if cut < end_offset:
                self.violated(
                    f"node {node.node_id} has applied everything below {end_offset}, but truncates its log to {cut}"
                )
        applied = self.world.committed_at(end_offset - 1) if step.started and end_offset > 0 else None
        if applied is None:
            return
        if not node.log.epochs.holds(OffsetAndEpoch(epoch=applied.epoch, offset=end_offset), node.log.log_end_offset):
            self.violated(
                f"node {node.node_id} has applied everything below {end_offset}, its log ends at"
                f" {node.log.log_end_offset} or has other records there, but it does not recover"
            )
