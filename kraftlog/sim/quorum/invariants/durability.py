"""Every acknowledged operation is on disk."""

from __future__ import annotations

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step


class Durability(Invariant):
    """Every acknowledged or committed record is on the disk of at least one voter that may count.

    It is checked whenever a disk may have lost something. While no disk has lost data to damage, the record is on a
    majority. Runs that destroy more than a minority may lose are left out.
    """

    number = 8
    title = "acknowledged records are on disk"
    source = "Raft; KIP-966's TLA+, NoCommittedRecordLostGlobally"
    looks_at = frozenset({"is_news", "disk_changed"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._acknowledged = 0
        self._highest = Offset(0)
        self._ends: dict[int, Offset] = {}

    def after_step(self, step: Step) -> None:
        """Check new acknowledgements, and everything when a log became shorter."""
        news = self.world.acknowledged_end_offsets[self._acknowledged :]
        self._acknowledged += len(news)
        has_more = bool(news) and max(news) > self._highest
        self._highest = max([self._highest, *news])
        end_offset = step.node.durable_log.end_offset
        has_less = end_offset < self._ends.get(step.node.node_id, Offset(0))
        self._ends[step.node.node_id] = end_offset
        if has_more or has_less:
            self._check()

    def at_end(self) -> None:
        """Check everything once more."""
        self._check()

    def _check(self) -> None:
        highest = max(self._highest, self.world.committed_end_offset)
        if highest == 0 or self.world.faults_may_lose_quorum:
            return
        last = self.world.committed_at(highest - 1)
        if last is None:
            self.violated(f"offset {highest - 1} was acknowledged, but no node ever knew it as committed")
        voters = [self.world.nodes[voter_id] for voter_id in self.world.voter_ids]
        lost = sum(voter.has_lost_data for voter in voters)
        having = [voter.node_id for voter in voters if voter.durable_log.holds(last.base_offset, last.epoch)]
        if len(having) < max(1, self.world.majority - lost):
            self.violated(
                f"offset {last.base_offset} was acknowledged or committed, but is only on the disks of {having}"
            )
