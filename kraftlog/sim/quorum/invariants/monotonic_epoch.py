"""Epochs never go back, and nothing leaves a node before its epoch is durable."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.types import ReplicaKey


class MonotonicEpoch(Invariant):
    """A directory's durable epoch never goes back, and whenever an answer leaves a node, its epoch is durable.

    Answers are checked here, requests by the order of the replica's actions (50). There are no false positives: a step
    that persists an epoch sends nothing before the epoch is on disk, even if it is killed.
    """

    number = 14
    title = "epochs never go back"
    source = "Kafka's simulation test, MonotonicEpoch"
    looks_at = frozenset({"is_news", "disk_changed", "replies"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._durable: dict[ReplicaKey, int] = {}
        self._memory: dict[int, tuple[int, int]] = {}

    def after_step(self, step: Step) -> None:
        """Compare with the earlier epochs, and memory with disk."""
        node = step.node
        found = node.durable_election
        if step.disk_changed and found is not None:
            if found.epoch < self._durable.get(node.key, 0):
                self.violated(
                    f"the disk of node {node.node_id} went back from epoch {self._durable[node.key]} to {found.epoch}"
                )
            self._durable[node.key] = found.epoch
        for _, response in step.replies:
            if found is None or response.leader.epoch > found.epoch:
                self.violated(f"node {node.node_id} answers in epoch {response.leader.epoch}, but its disk has {found}")
        if node.replica is None:
            return
        epoch = node.replica.epoch
        life, before = self._memory.get(node.node_id, (node.life, 0))
        if life == node.life and epoch < before:
            self.violated(f"node {node.node_id} went back from epoch {before} to {epoch}")
        self._memory[node.node_id] = (node.life, epoch)
