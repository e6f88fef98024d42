"""One run: clients and faults for a while, then peace, in which everything must be in sync again and agree."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kraftbase.errors import FlushFailed, InvariantViolation
from kraftlog.sim.marks import Marks
from kraftlog.sim.replication.administrator import Administrator
from kraftlog.sim.replication.clients import Producer, Reader
from kraftlog.sim.replication.faults import Faults
from kraftlog.sim.replication.judges.rules import PEACE
from kraftlog.sim.replication.parameters import ReplicationOverrides, ReplicationParameters, draw
from kraftlog.sim.replication.world import World
from kraftlog.sim.runs.workers import in_workers
from kraftlog.sim.violation import Violation
from kraftlog.sim.virtual.event_queue import MICROSECONDS_PER_SECOND

STEP_US: Final = MICROSECONDS_PER_SECOND // 2
START_MAX: Final = 40
"""Half seconds that it may take until all topics are there."""
PEACE_MAX: Final = 80
"""Half seconds that it may take until everything is in sync again."""


@dataclass(slots=True)
class ReplicationOutcome:
    """The outcome of a run."""

    parameters: ReplicationParameters
    violation: str | None
    """What does not hold; None if everything does."""
    simulated_seconds: float
    steps: int
    checks: int
    trace_digest: str
    marks: Marks
    last_lines: list[str] = field(default_factory=list)
    """The end of the trace, if something does not hold."""

    def summary(self) -> dict[str, Any]:
        """For a file."""
        return {
            "seed": self.parameters.seed,
            "violation": self.violation,
            "simulated_seconds": round(self.simulated_seconds, 3),
            "steps": self.steps,
            "checks": self.checks,
            "trace_digest": self.trace_digest,
            "marks": dict(sorted(self.marks.counts.items())),
        }


def run_replication_seed(seed: int, overrides: ReplicationOverrides | None = None) -> ReplicationOutcome:
    """The run with that seed."""
    return run_replication(draw(seed, overrides))


def run_replication(parameters: ReplicationParameters, *, echo: bool = False) -> ReplicationOutcome:
    """One run from beginning to end. A violation is in the outcome, not raised."""
    marks = Marks()
    world = World(parameters, marks, echo=echo)
    violation: str | None = None
    try:
        _run(world)
    except Violation as found:
        cause = found.__cause__
        violation = str(found)
        if cause is not None:
            violation += "\n" + "".join(traceback.format_exception(cause))
    except (Exception, FlushFailed, InvariantViolation) as error:
        violation = f"the simulator failed: {error!r}\n{traceback.format_exc()}"
    return ReplicationOutcome(
        parameters=parameters,
        violation=violation,
        simulated_seconds=world.event_queue.now_us / MICROSECONDS_PER_SECOND,
        steps=world.trace.steps,
        checks=world.court.checks,
        trace_digest=world.trace.digest,
        marks=marks,
        last_lines=world.trace.last_lines() if violation is not None else [],
    )


def _run(world: World) -> None:
    parameters, random = world.parameters, world.random
    administrator = Administrator(world)
    world.start()
    administrator.create_all()
    if not _wait(world, START_MAX, lambda: len(world.metadata.topics) == len(parameters.topics)):
        raise Violation(f"{PEACE}: the topics are not made")
    names = sorted(world.metadata.parameters)
    for number in range(parameters.producers):
        acks, is_idempotent = random.choice([(1, False), (-1, False), (-1, True), (-1, True), (1, True)])
        name = random.choice(names)
        index = random.randrange(world.metadata.parameters[name].partitions)
        Producer(world, number, name, index, acks, is_idempotent=is_idempotent).start()
    for _ in range(parameters.readers):
        name = random.choice(names)
        index = random.randrange(world.metadata.parameters[name].partitions)
        Reader(world, name, index, from_any=random.random() < 0.3).start()
    administrator.start()
    Faults(world, administrator).start()
    world.run_for(parameters.seconds * MICROSECONDS_PER_SECOND)
    world.is_quiet = True
    world.heal()
    if not _wait(world, PEACE_MAX, lambda: not world.court.unsettled()):
        raise Violation(f"{PEACE}: {'; '.join(world.court.unsettled())}")
    world.judge_now()


def _wait(world: World, steps: int, is_done: Callable[[], bool]) -> bool:
    for _ in range(steps):
        if is_done():
            return True
        world.run_for(STEP_US)
    return is_done()


# --- many seeds -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ReplicationTotal:
    """The sum of a sweep."""

    seeds: int = 0
    failures: list[ReplicationOutcome] = field(default_factory=list)
    simulated_seconds: float = 0.0
    steps: int = 0
    checks: int = 0
    marks: Marks = field(default_factory=Marks)

    def add(self, outcome: ReplicationOutcome) -> None:
        """Count one run."""
        self.seeds += 1
        self.simulated_seconds += outcome.simulated_seconds
        self.steps += outcome.steps
        self.checks += outcome.checks
        self.marks.add(outcome.marks)
        if outcome.violation is not None:
            self.failures.append(outcome)

    def summary(self) -> dict[str, Any]:
        """For a file."""
        return {
            "seeds": self.seeds,
            "failures": [failure.summary() for failure in self.failures],
            "simulated_hours": round(self.simulated_seconds / 3600, 3),
            "steps": self.steps,
            "checks": self.checks,
            "marks": dict(sorted(self.marks.counts.items())),
        }


def sweep_replication(seeds: Iterable[int], failures_max: int = 5) -> ReplicationTotal:
    """Run seeds on all processors, until they end or `failures_max` have failed."""
    total = ReplicationTotal()
    with closing(in_workers(run_replication_seed, seeds)) as outcomes:
        for outcome in outcomes:
            total.add(outcome)
            if len(total.failures) >= failures_max:
                break
    return total


# --- shrinking --------------------------------------------------------------------------------------------------------


def shrink_replication(
    seed: int, say: Callable[[str], None]
) -> tuple[ReplicationOverrides, ReplicationOutcome]:
    """The smallest run of `seed` found that still fails: shorter, with fewer faults. ValueError if it does not fail."""
    best, outcome = ReplicationOverrides(), run_replication_seed(seed)
    if outcome.violation is None:
        raise ValueError(f"seed {seed} does not fail: there is nothing to shrink")
    low, high = 0, outcome.parameters.seconds
    while high - low > 1:
        middle = (low + high) // 2
        found = _try(seed, replace(best, seconds=middle), say)
        if found is None:
            low = middle
        else:
            high, best, outcome = middle, replace(best, seconds=middle), found
    for kind in outcome.parameters.fault_kinds:
        fewer = replace(best, without_faults=(*best.without_faults, kind))
        found = _try(seed, fewer, say)
        if found is not None:
            best, outcome = fewer, found
    return best, outcome


def _try(seed: int, overrides: ReplicationOverrides, say: Callable[[str], None]) -> ReplicationOutcome | None:
    outcome = run_replication_seed(seed, overrides)
    what = f"{overrides.seconds} s of faults, without {', '.join(map(repr, overrides.without_faults)) or 'nothing'}"
    say(f"{what}: {'does not fail' if outcome.violation is None else 'still fails'}")
    return None if outcome.violation is None else outcome
