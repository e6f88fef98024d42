"""A state's timers end with the state."""

from __future__ import annotations

from typing import Final

from raft.core.states import Role
from sim.invariants.invariant import Invariant
from sim.observation import Observed, Step

FOLLOWS: Final[dict[Role, frozenset[Role]]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER}),
    Role.PROSPECTIVE: frozenset({Role.PROSPECTIVE, Role.UNATTACHED, Role.FOLLOWER}),
    Role.CANDIDATE: frozenset({Role.CANDIDATE, Role.PROSPECTIVE}),
    Role.LEADER: frozenset({Role.LEADER, Role.RESIGNED}),
    Role.FOLLOWER: frozenset({Role.FOLLOWER, Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER}),
    Role.RESIGNED: frozenset({Role.RESIGNED, Role.UNATTACHED}),
}
"""Where time alone may take a replica: its own state's timers, and for a sole voter all the way to leading."""


class Timers(Invariant):
    """When nothing happened to a replica but time, it goes where its own state's timers lead, or stays.

    So no timer of a state that was left fires. No false positives.
    """

    number = 22
    title = "timers end with their state"
    source = "Kafka's EpochState"

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._roles: dict[int, tuple[int, Role]] = {}

    def after_step(self, step: Step) -> None:
        """Compare the role with the one before."""
        node = step.node
        if node.replica is None:
            return
        role = node.replica.role
        before = self._roles.get(node.node_id)
        self._roles[node.node_id] = (node.life, role)
        if before is None or before[0] != node.life or before[1] is role or step.label != "timer":
            return
        if role not in FOLLOWS[before[1]]:
            self.violated(f"time took node {node.node_id} from {before[1].value} to {role.value}")
