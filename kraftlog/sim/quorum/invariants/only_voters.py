"""Only voters open epochs, get votes and are followed."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import NodeView
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import PersistElectionState, Send
from raft.core.election_state import ElectionState
from raft.core.states import Role


class OnlyVotersCount(Invariant):
    """Voters open epochs one after the other; only voters get votes and are followed; requests go to known addresses.

    A voter opens an epoch as a candidate, or after it resigned from the previous one. The replica's configuration names
    the voters and their addresses. There are no false positives: a process starts in an epoch that it was in before.
    """

    number = 64
    title = "only voters count"
    source = "our own; RF-15, RF-17, RF-70 read strictly"
    looks_at = frozenset({"is_news", PersistElectionState, Send})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._highest = 0
        """The highest epoch of any node so far."""
        self._roles: dict[int, Role] = {}

    def after_step(self, step: Step) -> None:
        """Check the epoch, the state to persist, and the destinations of requests."""
        node = step.node
        if node.replica is None:
            return
        self._check_epoch(node, node.replica.epoch, node.replica.role)
        self._roles[node.node_id] = node.replica.role
        for action in step.actions:
            if isinstance(action, PersistElectionState):
                self._check_remembered(node, action.state)
            elif isinstance(action, Send):
                self._check_destination(node, action)

    def _check_epoch(self, node: NodeView, epoch: int, role: Role) -> None:
        if epoch <= self._highest:
            return
        opens = role in (Role.CANDIDATE, Role.LEADER) or self._roles.get(node.node_id) is Role.RESIGNED
        if not (node.is_voter and opens and epoch == self._highest + 1):
            self.violated(
                f"node {node.node_id} is in epoch {epoch} as {role}, opened by no voter; highest: {self._highest}"
            )
        self._highest = epoch

    def _check_remembered(self, node: NodeView, state: ElectionState) -> None:
        if node.replica is None:
            return
        voters = node.replica.voters
        if state.voted_key is not None and not voters.is_voter(state.voted_key):
            self.violated(f"node {node.node_id} votes for {state.voted_key} in epoch {state.epoch}, which is no voter")
        if state.leader_id is not None and voters.get(state.leader_id) is None:
            self.violated(f"node {node.node_id} follows {state.leader_id} in epoch {state.epoch}, which is no voter")

    def _check_destination(self, node: NodeView, send: Send) -> None:
        if node.replica is None:
            return
        replica = node.replica
        is_known = any(voter.endpoint == send.destination for voter in replica.voters.voters())
        if not is_known and send.destination not in replica.bootstrap_endpoints:
            self.violated(f"node {node.node_id} sends to {send.destination}, which it is not configured with")
