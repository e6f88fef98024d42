"""A replica lags behind an idle leader that it reaches by a bounded time only."""

from __future__ import annotations

from typing import Final

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import NodeView
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import Send
from raft.core.events import RequestReceived, TimePassed
from raft.core.messages import FetchRequest

FETCH_SAYS_HIGH_WATERMARK: Final = 18
"""The version from which on a Fetch names the replica's high watermark (KIP-1166)."""


class StalenessBounded(Invariant):
    """A replica whose fetch the leader has parked knows the leader's high watermark, as far as its log goes.

    This needs fetches that name the replica's own high watermark (Fetch 18). No leader parks a fetch for longer than it
    asks to wait. So a replica that an idle leader reaches lags by at most the delay of one answer and one fetch; with
    an older version, by the fetch's wait in addition. The replica's high watermark is read from the replica, and only
    for the last fetch that it sent: an abandoned one may be parked for longer. The wait is checked when the leader
    notices that time has passed, which a paused leader does late.
    """

    number = 63
    title = "a parked fetch knows the high watermark"
    source = "KIP-1166; PK-02, PK-07"
    looks_at = frozenset({"is_news", Send, RequestReceived, TimePassed})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._held_since_ms: dict[tuple[int, int, int], dict[int, int]] = {}
        """By leader, its life and its epoch: the fetches it has parked, by request id, and since when by its clock."""
        self._sent: dict[int, tuple[int, FetchRequest, int]] = {}
        """By replica: its life, the last fetch that it sent, and its version."""

    def after_step(self, step: Step) -> None:
        """Record sent and parked fetches, and check a leader."""
        node = step.node
        for action in step.actions:
            if isinstance(action, Send) and isinstance(action.request, FetchRequest) and node.replica is not None:
                self._sent[node.node_id] = (node.life, action.request, node.replica.fetch_version)
        leader = node.replica
        if leader is None or not leader.is_leader:
            return
        place = (node.node_id, node.life, leader.epoch)
        before, now_ms, held = self._held_since_ms.get(place, {}), leader.now_ms, leader.parked_fetches
        since_ms = {fetch.request_id: before.get(fetch.request_id, now_ms) for fetch in held}
        self._held_since_ms[place] = since_ms
        has_looked = any(isinstance(event, TimePassed) for event in step.events)
        high_watermark = leader.high_watermark_of_epoch
        for fetch in held:
            waited_ms = now_ms - since_ms[fetch.request_id]
            if has_looked and waited_ms > fetch.request.max_wait_ms:
                self.violated(f"node {node.node_id} has parked {fetch.request} for {waited_ms} ms")
            self._check_sender(node, high_watermark, fetch.request)

    def _check_sender(self, leader: NodeView, high_watermark: Offset, request: FetchRequest) -> None:
        """Check the sender's high watermark. The leader's counts once it is known in its own epoch (RF-42)."""
        sender = None if request.replica_key is None else self.world.nodes.get(request.replica_key.node_id)
        if sender is None or sender.replica is None or leader.replica is None:
            return
        life, last_sent, version = self._sent.get(sender.node_id, (0, None, 0))
        if (
            (life, last_sent) == (sender.life, request)
            and version >= FETCH_SAYS_HIGH_WATERMARK
            and sender.replica.leader_and_epoch == leader.replica.leader_and_epoch
            and sender.replica.high_watermark < min(high_watermark, request.fetch_offset)
        ):
            self.violated(
                f"node {leader.node_id} has parked the fetch of node {sender.node_id}, whose high watermark is"
                f" {sender.replica.high_watermark} while the leader's is {high_watermark}: {request}"
            )
