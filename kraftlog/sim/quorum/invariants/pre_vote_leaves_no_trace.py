"""A pre-vote changes no epoch and no vote."""

from __future__ import annotations

from typing import NamedTuple

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.election_state import ElectionState
from raft.core.events import RequestReceived
from raft.core.messages import VoteRequest
from raft.core.states import Role


class _Before(NamedTuple):
    life: int
    epoch: int
    role: Role
    durable: ElectionState | None


class PreVoteLeavesNoTrace(Invariant):
    """A step whose only event is a pre-vote request leaves the node's epoch and durable vote unchanged.

    A sender in a higher epoch reveals that epoch: the node may enter it, but no higher one. A timer that is due in the
    same step opens the next epoch on a resigned replica and on a sole voter, so those are left out.
    """

    number = 12
    title = "a pre-vote leaves no trace"
    source = "KIP-996"
    looks_at = frozenset({"is_news", "disk_changed"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._before: dict[int, _Before] = {}

    def after_step(self, step: Step) -> None:
        """Compare the epoch and the vote with those before the step."""
        node = step.node
        if node.replica is None:
            return
        epoch = node.replica.epoch
        now = _Before(node.life, epoch, node.replica.role, node.durable_election)
        before = self._before.get(node.node_id)
        self._before[node.node_id] = now
        if before is None or before.life != node.life or len(step.events) != 1:
            return
        if before.role is Role.RESIGNED or len(self.world.voter_ids) == 1:
            return
        event = step.events[0]
        if not isinstance(event, RequestReceived) or not isinstance(event.request, VoteRequest):
            return
        if not event.request.pre_vote:
            return
        if epoch > max(before.epoch, event.request.replica_epoch):
            self.violated(f"node {node.node_id} got a pre-vote request and went from epoch {before.epoch} to {epoch}")
        if _vote_changed(before.durable, now.durable):
            self.violated(f"node {node.node_id} got a pre-vote request and now has {now.durable} on disk")


def _vote_changed(before: ElectionState | None, now: ElectionState | None) -> bool:
    return before is not None and now is not None and before.epoch == now.epoch and before.voted_key != now.voted_key
