"""Each request is answered at most once."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import Reply
from raft.core.events import RequestReceived


class OneAnswer(Invariant):
    """A replica answers each request that it received once. No false positives: request ids are unique in a process."""

    number = 49
    title = "each request has one answer"
    source = "our own"
    looks_at = frozenset({RequestReceived, Reply})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._open: dict[int, tuple[int, set[int]]] = {}

    def after_step(self, step: Step) -> None:
        """Follow requests and answers."""
        node = step.node
        life, waiting = self._open.get(node.node_id, (node.life, set()))
        if life != node.life:
            waiting = set()
        self._open[node.node_id] = (node.life, waiting)
        for event in step.events:
            if isinstance(event, RequestReceived):
                waiting.add(event.request_id)
        for action in step.actions:
            if isinstance(action, Reply):
                if action.request_id not in waiting:
                    self.violated(f"node {node.node_id} answers request {action.request_id}, which no client waits for")
                waiting.discard(action.request_id)
