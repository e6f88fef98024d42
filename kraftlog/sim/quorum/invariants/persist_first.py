"""An epoch and a candidate's own vote are on disk before they are sent."""

from __future__ import annotations

from typing import Final

from kraftbase.types import Epoch
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import NodeView
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import Action, AppendLeaderChange, PersistElectionState, Reply, Send
from raft.core.election_state import ElectionState
from raft.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    VoteRequest,
)

NOTHING: Final = ElectionState(epoch=Epoch(0))


class PersistFirst(Invariant):
    """No action of an epoch precedes the one that persists it; a candidate persists its vote before it requests votes.

    PersistElectionState is a barrier, so only the order of the actions counts, and crashes do not matter. A new process
    begins with what is on its disk after its first step: what that step itself persists is not checked.
    """

    number = 50
    title = "an epoch is durable before it is sent"
    source = "Raft, figure 2; RF-11"
    looks_at = frozenset({"started", PersistElectionState, Send, Reply, AppendLeaderChange})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._ordered: dict[int, tuple[int, ElectionState]] = {}
        """By node: its life, and the last election state that was ordered to be persisted."""

    def after_step(self, step: Step) -> None:
        """Follow the actions."""
        node = step.node
        life, ordered = self._ordered.get(node.node_id, (0, NOTHING))
        if life != node.life:
            ordered = node.durable_election or NOTHING
            self._ordered[node.node_id] = (node.life, ordered)
        if not step.actions:
            return
        for action in step.actions:
            if isinstance(action, PersistElectionState):
                ordered = action.state
            else:
                self._check(node, ordered, action)
        self._ordered[node.node_id] = (node.life, ordered)

    def _check(self, node: NodeView, ordered: ElectionState, action: Action) -> None:
        epoch = _epoch_of(action)
        if epoch > ordered.epoch:
            self.violated(f"node {node.node_id} orders {action} before epoch {epoch}; durable is {ordered}")
        if not isinstance(action, Send) or not isinstance(action.request, VoteRequest) or action.request.pre_vote:
            return
        if ordered.voted_key != action.request.replica_key:
            self.violated(f"node {node.node_id} requests votes in epoch {epoch} without its own vote: {ordered}")


def _epoch_of(action: Action) -> int:
    match action:
        case Send():
            return _epoch_of_request(action.request)
        case Reply():
            return action.response.leader.epoch
        case AppendLeaderChange():
            return action.epoch
        case _:
            return 0


def _epoch_of_request(request: Request) -> int:
    match request:
        case VoteRequest():
            return request.replica_epoch
        case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
            return request.leader_epoch
        case FetchRequest() | FetchSnapshotRequest():
            return request.current_leader_epoch
        case _:
            return 0
