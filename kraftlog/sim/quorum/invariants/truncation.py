"""Logs are never truncated below committed records."""

from __future__ import annotations

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import TruncateFullyAndStartAt, TruncateLog
from raft.core.states import Role
from raft.core.types import ReplicaKey


class CommittedIsKept(Invariant):
    """A disk that holds a committed batch, and everything below it, holds it forever.

    A snapshot before the log's start holds its records, too. Uncommitted tails may be truncated anywhere, so only the
    part of the disk's log that agrees with the committed log counts. Data lost to damage was not truncated: a disk that
    has lost data is measured again once it has recovered it.
    """

    number = 18
    title = "committed records are not truncated"
    source = "Kafka; NuRaft #185"

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._kept: dict[ReplicaKey, Offset] = {}
        self._compared: dict[ReplicaKey, Offset] = {}
        """The end of the committed log when a disk's log was last compared with it."""

    def after_step(self, step: Step) -> None:
        """Check that everything held before is still held, and how far it reaches now."""
        node, committed_end_offset = step.node, self.world.committed_end_offset
        if not step.disk_changed and self._compared.get(node.key) == committed_end_offset and not node.has_lost_data:
            return
        log, kept = node.durable_log, self._kept.get(node.key, Offset(0))
        if node.has_lost_data:
            self._kept[node.key] = min(kept, log.end_offset)
            self._compared.pop(node.key, None)
            return
        self._compared[node.key] = committed_end_offset
        if step.disk_changed and kept > 0:
            committed = self.world.committed_at(kept - 1)
            if committed is None or not log.holds(kept - 1, committed.epoch):
                self.violated(
                    f"the disk of node {node.node_id} held everything committed below {kept}, now it ends at"
                    f" {log.end_offset}"
                )
        kept = max(kept, log.start.offset)
        while kept < log.end_offset:
            held, committed = log.at(kept), self.world.committed_at(kept)
            if held is None or held != committed:
                break
            kept = held.end_offset
        self._kept[node.key] = kept


class LeaderNeverCuts(Invariant):
    """A leader truncates nothing and does not replace its log by a snapshot (SN-15). There are no false positives."""

    number = 19
    title = "a leader does not truncate its log"
    source = "Raft, leader append-only; Kafka LeaderNeverLoadSnapshot"
    looks_at = frozenset({TruncateLog, TruncateFullyAndStartAt})

    def after_step(self, step: Step) -> None:
        """Check a leader's actions."""
        node = step.node
        if node.replica is None or node.replica.role is not Role.LEADER:
            return
        if any(isinstance(action, TruncateLog | TruncateFullyAndStartAt) for action in step.actions):
            self.violated(f"node {node.node_id} leads, and truncates its log or loads a snapshot")
