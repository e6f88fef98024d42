"""One run: faults for a while, then a healed core that must converge, then a check of everything that was promised."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Final

from kraftbase.errors import FlushFailed, InvariantViolation
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_SECOND
from kraftlog.sim.quorum.fault_kinds import KINDS
from kraftlog.sim.quorum.faults.ambushes import watching_snapshot_work
from kraftlog.sim.quorum.node.controller_host import small_pages
from kraftlog.sim.quorum.observation.trace import describe
from kraftlog.sim.quorum.parameters import Overrides, Parameters, draw
from kraftlog.sim.quorum.registers.linearizability import Verdict, check_history
from kraftlog.sim.quorum.registers.oracle import HistoryViolation
from kraftlog.sim.quorum.runs.convergence import converge
from kraftlog.sim.quorum.runs.fault_schedule import FaultSchedule
from kraftlog.sim.quorum.runs.outcome import Outcome
from kraftlog.sim.quorum.world import World

LINEARIZABILITY_STEPS_MAX: Final = 200_000
"""How many steps the search for a linear order may take per key; after that the key counts as undecided."""


def run_seed(seed: int, *, overrides: Overrides | None = None, kinds: Sequence[str] = KINDS) -> Outcome:
    """The run with that seed."""
    return run(draw(seed, kinds, overrides))


def run(parameters: Parameters, *, echo: bool = False) -> Outcome:
    """One run from beginning to end. A violation is in the outcome, not raised.

    The simulated nodes log as nodes do: the process that runs them sets the level, `kraftlog sim` to critical.
    """
    marks = Marks()
    world = World(parameters, echo=echo, marks=marks)
    undecided = 0
    violation: str | None = None
    try:
        with watching_snapshot_work(world), small_pages(world):
            _safety_phase(world)
            converge(world)
        world.checker.at_end()
        undecided = _judge_history(world)
    except Violation as found:
        violation = _explain(found)
    except (Exception, FlushFailed, InvariantViolation) as error:
        # What is wrong with the simulator itself must name the seed, too, and not end the sweep.
        violation = f"the simulator failed: {error!r}\n{traceback.format_exc()}"
    return _outcome(world, violation, undecided)


def _explain(found: Violation) -> str:
    if isinstance(found, HistoryViolation):
        return f"history (33 to 35): {found}"
    cause = found.__cause__
    if cause is None:
        return str(found)
    return f"{found}\n{''.join(traceback.format_exception(cause))}"


def _safety_phase(world: World) -> None:
    world.start_all()
    faults = FaultSchedule(world)
    faults.start()
    world.start_users()
    world.run_for(world.parameters.safety_seconds * MICROSECONDS_PER_SECOND)
    faults.stop()


def _judge_history(world: World) -> int:
    """Compare the answers to clients with the log, in two ways. Returns how many keys were undecided."""
    world.oracle.at_end()
    undecided = 0
    for key, (verdict, story) in check_history(world.history, LINEARIZABILITY_STEPS_MAX).items():
        if verdict is Verdict.NOT_LINEARIZABLE:
            raise Violation(f"Linearizability (36): the operations on {key} have no order: {story}")
        undecided += verdict is Verdict.UNDECIDED
    return undecided


def _outcome(world: World, violation: str | None, undecided: int) -> Outcome:
    is_bad = violation is not None
    return Outcome(
        parameters=world.parameters,
        violation=violation,
        simulated_seconds=world.event_queue.now_us / MICROSECONDS_PER_SECOND,
        steps=world.trace.steps,
        checks=world.checker.checks,
        operations=len(world.history.operations),
        acknowledged=world.history.acknowledged_count,
        undecided_keys=undecided,
        trace_digest=world.trace.digest,
        marks=world.marks,
        last_lines=world.trace.last_lines() if is_bad else [],
        nodes=[f"{node_id:>3} {describe(view)}" for node_id, view in world.nodes.items()] if is_bad else [],
    )
