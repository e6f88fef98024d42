"""A leader has every committed record."""

from __future__ import annotations

from kraftbase.types import Epoch
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import batches_of
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step


class LeaderCompleteness(Invariant):
    """The leader of the highest epoch holds every committed record.

    Leaders of older epochs that do not know of a newer one are left out, and so are runs that destroy more than a
    minority may lose.
    """

    number = 4
    title = "a leader has every committed record"
    source = "Raft, 5.4"
    looks_at = frozenset({"is_news"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._checked: Epoch = Epoch(0)

    def after_step(self, step: Step) -> None:
        """Check each new leader once; afterwards it only appends."""
        replica, log = step.node.replica, step.node.log
        if replica is None or log is None or not replica.is_leader or step.node.is_behind:
            return
        epoch = replica.epoch
        if epoch <= self._checked:
            return
        self._checked = epoch
        if self.world.faults_may_lose_quorum:
            return
        batches = batches_of(step.node, log.log_start_offset)
        if batches is None:
            return  # damage that it has not noticed yet; when it does, it stops
        held = {batch.base_offset: batch.epoch for batch in batches}
        for batch in self.world.committed:
            if batch.end_offset <= log.log_start_offset:
                continue  # in a snapshot, whose end is committed (17)
            if held.get(batch.base_offset) != batch.epoch:
                self.violated(
                    f"node {step.node.node_id} leads epoch {epoch} and lacks the committed batch at offset"
                    f" {batch.base_offset} of epoch {batch.epoch}"
                )
