"""One run of a world, from start to end."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kraftbase.errors import FlushFailed, InvariantViolation
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.outcome import Outcome
from kraftlog.sim.engine.parameters import Parameters
from kraftlog.sim.engine.trace import Trace
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_SECOND, EventQueue


class RunningWorld(Protocol):
    """What `run_to_end` reads of a world."""

    event_queue: EventQueue
    marks: Marks

    @property
    def trace(self) -> Trace[Any]:
        """The trace of the run."""
        ...

    @property
    def checks(self) -> int:
        """How often an invariant was checked."""
        ...

    @property
    def figures(self) -> Mapping[str, int]:
        """Other counts of the world, by name."""
        ...

    def describe_nodes(self) -> list[str]:
        """Return the state of each node, one line for each."""
        ...


def run_to_end(parameters: Parameters, world: RunningWorld, run: Callable[[], None]) -> Outcome:
    """Run `run` and return the outcome. A violation is part of the outcome and is not raised."""
    violation: str | None = None
    try:
        run()
    except Violation as found:
        violation = str(found)
        if found.__cause__ is not None:
            violation += "\n" + "".join(traceback.format_exception(found.__cause__))
    except (Exception, FlushFailed, InvariantViolation) as error:
        # An error of the simulator itself must also be reported with its seed, and must not end the sweep.
        violation = f"the simulator failed: {error!r}\n{traceback.format_exc()}"
    is_bad = violation is not None
    return Outcome(
        parameters=parameters,
        violation=violation,
        simulated_seconds=world.event_queue.now_us / MICROSECONDS_PER_SECOND,
        steps=world.trace.steps,
        checks=world.checks,
        trace_digest=world.trace.digest,
        marks=world.marks,
        figures=world.figures,
        last_lines=world.trace.last_lines() if is_bad else [],
        nodes=world.describe_nodes() if is_bad else [],
    )
