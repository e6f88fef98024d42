"""`kraftlog sim` for one of the worlds: what its options do."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from kraftlog.sim.engine.outcome import Total
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.engine.report import (
    kinds_seen,
    show_failure,
    show_marks,
    show_missing,
    show_run,
    show_total,
)
from kraftlog.sim.engine.shrink import shrink
from kraftlog.sim.engine.sweep import sweep
from kraftlog.sim.engine.world import NOTHING, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The options."""

    world: World[Any]
    seeds: int
    first: int
    minutes: float | None
    at_least: int
    seed: int | None
    trace: bool
    marks: bool
    shrink_seed: int | None
    overrides: Overrides
    json_file: Path | None

    def check(self) -> None:
        """Raise ValueError if the world cannot have the overrides."""
        self.world.check(self.overrides)

    def run(self, console: Console) -> bool:
        """Run one seed, shrink a seed, or sweep over many; return whether everything held."""
        if self.shrink_seed is not None:
            return self._shrink(console, self.shrink_seed)
        if self.seed is not None:
            return self._run_one(console, self.seed)
        return self._sweep(console)

    def _run_one(self, console: Console, seed: int) -> bool:
        outcome = self.world.run_seed(seed, self.overrides, echo=self.trace)
        self._write(outcome.summary())
        if self.marks:
            show_marks(console, outcome.marks)
        if outcome.violation is not None:
            show_failure(console, self.world, outcome, self.overrides)
        else:
            show_run(console, outcome)
        return outcome.violation is None

    def _shrink(self, console: Console, seed: int) -> bool:
        def say(line: str) -> None:
            console.print(line, highlight=False, markup=False)

        try:
            overrides, outcome = shrink(self.world, seed, say, self.overrides)
        except ValueError as error:
            console.print(f"error: {error}")
            return False
        self._write({"overrides": overrides.summary(), **outcome.summary()})
        show_failure(console, self.world, outcome, overrides)
        return True

    def _sweep(self, console: Console) -> bool:
        if self.minutes is None:
            numbers = range(self.first, self.first + self.seeds)
            total = sweep(self.world, numbers, self.overrides, count=self.seeds)
        else:
            total = sweep(self.world, itertools.count(self.first), self.overrides, minutes=self.minutes)
        return self._conclude(console, total)

    def _conclude(self, console: Console, total: Total) -> bool:
        missing = self.world.missing(total.marks)
        self._write(
            {
                "world": self.world.name, "invariants": self.world.invariants, **total.summary(),
                "fault_kinds": kinds_seen(self.world, total.marks), "missing_marks": missing,
            }
        )  # fmt: skip
        for failure in total.failures:
            show_failure(console, self.world, failure, self.overrides)
        if self.marks:
            show_marks(console, total.marks)
        show_total(console, self.world, total)
        is_uncovered = bool(missing) and self._must_cover
        if is_uncovered:
            show_missing(console, missing)
        if total.seeds < self.at_least:
            console.print(f"only {total.seeds} seeds ran; at least {self.at_least} are required", style="bold red")
        return not total.failures and not is_uncovered and total.seeds >= self.at_least

    @property
    def _must_cover(self) -> bool:
        """Whether every mark must have been hit: only in a sweep of enough seeds and without overrides."""
        is_long = self.minutes is not None or self.seeds >= self.world.covering_seeds
        return is_long and self.overrides == NOTHING

    def _write(self, summary: dict[str, Any]) -> None:
        if self.json_file is not None:
            self.json_file.write_text(json.dumps(summary, indent=2) + "\n")
