"""The base of all faults, and helpers that most of them use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.world import World

Begin = Callable[[World, Random], str | None]
"""Starts the fault and returns its target, for the trace; None if it cannot start now."""

POWER_CUTS: Final = (Crash.NOTHING_KEPT, Crash.PREFIX_KEPT, Crash.SECTORS_KEPT, Crash.PAGES_KEPT)


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    kind: str
    begin: Begin


REGISTERED: Final[dict[str, Fault]] = {}
"""The faults that the modules of this package define, by name. `catalogue` imports all these modules."""


def fault(kind: str) -> Callable[[Begin], Begin]:
    """Return a decorator that registers a function as the fault of that kind."""

    def register(begin: Begin) -> Begin:
        REGISTERED[kind] = Fault(kind, begin)
        return begin

    return register


def duration_us(random: Random, low_ms: int = 100, high_ms: int = 15_000) -> int:
    """Return the duration of a fault: mostly short, sometimes long."""
    return int((low_ms + (high_ms - low_ms) * random.random() ** 2) * MICROSECONDS_PER_MS)


def downtime_us(random: Random) -> int:
    """Return how long a process stays down: mostly it is restarted at once."""
    return random.choice([1, 10, 200, 1_000, 5_000, 20_000]) * MICROSECONDS_PER_MS


def any_machine(world: World, random: Random) -> Machine:
    """Return a random machine, mostly a voter."""
    machines = list(world.machines.values())
    voters = [machine for machine in machines if machine.view.is_voter]
    return random.choice(voters if voters and random.random() < 0.8 else machines)


def running(world: World) -> list[Machine]:
    """Return the machines whose process runs and is not paused."""
    return [
        machine for machine in world.machines.values() if machine.process is not None and not machine.view.is_paused
    ]
