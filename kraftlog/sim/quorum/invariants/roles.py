"""Only voters take part in elections."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.step import Step
from raft.core.states import Role


class Roles(Invariant):
    """An observer is unattached or a follower. There are no false positives: a run's voter set does not change."""

    number = 11
    title = "only voters take part in elections"
    source = "Kafka's TLA+, ValidRolesAndStates"
    looks_at = frozenset({"is_news"})

    def after_step(self, step: Step) -> None:
        """Check the role of an observer."""
        node = step.node
        if node.is_voter or node.replica is None:
            return
        if node.replica.role not in (Role.UNATTACHED, Role.FOLLOWER):
            self.violated(f"node {node.node_id} is not a voter, but is {node.replica.role.value}")
