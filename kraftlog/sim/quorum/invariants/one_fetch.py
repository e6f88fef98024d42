"""A replica has at most one fetch in flight."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import Send
from raft.core.messages import FetchRequest


class OneFetch(Invariant):
    """A replica waits for the answer to at most one fetch: two answers could append at the same offset.

    A fetch that it abandoned, after the request timeout or a change of state, does not count: its answer is ignored.
    There are no false positives.
    """

    number = 21
    title = "one fetch at a time"
    source = "Kafka, RequestManager"
    looks_at = frozenset({Send})

    def after_step(self, step: Step) -> None:
        """Count the fetches whose answers would be applied."""
        replica = step.node.replica
        if replica is None:
            return
        under_way = [
            pending.correlation_id
            for pending in replica.requests_under_way
            if isinstance(pending.request, FetchRequest)
        ]
        if len(under_way) > 1:
            self.violated(f"node {step.node.node_id} waits for the answers to fetches {under_way}")
