"""A voter that lost durable data stays out until it has it back."""

from __future__ import annotations

from raft.core.actions import Send
from raft.core.messages import FetchRequest, VoteResponse
from raft.core.states import Role
from sim.invariants.invariant import Invariant
from sim.observation import Step


class RecoveringStaysOut(Invariant):
    """A recovering replica grants no vote and no pre-vote, asks for none, and says in its fetches that it recovers.

    The step in which it has everything back may already do all of that: it is judged by what it is after the step.
    """

    number = 25
    title = "a recovering voter stays out"
    source = "protocol-aware recovery (FAST'18); TigerBeetle recovering_head"

    def after_step(self, step: Step) -> None:
        """Look at what a recovering replica is and says."""
        replica = step.node.replica
        if replica is None or not replica.is_recovering:
            return
        node_id = step.node.node_id
        if replica.role in (Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER):
            self.violated(f"node {node_id} recovers from damage and is {replica.role.value}")
        for _, response in step.replies:
            if isinstance(response, VoteResponse) and response.vote_granted:
                self.violated(f"node {node_id} recovers from damage and grants a vote")
        for action in step.actions:
            if isinstance(action, Send) and isinstance(action.request, FetchRequest) and not action.request.recovering:
                self.violated(f"node {node_id} recovers from damage, and its fetch does not say so")
