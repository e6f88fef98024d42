"""A fault: a disk is missing when its broker starts. It is not mounted, so an empty directory is in its place.

The disk is present again at a later start, next to the directory that was used while it was missing. Everything that
was acknowledged is on one of the two, so no partition may need an operator.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, EventQueue
from kraftlog.sim.replication.machine import Machine
from kraftlog.sim.replication.parameters import ReplicationParameters

OFTEN: Final = 0.6
"""The probability that the other brokers are killed first, so that this one is the last in sync."""
CLEANLY: Final = 0.3
"""The probability that the broker is shut down rather than killed."""


class AwayDisksWorld(Protocol):
    """The part of the world that this fault needs."""

    parameters: ReplicationParameters
    machines: dict[int, Machine]
    marks: Marks
    event_queue: EventQueue

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        ...


class AwayDisks:
    """The missing disks of all machines."""

    def __init__(self, world: AwayDisksWorld) -> None:
        self._world = world

    def begin(self, machine: Machine, random: Random) -> bool:
        """Take disks away from a broker, mostly from the last one in sync. Return False if that cannot happen now."""
        if not machine.is_up or machine.away:
            return False
        if random.random() < OFTEN:
            down_ms = 5 * self._world.parameters.session_timeout_ms
            for other in self._world.machines.values():
                if other is not machine and other.is_up:
                    other.end(Crash.KILLED, random.randint(down_ms // 3, down_ms))
        self._later(random, lambda: self._take(machine, random))
        return True

    def _later(self, random: Random, work: Callable[[], None]) -> None:
        delay_ms = int(random.choice([0.3, 1.5, 3.0]) * self._world.parameters.session_timeout_ms)
        self._world.event_queue.after(delay_ms * MICROSECONDS_PER_MS, work)

    def _take(self, machine: Machine, random: Random) -> None:
        if not machine.is_up or machine.away:
            return
        paths = [f"logs-{number}" for number in range(self._world.parameters.directories)]
        taken = set(random.choice([paths, [random.choice(paths)]]))

        def take() -> None:
            machine.away |= taken
            self._world.note(f"the disks {sorted(taken)} of broker {machine.broker_id} are not there")
            self._world.marks.hit("a disk was not there")

        if random.random() < CLEANLY:
            machine.while_down = take
            machine.shut_down()
        else:
            take()
            machine.end(random.choice([Crash.KILLED, Crash.NOTHING_KEPT]), 1)
        self._later(random, lambda: self.bring_back(machine))

    def bring_back(self, machine: Machine) -> None:
        """Make the disks of a broker present again, and restart it."""
        if machine.away:
            machine.away.clear()
            self._world.note(f"the disks of broker {machine.broker_id} are there again")
            self._world.marks.hit("a disk was there again")
            machine.end(Crash.KILLED, 1)
