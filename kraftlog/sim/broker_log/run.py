"""One run: clients and faults for a while, then peace, a clean shutdown and a start, and everything judged again."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kraftbase.errors import FlushFailed, InvariantViolation
from kraftlog.sim.broker_log.clients import Administrator, Producer, Reader
from kraftlog.sim.broker_log.faults import Faults
from kraftlog.sim.broker_log.judges.rules import GOES_ON
from kraftlog.sim.broker_log.parameters import LogOverrides, LogParameters, draw
from kraftlog.sim.broker_log.transactions import TransactionalProducer
from kraftlog.sim.broker_log.world import World
from kraftlog.sim.marks import Marks
from kraftlog.sim.runs.workers import in_workers
from kraftlog.sim.violation import Violation
from kraftlog.sim.virtual.event_queue import MICROSECONDS_PER_SECOND

PEACE_US: Final = 15 * MICROSECONDS_PER_SECOND
FIRST_TRANSACTIONAL_ID: Final = 1_000
START_US: Final = 5 * MICROSECONDS_PER_SECOND


@dataclass(slots=True)
class LogOutcome:
    """The outcome of a run."""

    parameters: LogParameters
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


def run_log_seed(seed: int, overrides: LogOverrides | None = None) -> LogOutcome:
    """The run with that seed."""
    return run_log(draw(seed, overrides))


def run_log(parameters: LogParameters, *, echo: bool = False) -> LogOutcome:
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
    return LogOutcome(
        parameters=parameters,
        violation=violation,
        simulated_seconds=world.event_queue.now_us / MICROSECONDS_PER_SECOND,
        steps=world.trace.steps,
        checks=world.checks,
        trace_digest=world.trace.digest,
        marks=marks,
        last_lines=world.trace.last_lines() if violation is not None else [],
    )


def _run(world: World) -> None:
    parameters, random = world.parameters, world.random
    names = [f"topic{number}" for number in range(len(parameters.topics))]
    world.start_broker()
    for name, topic in zip(names, parameters.topics, strict=True):
        world.create_topic(name, topic)
    for number in range(parameters.producers):
        acks, is_idempotent = random.choice([(0, False), (1, False), (-1, False), (-1, True), (-1, True), (1, True)])
        index = random.randrange(parameters.partitions)
        Producer(world, number, random.choice(names), index, acks, is_idempotent=is_idempotent).start()
    for _ in range(parameters.readers):
        Reader(world, random.choice(names), random.randrange(parameters.partitions)).start()
    if parameters.has_transactions:
        TransactionalProducer(world, FIRST_TRANSACTIONAL_ID, names[0], 0).start()
    Administrator(world).start()
    Faults(world).start()
    world.run_for(parameters.seconds * MICROSECONDS_PER_SECOND)
    world.is_quiet = True
    world.kills_at_start = False
    world.run_for(PEACE_US)
    world.end_in_peace()
    world.run_for(START_US)
    if world.broker is None:
        raise Violation(f"{GOES_ON}: it is not up after it was shut down cleanly")
    world.judge(world.broker)


# --- many seeds -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class LogTotal:
    """The sum of a sweep."""

    seeds: int = 0
    failures: list[LogOutcome] = field(default_factory=list)
    simulated_seconds: float = 0.0
    steps: int = 0
    checks: int = 0
    marks: Marks = field(default_factory=Marks)

    def add(self, outcome: LogOutcome) -> None:
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


def sweep_log(seeds: Iterable[int], failures_max: int = 5) -> LogTotal:
    """Run seeds on all processors, until they end or `failures_max` have failed."""
    total = LogTotal()
    with closing(in_workers(run_log_seed, seeds)) as outcomes:
        for outcome in outcomes:
            total.add(outcome)
            if len(total.failures) >= failures_max:
                break
    return total


# --- shrinking --------------------------------------------------------------------------------------------------------


def shrink_log(seed: int, say: Callable[[str], None]) -> tuple[LogOverrides, LogOutcome]:
    """The smallest run of `seed` found that still fails: shorter, with fewer faults. ValueError if it does not fail."""
    best, outcome = LogOverrides(), run_log_seed(seed)
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


def _try(seed: int, overrides: LogOverrides, say: Callable[[str], None]) -> LogOutcome | None:
    outcome = run_log_seed(seed, overrides)
    what = f"{overrides.seconds} s of faults, without {', '.join(map(repr, overrides.without_faults)) or 'nothing'}"
    say(f"{what}: {'does not fail' if outcome.violation is None else 'still fails'}")
    return None if outcome.violation is None else outcome
