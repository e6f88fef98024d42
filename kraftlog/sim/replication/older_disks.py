"""A fault: a disk becomes an older copy of itself. An operator puts the copy back while its broker is down.

A copy from the same registration cannot be distinguished from the disk itself. So only a copy from an earlier one is
put back, and only if the broker was unfenced since. What the disk lacks counts as lost with the power of that broker. A
partition that no replica can lead waits for the operator, who requests an unclean election at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Final, Protocol

from kraftbase.files.memory import MemoryFileSystem
from kraftbase.sentinels import NO_LEADER
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, EventQueue
from kraftlog.sim.replication.checker import Checker
from kraftlog.sim.replication.checkers.views import PartitionState
from kraftlog.sim.replication.machine import Machine
from kraftlog.sim.replication.metadata import Key, Topic
from kraftlog.sim.replication.parameters import ReplicationParameters

OFTEN: Final = 0.7
"""The probability that the other brokers are killed first, so that this one is the last in sync."""


class OlderDisksWorld(Protocol):
    """The part of the world that this fault needs."""

    parameters: ReplicationParameters
    checker: Checker
    machines: dict[int, Machine]
    marks: Marks
    event_queue: EventQueue
    is_quiet: bool

    def topic_of(self, key: Key) -> Topic | None:
        """Return the topic of a partition; None if it was deleted."""
        ...

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        ...


class Elections(Protocol):
    """The administrator's part that holds elections."""

    def elect(self, topic: str, index: int, *, is_unclean: bool = False) -> None:
        """Request an election."""
        ...


class OlderDisks:
    """The older copies of all machines."""

    def __init__(self, world: OlderDisksWorld) -> None:
        self._world = world
        self._put_back: dict[int, int] = {}
        """By broker: the life that ended when a copy was put back."""
        self._elected: set[Key] = set()

    def begin(self, machine: Machine, random: Random) -> bool:
        """Kill a broker and copy its disk. The copy is put back when the broker has been in use again for a while."""
        if not machine.is_up:
            return False
        machine.end(Crash.KILLED, 1)
        copied = deepcopy(machine.files)
        self._later(random, lambda: self._leave_alone(machine, copied, random))
        return True

    def _later(self, random: Random, work: Callable[[], None]) -> None:
        delay_ms = int(random.choice([1.2, 1.6, 2.5]) * self._world.parameters.session_timeout_ms)
        self._world.event_queue.after(delay_ms * MICROSECONDS_PER_MS, work)

    def _leave_alone(self, machine: Machine, copied: MemoryFileSystem, random: Random) -> None:
        """Mostly kill the other brokers, to stay down until the copy is put back. Later put the copy back."""
        if not self._is_in_use(machine):
            return
        if random.random() < OFTEN:
            down_ms = 6 * self._world.parameters.session_timeout_ms
            for other in self._world.machines.values():
                if other is not machine and other.is_up:
                    other.end(Crash.KILLED, random.randint(down_ms // 2, down_ms))
        self._later(random, lambda: self._replace(machine, copied, random))

    def _replace(self, machine: Machine, copied: MemoryFileSystem, random: Random) -> None:
        if not self._is_in_use(machine):
            return
        machine.end(random.choice([Crash.KILLED, Crash.NOTHING_KEPT]), 1)
        machine.disk.files = copied
        self._put_back[machine.broker_id] = machine.life
        self._world.note(f"the disk of broker {machine.broker_id} is an older copy")
        self._world.marks.hit("a disk became an older copy")
        for key, checker in self._world.checker.partitions.items():
            topic, state = self._world.topic_of(key), checker.state
            if topic is not None and machine.broker_id in state.replicas:
                checker.promises.lost_power(machine.broker_id, topic.lowest_min_isr, state.leader_epoch)

    def _is_in_use(self, machine: Machine) -> bool:
        """Whether the broker was unfenced since it started, and faults still happen."""
        return machine.broker is not None and machine.broker.was_unfenced and not self._world.is_quiet

    def is_leaving(self, broker_id: int) -> bool:
        """Whether a broker's disk was replaced by an older copy while it may still be in ISRs."""
        if broker_id not in self._put_back:
            return False
        machine = self._world.machines[broker_id]
        is_another = machine.life > self._put_back[broker_id] and machine.broker is not None
        return not is_another or machine.broker is None or not machine.broker.was_unfenced

    def elect_where_stuck(self, elections: Elections) -> None:
        """Elect leaders, as an operator, where no replica is in sync or eligible because a disk is an older copy."""
        for key, checker in self._world.checker.partitions.items():
            topic, state = self._world.topic_of(key), checker.state
            is_stuck = state.leader == NO_LEADER and not state.isr and not state.eligible_leaders
            if topic is not None and is_stuck and not self._put_back.keys().isdisjoint(state.replicas):
                self._elected.add(key)
                self._world.marks.hit("an operator had an older copy, or another replica, elected")
                elections.elect(topic.name, key[1], is_unclean=True)

    def is_operators_election(self, key: Key, state: PartitionState | None) -> bool:
        """Whether a partition gets the leader that the operator requested."""
        if state is None or state.leader == NO_LEADER or key not in self._elected:
            return False
        self._elected.discard(key)
        return True
