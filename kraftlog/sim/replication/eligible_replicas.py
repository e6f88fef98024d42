"""A fault: the last member of an ISR is killed after an eligible replica has lost power.

Consider replicas 1, 2 and 3, with `min.insync.replicas` 2 and no flush before an acknowledgment. Replica 3 ends. Then
2, which is eligible because it was in sync when the ISR became too small, loses power. When 2 registers again it names
no clean shutdown and is no longer eligible, as it may lack acknowledged records (KIP-966). If 1 has ended as well and 2
returns before it, a controller that still trusts 2 elects it. Random faults hardly ever happen in this order.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, EventQueue
from kraftlog.sim.replication.checker import Checker
from kraftlog.sim.replication.machine import Machine
from kraftlog.sim.replication.metadata import Key
from kraftlog.sim.replication.parameters import ReplicationParameters

POWER_LOST_SESSIONS: Final = (0.3, 1.3)
"""After how many sessions the second replica loses power, the others being down."""
LEADER_LIVES_SESSIONS: Final = 1.5
"""For how many sessions the leader stays alone. By then the other replica is fenced."""
POWERLESS_SESSIONS: Final = 2
"""After how many sessions the replica that lost power returns, before all others."""
LEADER_DOWN_SESSIONS: Final = 3
OTHERS_DOWN_SESSIONS: Final = 6


class EligibleReplicasWorld(Protocol):
    """The part of the world that this fault needs."""

    parameters: ReplicationParameters
    checker: Checker
    machines: dict[int, Machine]
    marks: Marks
    event_queue: EventQueue
    is_quiet: bool


class EligibleReplicas:
    """The fault, for all partitions."""

    def __init__(self, world: EligibleReplicasWorld) -> None:
        self._world = world

    def begin(self, random: Random) -> bool:
        """Choose a partition, and end all brokers but its leader and one more. Return False if no partition fits."""
        machines = self._world.machines
        led = [
            (key, checker.state)
            for key, checker in self._world.checker.partitions.items()
            if checker.state.leader in machines
            and sum(machines[broker_id].is_up for broker_id in checker.state.isr) > 1
        ]
        if not led:
            return False
        key, state = random.choice(led)
        leader = machines[state.leader]
        other = machines[
            random.choice(
                [broker_id for broker_id in state.isr if machines[broker_id].is_up and broker_id != state.leader]
            )
        ]
        for machine in machines.values():
            if machine.is_up and machine not in (leader, other):
                machine.end(Crash.KILLED, self._ms(OTHERS_DOWN_SESSIONS))
        self._later(random.choice(POWER_LOST_SESSIONS), lambda: self._lose_power(other, leader, key, random))
        return True

    def _lose_power(self, other: Machine, leader: Machine, key: Key, random: Random) -> None:
        if other.is_up and leader.is_up and not self._world.is_quiet:
            crash = random.choice([crash for crash in Crash if crash is not Crash.KILLED])
            other.end(crash, self._ms(POWERLESS_SESSIONS))
            self._later(LEADER_LIVES_SESSIONS, lambda: self._kill(leader, other, key))

    def _kill(self, leader: Machine, other: Machine, key: Key) -> None:
        checker = self._world.checker.partitions.get(key)
        if checker is None or not leader.is_up or other.is_up or self._world.is_quiet:
            return
        if other.broker_id in checker.state.eligible_leaders and checker.promises.promises:
            self._world.marks.hit("an eligible replica lost power, and the last one in sync was killed")
        leader.end(Crash.KILLED, self._ms(LEADER_DOWN_SESSIONS))

    def _ms(self, sessions: float) -> int:
        return int(sessions * self._world.parameters.session_timeout_ms)

    def _later(self, sessions: float, work: Callable[[], None]) -> None:
        self._world.event_queue.after(self._ms(sessions) * MICROSECONDS_PER_MS, work)
