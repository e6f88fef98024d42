"""The outcome of a run, and the sum of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kraftlog.sim.engine.marks import Marks


class Parameters(Protocol):
    """What a seed has drawn."""

    @property
    def seed(self) -> int:
        """The seed."""
        ...

    @property
    def seconds(self) -> int:
        """How long clients and faults go on."""
        ...

    @property
    def fault_kinds(self) -> tuple[str, ...]:
        """The kinds of faults that happen."""
        ...

    def describe(self) -> dict[str, Any]:
        """For people and files."""
        ...


@dataclass(slots=True)
class Overrides:
    """Overrides of the seed's parameters, to find out what a run needs to fail."""

    seconds: int | None = None
    without_faults: Sequence[str] = field(default_factory=tuple)


@dataclass(slots=True)
class Outcome:
    """The outcome of a run."""

    parameters: Parameters
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


RunSeed = Callable[[int, Overrides], Outcome]
"""The run with a seed."""


@dataclass(slots=True)
class Total:
    """The sum of a sweep."""

    seeds: int = 0
    failures: list[Outcome] = field(default_factory=list)
    simulated_seconds: float = 0.0
    steps: int = 0
    checks: int = 0
    marks: Marks = field(default_factory=Marks)

    def add(self, outcome: Outcome) -> None:
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
