"""Each voter votes at most once per epoch."""

from __future__ import annotations

from kraftbase.types import Epoch
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import NodeView
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.messages import VoteRequest, VoteResponse
from raft.core.types import ReplicaKey


class OneVote(Invariant):
    """No voter votes for two candidates in one epoch, in messages or on disk; its vote is durable before it is sent.

    A candidate is a node id and a directory id. A voter whose disk was wiped is another voter with the new directory
    id. A node that was killed during the step is checked as well: its vote was on disk before it was sent.
    """

    number = 2
    title = "one vote per epoch"
    source = "Raft, 5.2; openraft MonotonicVote"
    looks_at = frozenset({"disk_changed", "replies"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._votes: dict[tuple[ReplicaKey, Epoch], ReplicaKey] = {}

    def after_step(self, step: Step) -> None:
        """Check the vote on disk and the votes that were sent."""
        node = step.node
        found = node.durable_election
        if step.disk_changed and found is not None and found.voted_key is not None:
            self._note(node, found.epoch, found.voted_key, "remembers")
        for request, response in step.replies:
            if not isinstance(response, VoteResponse) or not isinstance(request, VoteRequest):
                continue
            if response.vote_granted and not response.pre_vote:
                self._note(node, request.replica_epoch, request.replica_key, "gives")
                self._check_remembered(node, request)

    def _note(self, node: NodeView, epoch: Epoch, candidate: ReplicaKey, does: str) -> None:
        before = self._votes.setdefault((node.key, epoch), candidate)
        if before != candidate:
            self.violated(f"node {node.node_id} {does} a vote for {candidate} in epoch {epoch}, after one for {before}")

    def _check_remembered(self, node: NodeView, request: VoteRequest) -> None:
        found = node.durable_election
        is_later = found is not None and found.epoch > request.replica_epoch
        if not is_later and (
            found is None or found.epoch != request.replica_epoch or found.voted_key != request.replica_key
        ):
            self.violated(
                f"node {node.node_id} gives {request.replica_key} its vote in epoch {request.replica_epoch},"
                f" but its disk has {found}"
            )
