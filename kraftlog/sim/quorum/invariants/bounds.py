"""Nothing grows without a bound."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import Send
from raft.core.connections import CONNECTIONS_MAX
from raft.core.events import AppendPrepared, RequestReceived
from raft.core.replica_view import ReplicaView
from raft.core.serving import OBSERVERS_MAX


class Bounds(Invariant):
    """Parked fetches, pending appends, tracked observers and connections stay within their limits.

    No node accepts a single append that is larger than the limit of pending bytes, so the limit itself bounds pending
    bytes. There are no false positives.
    """

    number = 24
    title = "everything has a bound"
    source = "TigerBeetle, TIGER_STYLE"
    looks_at = frozenset({Send, RequestReceived, AppendPrepared})

    def after_step(self, step: Step) -> None:
        """Compare the counts with their limits."""
        replica = step.node.replica
        if replica is None:
            return
        if len(replica.requests_under_way) > CONNECTIONS_MAX:
            self.violated(f"node {step.node.node_id} has more than {CONNECTIONS_MAX} requests under way")
        if replica.is_leader:
            self._check_leader(step, replica)

    def _check_leader(self, step: Step, replica: ReplicaView) -> None:
        config = replica.config
        counts = {
            "parked fetches": (len(replica.parked_fetches), config.parked_fetches_max),
            "bytes of pending appends": (replica.pending_append_bytes, config.pending_append_bytes_max),
            "observers": (replica.observer_count, OBSERVERS_MAX),
        }
        for name, (count, limit) in counts.items():
            if count > limit:
                self.violated(f"node {step.node.node_id} has {count} {name}, at most {limit} are allowed")
