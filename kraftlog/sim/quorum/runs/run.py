"""One run: faults for a while, then a healed core that must converge, then a check of everything acknowledged."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.outcome import Outcome
from kraftlog.sim.engine.running import run_to_end
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_SECOND
from kraftlog.sim.quorum.faults.ambushes import watching_snapshot_work
from kraftlog.sim.quorum.node.controller_host import small_pages
from kraftlog.sim.quorum.parameters import QuorumParameters
from kraftlog.sim.quorum.registers.linearizability import CheckResult, check_history
from kraftlog.sim.quorum.runs.convergence import converge
from kraftlog.sim.quorum.runs.fault_schedule import FaultSchedule
from kraftlog.sim.quorum.world import World

LINEARIZABILITY_STEPS_MAX: Final = 200_000
"""The number of steps that the search for a linear order may take per key. A key that needs more is undecided."""


def run(parameters: QuorumParameters, *, echo: bool = False) -> Outcome:
    """Run from start to end and return the outcome. A violation is part of the outcome and is not raised.

    The simulated nodes log as nodes do. The process that runs them sets the level; `kraftlog sim` sets critical.
    """
    world = World(parameters, echo=echo, marks=Marks())
    return run_to_end(parameters, world, lambda: _run(world))


def _run(world: World) -> None:
    with watching_snapshot_work(world), small_pages(world):
        _safety_phase(world)
        converge(world)
    world.checker.at_end()
    _check_history(world)


def _safety_phase(world: World) -> None:
    world.start_all()
    faults = FaultSchedule(world)
    faults.start()
    world.start_users()
    world.run_for(world.parameters.seconds * MICROSECONDS_PER_SECOND)
    faults.stop()


def _check_history(world: World) -> None:
    """Compare the answers to clients with the log, by the oracle and by the search."""
    world.oracle.at_end()
    for key, (result, story) in check_history(world.history, LINEARIZABILITY_STEPS_MAX).items():
        if result is CheckResult.NOT_LINEARIZABLE:
            raise Violation(f"Linearizability (36): the operations on {key} have no order: {story}")
        world.undecided_keys += result is CheckResult.UNDECIDED
