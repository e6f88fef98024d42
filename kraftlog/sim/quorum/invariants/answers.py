"""The answers of a node's admin service, and the deltas of its publishers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kraftbase.ids import id_to_bytes
from kraftbase.types import Offset
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_SECOND
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.service import BEGINNING, Answered, Asked
from kraftlog.sim.quorum.observation.step import Step

LATE_US: Final = 10 * MICROSECONDS_PER_SECOND
"""An operation without an answer this long after its deadline never gets one. Clocks drift, and processes pause."""


@dataclass(slots=True)
class _Life:
    """The operations and reads that one process received and answered."""

    life: int
    open: dict[int, tuple[Asked, Offset]] = field(default_factory=dict)
    """By number: each with the end offset that the process had acknowledged when it arrived."""
    acknowledged_end_offset: Offset = BEGINNING


class ServiceAnswers(Invariant):
    """A process answers each operation and each read once, in time and truthfully.

    It acknowledges only what is committed. A read reflects what was acknowledged here before it arrived, and the offset
    that it asked for. A fenced state machine answers no read. Runs in which faults may destroy a majority's data are
    left out.
    """

    number = 69
    title = "operations and reads are answered as promised"
    source = "(own); CT-10, CT-11, etcd #14890"
    looks_at = frozenset({"asked", "answers"})
    is_about_brokers = True

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._lives: dict[int, _Life] = {}

    def after_step(self, step: Step) -> None:
        """Follow operations, reads and answers."""
        node = step.node
        known = self._lives.get(node.node_id)
        if known is None or known.life != node.life:
            known = self._lives[node.node_id] = _Life(node.life)
        for call in step.asked:
            known.open[call.number] = (call, known.acknowledged_end_offset)
        for answered in step.answers:
            self._check(node.node_id, known, answered)

    def _check(self, node_id: int, known: _Life, answered: Answered) -> None:
        if answered.number not in known.open:
            self.violated(f"node {node_id} answers twice, or without a request: {answered}")
        call, acknowledged_before = known.open.pop(answered.number)
        claimed, committed = answered.acknowledged_end_offset, self.world.committed_end_offset
        if claimed > committed and not self.world.faults_may_lose_quorum:
            self.violated(f"node {node_id} acknowledges up to {claimed}, but the committed log ends at {committed}")
        known.acknowledged_end_offset = max(known.acknowledged_end_offset, claimed)
        if answered.applied_end_offset is None:
            return
        if answered.is_fenced:
            self.violated(f"the state machine of node {node_id} is fenced, but answers a read: {answered}")
        needed = max(call.min_applied_end_offset, acknowledged_before)
        if answered.applied_end_offset < needed:
            self.violated(
                f"node {node_id} answers a read at {answered.applied_end_offset}, but had to wait for"
                f" {needed}: {call}, acknowledged before {acknowledged_before}"
            )

    def at_end(self) -> None:
        """Check that no operation or read waits forever."""
        for node_id, known in self._lives.items():
            node = self.world.nodes[node_id]
            if node.replica is None or node.life != known.life or node.is_paused:
                continue
            for call, _ in known.open.values():
                if call.deadline_us + LATE_US < self.world.now_us:
                    self.violated(f"node {node_id} has not answered {call} at {self.world.now_us}")


class WatchersSeeTheLog(Invariant):
    """A publisher that follows the deltas knows the topics that the tables have, and the changes come in order."""

    number = 70
    title = "publishers see what the tables hold"
    source = "CT-64"
    looks_at = frozenset({"deliveries"})
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Compare the publisher's topics with the tables."""
        node = step.node
        if node.watched is None or node.tables is None or node.has_diverged:
            return
        if node.watched.is_out_of_order:
            self.violated(f"the publisher of node {node.node_id} received a change to a topic that it does not know")
        if node.applied is None or node.watched.end_offset > node.applied.end_offset:
            self.violated(f"the publisher of node {node.node_id} is at {node.watched}, the tables at {node.applied}")
        topics = node.tables.execute("SELECT topic_id, name FROM topics").fetchall()
        found = {id_to_bytes(topic_id): name for topic_id, name in topics}
        if found != node.watched.topics:
            self.violated(f"the publisher of node {node.node_id} knows {node.watched}, the tables have {found}")
