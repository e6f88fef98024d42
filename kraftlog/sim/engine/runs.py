"""Running a world to its end, many seeds, and shrinking one that fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from kraftbase.errors import FlushFailed, InvariantViolation
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.outcome import Outcome, Overrides, Parameters, RunSeed, Total
from kraftlog.sim.engine.trace import Trace
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_SECOND, EventQueue
from kraftlog.sim.engine.workers import in_workers


class RunningWorld(Protocol):
    """A world that runs."""

    event_queue: EventQueue
    trace: Trace[Any]
    marks: Marks

    @property
    def checks(self) -> int:
        """How often something was judged."""
        ...


def run_to_end(parameters: Parameters, world: RunningWorld, run: Callable[[], None]) -> Outcome:
    """Let `run` run the world. A violation is in the outcome, not raised."""
    violation: str | None = None
    try:
        run()
    except Violation as found:
        violation = str(found)
        if found.__cause__ is not None:
            violation += "\n" + "".join(traceback.format_exception(found.__cause__))
    except (Exception, FlushFailed, InvariantViolation) as error:
        violation = f"the simulator failed: {error!r}\n{traceback.format_exc()}"
    return Outcome(
        parameters=parameters,
        violation=violation,
        simulated_seconds=world.event_queue.now_us / MICROSECONDS_PER_SECOND,
        steps=world.trace.steps,
        checks=world.checks,
        trace_digest=world.trace.digest,
        marks=world.marks,
        last_lines=world.trace.last_lines() if violation is not None else [],
    )


def sweep(run_seed: RunSeed, seeds: Iterable[int], failures_max: int = 5) -> Total:
    """Run seeds on all processors, until they end or `failures_max` have failed."""
    total = Total()
    with closing(in_workers(partial(_run_plain, run_seed), seeds)) as outcomes:
        for outcome in outcomes:
            total.add(outcome)
            if len(total.failures) >= failures_max:
                break
    return total


def _run_plain(run_seed: RunSeed, seed: int) -> Outcome:
    return run_seed(seed, Overrides())


def shrink(run_seed: RunSeed, seed: int, say: Callable[[str], None]) -> tuple[Overrides, Outcome]:
    """The smallest run of `seed` found that still fails: shorter, with fewer faults. ValueError if it does not fail."""
    best, outcome = Overrides(), run_seed(seed, Overrides())
    if outcome.violation is None:
        raise ValueError(f"seed {seed} does not fail: there is nothing to shrink")
    low, high = 0, outcome.parameters.seconds
    while high - low > 1:
        middle = (low + high) // 2
        found = _try(run_seed, seed, replace(best, seconds=middle), say)
        if found is None:
            low = middle
        else:
            high, best, outcome = middle, replace(best, seconds=middle), found
    for kind in outcome.parameters.fault_kinds:
        fewer = replace(best, without_faults=(*best.without_faults, kind))
        found = _try(run_seed, seed, fewer, say)
        if found is not None:
            best, outcome = fewer, found
    return best, outcome


def _try(run_seed: RunSeed, seed: int, overrides: Overrides, say: Callable[[str], None]) -> Outcome | None:
    outcome = run_seed(seed, overrides)
    what = f"{overrides.seconds} s of faults, without {', '.join(map(repr, overrides.without_faults)) or 'nothing'}"
    say(f"{what}: {'does not fail' if outcome.violation is None else 'still fails'}")
    return None if outcome.violation is None else outcome
