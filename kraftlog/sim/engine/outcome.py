"""The outcome of a run, and the sum of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.parameters import Parameters


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of a run."""

    parameters: Parameters
    violation: str | None
    """The violated invariant's message; None if all invariants hold."""
    simulated_seconds: float
    steps: int
    checks: int
    """How often an invariant was checked."""
    trace_digest: str
    marks: Marks
    figures: Mapping[str, int] = field(default_factory=dict)
    """Other counts of the world, by name. Names are words joined by underscores."""
    last_lines: list[str] = field(default_factory=list)
    """The end of the trace, if there is a violation."""
    nodes: list[str] = field(default_factory=list)
    """The state of each node, if there is a violation."""

    def summary(self) -> dict[str, Any]:
        """Return the outcome as a JSON object."""
        return {
            "seed": self.parameters.seed,
            "violation": self.violation,
            "simulated_seconds": round(self.simulated_seconds, 3),
            "steps": self.steps,
            "checks": self.checks,
            **self.figures,
            "trace_digest": self.trace_digest,
            "marks": dict(sorted(self.marks.counts.items())),
        }


@dataclass(slots=True)
class Total:
    """The sum of a sweep's outcomes."""

    seeds: int = 0
    failures: list[Outcome] = field(default_factory=list)
    simulated_seconds: float = 0.0
    steps: int = 0
    checks: int = 0
    figures: Counter[str] = field(default_factory=Counter)
    elapsed_seconds: float = 0.0
    marks: Marks = field(default_factory=Marks)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of one run."""
        self.seeds += 1
        self.simulated_seconds += outcome.simulated_seconds
        self.steps += outcome.steps
        self.checks += outcome.checks
        self.figures.update(outcome.figures)
        self.marks.add(outcome.marks)
        if outcome.violation is not None:
            self.failures.append(outcome)

    def summary(self) -> dict[str, Any]:
        """Return the sum as a JSON object."""
        return {
            "seeds": self.seeds,
            "failures": [failure.summary() for failure in self.failures],
            "simulated_hours": round(self.simulated_seconds / 3600, 3),
            "steps": self.steps,
            "checks": self.checks,
            **self.figures,
            "elapsed_seconds": round(self.elapsed_seconds, 1),
            "marks": dict(sorted(self.marks.counts.items())),
        }
