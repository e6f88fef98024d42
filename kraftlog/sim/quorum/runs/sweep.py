"""Many seeds, on all processors, with a progress bar, and the sum of their outcomes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.workers import in_workers
from kraftlog.sim.quorum.fault_kinds import KINDS
from kraftlog.sim.quorum.marks import missing
from kraftlog.sim.quorum.runs.outcome import Outcome
from kraftlog.sim.quorum.runs.run import run_seed


@dataclass(slots=True)
class Total:
    """The sum of a sweep."""

    seeds: int = 0
    failures: list[Outcome] = field(default_factory=list)
    simulated_seconds: float = 0.0
    steps: int = 0
    checks: int = 0
    operations: int = 0
    acknowledged: int = 0
    undecided_keys: int = 0
    elapsed_seconds: float = 0.0
    marks: Marks = field(default_factory=Marks)

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        self.seeds += 1
        self.simulated_seconds += outcome.simulated_seconds
        self.steps += outcome.steps
        self.checks += outcome.checks
        self.operations += outcome.operations
        self.acknowledged += outcome.acknowledged
        self.undecided_keys += outcome.undecided_keys
        self.marks.add(outcome.marks)
        if outcome.violation is not None:
            self.failures.append(outcome)

    @property
    def missing_marks(self) -> list[str]:
        """What must happen in a sweep and did not."""
        return missing(self.marks, KINDS)

    @property
    def fault_kinds(self) -> int:
        """How many kinds of faults happened."""
        return sum(1 for kind in KINDS if self.marks.counts[f"fault: {kind}"])

    def summary(self) -> dict[str, Any]:
        """For a file."""
        return {
            "seeds": self.seeds,
            "failures": [failure.summary() for failure in self.failures],
            "simulated_hours": round(self.simulated_seconds / 3600, 3),
            "steps": self.steps,
            "checks": self.checks,
            "operations": self.operations,
            "acknowledged": self.acknowledged,
            "undecided_keys": self.undecided_keys,
            "elapsed_seconds": round(self.elapsed_seconds, 1),
            "fault_kinds": self.fault_kinds,
            "missing_marks": self.missing_marks,
            "marks": dict(sorted(self.marks.counts.items())),
        }


def sweep(
    seeds: Iterable[int], *, minutes: float | None = None, count: int | None = None, failures_max: int = 5
) -> Total:
    """Run `seeds`, until they end, `minutes` are over, or `failures_max` have failed. `count`: how many there are."""
    total = Total()
    started = time.monotonic()
    deadline = None if minutes is None else started + minutes * 60
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    outcomes = in_workers(run_seed, _until(seeds, deadline))
    with Progress(*columns, transient=True) as progress, closing(outcomes):
        bar = progress.add_task("seeds", total=count)
        for outcome in outcomes:
            total.add(outcome)
            hours = total.simulated_seconds / 3600
            progress.update(bar, advance=1, description=f"seeds, {hours:.1f} h, {len(total.failures)} failed")
            if len(total.failures) >= failures_max:
                break
    total.elapsed_seconds = time.monotonic() - started
    return total


def _until(seeds: Iterable[int], deadline: float | None) -> Iterator[int]:
    for seed in seeds:
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield seed
