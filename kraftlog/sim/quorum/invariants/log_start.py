"""A log starts where a snapshot ends, and its start waits for its readers."""

from __future__ import annotations

from typing import Final

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import TruncateFullyAndStartAt
from raft.core.states import Role
from raft.core.types import OffsetAndEpoch
from snapshot.log_start_policy import LogStartPolicy


class LogStart(Invariant):
    """A log on a disk starts at 0, or where a snapshot on that disk ends, in the epoch of the committed record before.

    That snapshot may be missing while a fault has damaged one of the node's snapshots, or has made its state machine
    differ so that the snapshots must be deleted.
    """

    number = 17
    title = "a log begins where a snapshot ends"
    source = "Kafka's simulation test, SnapshotAtLogStart; KAFKA-14238"
    looks_at = frozenset({"disk_changed"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._checked: dict[int, OffsetAndEpoch] = {}

    def after_step(self, step: Step) -> None:
        """Check the log's start."""
        node, start = step.node, step.node.durable_log.start
        if start.offset == 0:
            return
        if self._checked.get(node.node_id) != start:
            before = self.world.committed_at(start.offset - 1)
            if before is None or before.end_offset != start.offset or before.epoch != start.epoch:
                self.violated(f"the log of node {node.node_id} begins at {start}, the batch before is {before}")
            self._checked[node.node_id] = start
        if node.has_damaged_snapshots or node.has_diverged or node.has_lost_data:
            return
        if start not in node.durable_snapshots.found:
            self.violated(f"the log on the disk of node {node.node_id} begins at {start}, where no snapshot ends")


WALL_CLOCKS_OFF_MS_MAX: Final = 24 * 3_600_000
"""No fault sets a wall clock this far off."""


class LogStartWaits(Invariant):
    """A log start passes no listener of its node and, on the leader, no live replica (KAFKA-14932).

    This does not hold with the policy `eager`, or after the limit on the wait. A follower's log start never passes the
    highest log start of any leader so far. A snapshot that replaces the log waits for no replica. A leader is checked
    by the fetches that it got from its replicas. The limit is measured by the node's own clock and may seem to expire
    early if that has leapt. A process that is not its node's first measures from what is on disk, by wall clocks, which
    may be hours off. A leader may move its log start and resign in one step: it is checked as a leader, although it no
    longer knows its replicas.
    """

    number = 52
    title = "a log start waits for its readers"
    source = "KAFKA-14932; KIP-630"
    looks_at = frozenset({"is_news", "started"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._starts: dict[int, tuple[int, Offset]] = {}
        self._furthest = Offset(0)
        """The highest log start that any leader has had."""
        self._leaders: set[int] = set()
        """The nodes that led at the end of their last step."""

    def after_step(self, step: Step) -> None:
        """Check a log start that has moved."""
        node = step.node
        if node.log is None or node.replica is None:
            return
        start = node.log.log_start_offset
        life, before = self._starts.get(node.node_id, (node.life, Offset(0)))
        self._starts[node.node_id] = (node.life, start)
        is_leader = node.replica.role is Role.LEADER
        has_led = is_leader or (life == node.life and node.node_id in self._leaders)
        (self._leaders.add if is_leader else self._leaders.discard)(node.node_id)
        if has_led:
            self._furthest = max(self._furthest, start)
        is_anew = any(isinstance(action, TruncateFullyAndStartAt) for action in step.actions)
        if life != node.life or step.started or start <= before or is_anew:
            return
        config = self.world.log_start
        if config.policy is LogStartPolicy.EAGER:
            return
        if not has_led and start > self._furthest:
            self.violated(
                f"node {node.node_id} follows with the log start {start}, above every leader's ({self._furthest})"
            )
        may_be_late = self.world.now_us - node.started_at_us >= config.lag_time_max_ms * 100
        if node.life > 1 and config.lag_time_max_ms < WALL_CLOCKS_OFF_MS_MAX:
            may_be_late = True
        if may_be_late or node.has_leapt:
            return
        live_ms = max(config.replica_session_timeout_ms, config.replica_restart_grace_ms)
        behind = [f"listener {name} at {offset}" for name, offset in node.positions if offset < start]
        for progress in node.replica.followers if is_leader else ():
            age_ms = node.now_ms - progress.last_fetch_ms if progress.last_fetch_ms is not None else None
            if age_ms is not None and age_ms < live_ms and progress.next_offset < start:
                behind.append(f"replica {progress.key.node_id} at {progress.next_offset}")
        if behind:
            self.violated(f"the log of node {node.node_id} begins at {start}, past {', '.join(behind)}")
