"""No replica sends a request to itself."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import Send


class NotToOneself(Invariant):
    """A replica sends nothing to its own endpoint: its own answer would count as another voter's.

    There are no false positives: no two nodes of a run share an endpoint.
    """

    number = 51
    title = "no replica sends a request to itself"
    source = "our own; RF-62"
    looks_at = frozenset({Send})

    def after_step(self, step: Step) -> None:
        """Check the destinations of requests."""
        replica = step.node.replica
        if replica is None:
            return
        own = replica.endpoint
        for action in step.actions:
            if isinstance(action, Send) and action.destination == own:
                self.violated(f"node {step.node.node_id} sends {action.request} to itself")
