"""A follower keeps a leader that answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftbase.errors import ErrorCode
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import NodeView
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import Send
from raft.core.events import RequestFailed, ResponseReceived
from raft.core.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from raft.core.replica_view import ReplicaView
from raft.core.states import Role

REFUSED_MS: Final = 100
"""How long connections must be refused without interruption."""


@dataclass(slots=True)
class _Contact:
    """A follower's contact with its leader."""

    life: int
    epoch: int
    answered_ms: int | None = None
    """When the leader last answered one of its fetches, by the follower's clock."""
    refused_since_ms: int | None = None
    """Since when its fetches to the leader have been refused without interruption, each at once."""
    fetch: tuple[int, int] | None = None
    """The fetch to the leader that is in flight: its correlation id, and when it was sent."""
    role: Role = Role.FOLLOWER


class LeaderIsKept(Invariant):
    """A follower abandons an active leader only after a fetch timeout without answer, or 100 ms of refused connections.

    A follower abandons its leader by requesting pre-votes or granting one. The follower decides what counts as an
    answer: an answer that changes nothing may count. There are no other false positives: a leader that has resigned, or
    is in another epoch, no longer leads.
    """

    number = 68
    title = "a follower keeps a leader that answers"
    source = "KIP-996; RF-30"
    looks_at = frozenset({"is_news", "replies", RequestFailed, ResponseReceived, Send})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._contacts: dict[int, _Contact] = {}

    def after_step(self, step: Step) -> None:
        """Record fetches, answers and refusals. Check a follower that requests pre-votes or grants one."""
        node = step.node
        if node.replica is None or not node.is_voter:
            self._contacts.pop(node.node_id, None)
            return
        replica, now_ms, role = node.replica, node.replica.now_ms, node.replica.role
        before = contact = self._contacts.get(node.node_id)
        if contact is None or (contact.life, contact.epoch) != (node.life, replica.epoch):
            contact = self._contacts[node.node_id] = _Contact(node.life, replica.epoch, role=role)
        for event in step.events:
            if isinstance(event, RequestFailed | ResponseReceived):
                self._note_outcome(contact, event, now_ms)
            if isinstance(event, ResponseReceived) and _is_contact(replica, event):
                contact.answered_ms, contact.refused_since_ms = now_ms, None
        if contact is before and contact.role is Role.FOLLOWER and role is Role.PROSPECTIVE:
            self._check(node, contact, "requests pre-votes")
        for request, response in step.replies:
            is_granted = isinstance(response, VoteResponse) and response.pre_vote and response.vote_granted
            if isinstance(request, VoteRequest) and is_granted and contact.role is role is Role.FOLLOWER:
                self._check(node, contact, "grants a pre-vote")
        contact.role = role
        if role is not Role.FOLLOWER:
            contact.answered_ms = contact.refused_since_ms = contact.fetch = None
            return
        for action in step.actions:
            if not isinstance(action, Send) or action.destination != replica.leader_endpoint:
                continue
            if contact.fetch is not None:
                contact.refused_since_ms = None  # the previous fetch was neither answered nor refused
            if isinstance(action.request, FetchRequest | FetchSnapshotRequest):
                contact.fetch = (action.correlation_id, now_ms)

    def _note_outcome(self, contact: _Contact, event: RequestFailed | ResponseReceived, now_ms: int) -> None:
        if contact.fetch is None or event.correlation_id != contact.fetch[0]:
            return
        (_, sent_ms), contact.fetch = contact.fetch, None
        if not isinstance(event, RequestFailed) or not event.connection_refused:
            contact.refused_since_ms = None
        elif contact.refused_since_ms is None or now_ms - sent_ms >= REFUSED_MS:
            contact.refused_since_ms = now_ms

    def _check(self, node: NodeView, contact: _Contact, what: str) -> None:
        if node.replica is None or contact.answered_ms is None:
            return
        now_ms = node.replica.now_ms
        leader_id = node.replica.leader_and_epoch.leader_id
        leader = None if leader_id is None else self.world.nodes[leader_id].replica
        if leader is None or not leader.is_leader or leader.epoch != contact.epoch:
            return
        silent_ms = now_ms - contact.answered_ms
        refused_ms = 0 if contact.refused_since_ms is None else now_ms - contact.refused_since_ms
        if silent_ms < node.replica.config.fetch_timeout_ms and refused_ms < REFUSED_MS:
            self.violated(
                f"node {node.node_id} {what}, although {leader_id} leads epoch {contact.epoch} and answered it"
                f" {silent_ms} ms ago; connections were refused for {refused_ms} ms"
            )


def _is_contact(replica: ReplicaView, event: ResponseReceived) -> bool:
    """Whether the follower counted the response as contact with its leader."""
    if event.response.error is not ErrorCode.NONE:
        return False
    is_fetch = isinstance(event.response, FetchResponse | FetchSnapshotResponse)
    deadline_ms = replica.now_ms + replica.config.fetch_timeout_ms
    return is_fetch and replica.has_fetched and replica.fetch_deadline_ms == deadline_ms
