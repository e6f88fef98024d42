"""Nothing grows without a bound."""

from __future__ import annotations

from kraftlog.sim.invariants.invariant import Invariant
from kraftlog.sim.observation.step import Step
from raft.core.connections import CONNECTIONS_MAX
from raft.core.replica_view import ReplicaView
from raft.core.serving import OBSERVERS_MAX
from raft.core.states import Leader


class Bounds(Invariant):
    """Parked fetches, pending appends, tracked observers and connections stay within their limits.

    No node accepts a single append that is larger than the limit of pending bytes, so the limit itself bounds pending
    bytes. No false positives.
    """

    number = 24
    title = "everything has a bound"
    source = "TigerBeetle, TIGER_STYLE"

    def after_step(self, step: Step) -> None:
        """Count."""
        replica = step.node.replica
        if replica is None:
            return
        context = replica._context
        if len(context.connections._by_endpoint) > CONNECTIONS_MAX:
            self.violated(f"node {step.node.node_id} has more than {CONNECTIONS_MAX} requests under way")
        if isinstance(context.state, Leader):
            self._judge_leader(step, replica, context.state)

    def _judge_leader(self, step: Step, replica: ReplicaView, leader: Leader) -> None:
        config = replica._context.config
        counts = {
            "parked fetches": (len(leader.purgatory), config.parked_fetches_max),
            "bytes of pending appends": (leader.accumulator.pending_bytes, config.pending_append_bytes_max),
            "observers": (len(leader.observers), OBSERVERS_MAX),
        }
        for name, (count, limit) in counts.items():
            if count > limit:
                self.violated(f"node {step.node.node_id} has {count} {name}, at most {limit} are allowed")
