"""The outcome of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.quorum.parameters import Parameters


@dataclass(slots=True)
class Outcome:
    """The outcome of a run."""

    parameters: Parameters
    violation: str | None
    """What does not hold; None if everything does."""
    simulated_seconds: float
    steps: int
    checks: int
    """How often an invariant was checked."""
    operations: int
    acknowledged: int
    undecided_keys: int
    trace_digest: str
    marks: Marks
    last_lines: list[str] = field(default_factory=list)
    """The end of the trace, if something does not hold."""
    nodes: list[str] = field(default_factory=list)
    """Each node's state, if something does not hold."""

    def summary(self) -> dict[str, Any]:
        """For a file."""
        return {
            "seed": self.parameters.seed,
            "violation": self.violation,
            "simulated_seconds": round(self.simulated_seconds, 3),
            "steps": self.steps,
            "checks": self.checks,
            "operations": self.operations,
            "acknowledged": self.acknowledged,
            "undecided_keys": self.undecided_keys,
            "trace_digest": self.trace_digest,
        }
