"""A voter that lost durable data stays out of elections until it has recovered the data."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import Send
from raft.core.messages import FetchRequest, VoteRequest, VoteResponse
from raft.core.states import Role


class RecoveringStaysOut(Invariant):
    """A recovering replica grants no vote and no pre-vote, requests none, and its fetches say that it recovers.

    With an empty log in a new directory it may vote for candidates with empty logs, and may request pre-votes. In the
    step in which it completes its recovery it may already do all of these: the state after the step counts.
    """

    number = 25
    title = "a recovering voter stays out"
    source = "protocol-aware recovery (FAST'18); TigerBeetle recovering_head"
    looks_at = frozenset({"is_news", "replies", Send})

    def after_step(self, step: Step) -> None:
        """Check the role and the messages of a recovering replica."""
        replica = step.node.replica
        if replica is None or not replica.is_recovering:
            return
        node_id = step.node.node_id
        if replica.role in (Role.CANDIDATE, Role.LEADER) or (
            replica.role is Role.PROSPECTIVE and not replica.may_found
        ):
            self.violated(f"node {node_id} recovers from damage, but is {replica.role.value}")
        for request, response in step.replies:
            if not isinstance(response, VoteResponse) or not response.vote_granted:
                continue
            is_empty = isinstance(request, VoteRequest) and request.last_offset == 0
            if not (replica.may_found and is_empty):
                self.violated(f"node {node_id} recovers from damage, but grants a vote")
        for action in step.actions:
            if isinstance(action, Send) and isinstance(action.request, FetchRequest) and not action.request.recovering:
                self.violated(f"node {node_id} recovers from damage, but its fetch does not say so")
