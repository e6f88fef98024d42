"""A leader without followers resigns."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.events import RequestReceived, TimePassed
from raft.core.messages import FetchRequest, FetchSnapshotRequest

PATIENCE: Final = 2
"""The number of check-quorum timeouts for which a leader may stay: the one in which its contact ended, and one more."""


class CheckQuorum(Invariant):
    """A node that got fetches from less than a majority for two check-quorum timeouts of its own clock no longer leads.

    It is checked when it acts: a paused leader still believes that it leads, and may notice the time only in its first
    step.
    """

    number = 48
    title = "a leader has a quorum"
    source = "KAFKA-15489"
    looks_at = frozenset({"is_news", RequestReceived, TimePassed})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._heard: dict[tuple[int, int, int], dict[int, int]] = {}
        """By leader, life and epoch: when it last heard from each voter, by its own clock.

        Its own entry is the start.
        """

    def after_step(self, step: Step) -> None:
        """Record fetches, and check the leader."""
        node = step.node
        if node.replica is None or not node.replica.is_leader or len(self.world.voter_ids) == 1:
            return
        replica, now_ms = node.replica, node.replica.now_ms
        place = (node.node_id, node.life, replica.epoch)
        heard = self._heard.setdefault(place, {node.node_id: now_ms})
        for event in step.events:
            if isinstance(event, RequestReceived) and isinstance(event.request, FetchRequest | FetchSnapshotRequest):
                key = event.request.replica_key
                if key is not None and key.node_id in self.world.voter_ids:
                    heard[key.node_id] = now_ms
        others = sorted((heard.get(voter_id, heard[node.node_id]) for voter_id in self.world.voter_ids
                         if voter_id != node.node_id), reverse=True)  # fmt: skip
        last_ms = others[self.world.majority - 2]
        if now_ms - last_ms > PATIENCE * replica.config.check_quorum_timeout_ms:
            self.violated(f"node {node.node_id} leads without fetches from a majority for {now_ms - last_ms} ms")
