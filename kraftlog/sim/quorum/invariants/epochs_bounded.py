"""A voter that is cut off opens no epochs."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import NodeView
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.events import TimePassed
from raft.core.states import Role


@dataclass(slots=True)
class _Cut:
    life: int
    since_us: int
    """When it was first seen to be cut off."""
    patience_ends_ms: int
    """When it abandons the last request from before the cut, by its own clock."""
    is_quiet: bool = False
    """Whether that time has passed."""


class EpochsBounded(Invariant):
    """A voter that is cut off from every majority does not become the candidate of a new epoch.

    A voter is cut off if links from it or to it are cut to so many voters that it cannot win a pre-vote. A clogged link
    is not cut. Answers may still be in flight, or wait for a paused process. So the voter is checked once it has
    abandoned every request from before the cut. There are no other false positives: a process that was a candidate when
    it ended is one again in its next life, in the same epoch.
    """

    number = 13
    title = "a voter that is cut off opens no epochs"
    source = "KIP-996"
    looks_at = frozenset({"is_news", "disk_changed", "started", TimePassed})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._epochs: dict[int, int] = {}
        """By node: the highest epoch that it has been in."""
        self._cuts: dict[int, _Cut] = {}

    def after_step(self, step: Step) -> None:
        """Check a candidate of a new epoch."""
        node = step.node
        is_in_new_epoch = self._is_in_new_epoch(node)
        if not self.world.cut_since_us or node.replica is None:
            self._cuts.pop(node.node_id, None)
            return
        now_ms = node.replica.now_ms
        cut = self._cuts.get(node.node_id)
        if cut is None or cut.life != node.life or not self._is_cut_off(node, cut.since_us):
            self._cuts.pop(node.node_id, None)
            if self._is_cut_off(node, step.now_us):
                patience_ends_ms = now_ms + node.replica.config.request_timeout_ms
                self._cuts[node.node_id] = _Cut(node.life, step.now_us, patience_ends_ms)
            return
        if cut.is_quiet and is_in_new_epoch and node.replica.role is Role.CANDIDATE:
            epoch = node.replica.epoch
            self.violated(f"node {node.node_id} is cut off from a majority, but is a candidate in epoch {epoch}")
        cut.is_quiet = now_ms >= cut.patience_ends_ms

    def _is_in_new_epoch(self, node: NodeView) -> bool:
        before = self._epochs.get(node.node_id, 0)
        in_memory = 0 if node.replica is None else node.replica.epoch
        on_disk = 0 if node.durable_election is None else node.durable_election.epoch
        self._epochs[node.node_id] = max(before, in_memory, on_disk)
        return in_memory > before

    def _is_cut_off(self, node: NodeView, since_us: int) -> bool:
        """Whether the node has been cut off since `since_us` or longer."""
        world, own, later_us = self.world, node.node_id, since_us + 1
        reached = 1
        for other in world.voter_ids:
            if other != own:
                there_us = world.cut_since_us.get((own, other), later_us)
                back_us = world.cut_since_us.get((other, own), later_us)
                reached += there_us > since_us and back_us > since_us
        return reached < world.majority
