"""The timers of a state end with the state."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.events import TimePassed
from raft.core.states import Role

FOLLOWS: Final[dict[Role, frozenset[Role]]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE}),
    Role.PROSPECTIVE: frozenset({Role.PROSPECTIVE, Role.UNATTACHED, Role.FOLLOWER}),
    Role.CANDIDATE: frozenset({Role.CANDIDATE, Role.PROSPECTIVE}),
    Role.LEADER: frozenset({Role.LEADER, Role.RESIGNED}),
    Role.FOLLOWER: frozenset({Role.FOLLOWER, Role.PROSPECTIVE}),
    Role.RESIGNED: frozenset({Role.RESIGNED, Role.UNATTACHED}),
}
"""The states that a replica, if not the sole voter, may enter by a timer of its state: no epoch without a pre-vote."""


class Timers(Invariant):
    """When only time passed, a replica stays in its state or goes where that state's timers lead.

    So no timer of a former state fires. A sole voter becomes leader in the same step. A shell without room for an
    answer's batches passes the answer on later, by a timer of its own: such a step is left out. There are no other
    false positives.
    """

    number = 22
    title = "timers end with their state"
    source = "Kafka's EpochState"
    looks_at = frozenset({"is_news"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._roles: dict[int, tuple[int, Role]] = {}

    def after_step(self, step: Step) -> None:
        """Compare the role with the previous one."""
        node = step.node
        if node.replica is None:
            return
        role = node.replica.role
        before = self._roles.get(node.node_id)
        self._roles[node.node_id] = (node.life, role)
        if before is None or before[0] != node.life or before[1] is role or step.label != "timer":
            return
        if role is Role.LEADER and len(self.world.voter_ids) == 1:
            return
        if all(isinstance(event, TimePassed) for event in step.events) and role not in FOLLOWS[before[1]]:
            self.violated(f"time took node {node.node_id} from {before[1].value} to {role.value}")
