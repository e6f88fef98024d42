"""`kraftlog sim --world ...`: what its options mean, and what users see."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.outcome import Outcome, Overrides, Total
from kraftlog.sim.engine.runs import shrink, sweep


class RunAnySeed(Protocol):
    """Runs a seed."""

    def __call__(self, seed: int, overrides: Overrides, *, echo: bool = False) -> Outcome:
        """With `echo` it prints every line of the trace."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One of the worlds."""

    name: str
    subject: str
    """What is simulated, as a table is to call it."""
    run_seed: RunAnySeed
    rules: int
    """How many there are."""
    missing_events: Callable[[Marks], list[str]]
    covering_seeds: int
    """In so many seeds everything happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The options."""

    world: World
    seeds: int
    first: int
    minutes: float | None
    at_least: int
    seed: int | None
    trace: bool
    shrink_seed: int | None
    overrides: Overrides
    json_file: Path | None

    def run(self, console: Console) -> bool:
        """Do what was asked for; returns whether all is well."""
        if self.shrink_seed is not None:
            return self._shrink(console, self.shrink_seed)
        if self.seed is not None:
            outcome = self.world.run_seed(self.seed, self.overrides, echo=self.trace)
            self._write(outcome.summary())
            if outcome.violation is not None:
                show_failure(console, self.world, outcome, self.overrides)
            else:
                show_run(console, outcome)
            return outcome.violation is None
        return self._sweep(console)

    def _shrink(self, console: Console, seed: int) -> bool:
        try:
            overrides, outcome = shrink(self.world.run_seed, seed, lambda line: console.print(line, highlight=False))
        except ValueError as error:
            console.print(f"error: {error}")
            return False
        show_failure(console, self.world, outcome, overrides)
        return True

    def _sweep(self, console: Console) -> bool:
        total = sweep(self.world.run_seed, self._numbers())
        missing = self.world.missing_events(total.marks)
        self._write({**total.summary(), "missing_events": missing})
        for failure in total.failures:
            show_failure(console, self.world, failure, Overrides())
        show_total(console, self.world, total)
        must_cover = self.minutes is not None or self.seeds >= self.world.covering_seeds
        if must_cover and missing:
            console.print(f"never happened: {', '.join(missing)}", style="bold red", highlight=False, markup=False)
        if total.seeds < self.at_least:
            console.print(f"only {total.seeds} seeds; {self.at_least} were wanted", style="bold red")
        return not total.failures and not (must_cover and missing) and total.seeds >= self.at_least

    def _numbers(self) -> Iterator[int]:
        if self.minutes is None:
            yield from range(self.first, self.first + self.seeds)
            return
        deadline = time.monotonic() + self.minutes * 60
        for number in itertools.count(self.first):
            if time.monotonic() >= deadline:
                return
            yield number

    def _write(self, summary: dict[str, object]) -> None:
        if self.json_file is not None:
            self.json_file.write_text(json.dumps(summary, indent=2) + "\n")


def replay_command(world: World, seed: int, overrides: Overrides) -> str:
    """The command that runs a seed again, with every line of its trace."""
    command = f"kraftlog sim --world {world.name} --seed {seed} --trace"
    if overrides.seconds is not None:
        command += f" --safety-seconds {overrides.seconds}"
    return command + "".join(f" --without {kind!r}" for kind in overrides.without_faults)


def show_failure(console: Console, world: World, outcome: Outcome, overrides: Overrides) -> None:
    """The last lines, what was drawn, what does not hold, and how to see it again."""
    seed = outcome.parameters.seed
    console.rule(f"seed {seed}")
    lines = [*outcome.last_lines, "configuration:"]
    lines += [f"  {name}: {value}" for name, value in outcome.parameters.describe().items()]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"seed {seed}: {outcome.violation}", style="bold red", highlight=False, markup=False)
    console.print(f"again: {replay_command(world, seed, overrides)}", highlight=False, markup=False, soft_wrap=True)


def show_run(console: Console, outcome: Outcome) -> None:
    """One run without a violation: what happened in it, and how often."""
    table = Table("event", "times", title=f"seed {outcome.parameters.seed}")
    for name, count in sorted(outcome.marks.counts.items()):
        table.add_row(name, f"{count:,}")
    console.print(table)
    console.print(
        f"seed {outcome.parameters.seed}: all rules hold; {outcome.simulated_seconds:.0f} simulated seconds,"
        f" {outcome.steps} steps, {outcome.checks} checks, trace {outcome.trace_digest}",
        highlight=False,
    )


def show_total(console: Console, world: World, total: Total) -> None:
    """The sum of a sweep, and how often each event happened."""
    table = Table("event", "times", title=f"simulation of {world.subject}")
    for name, count in sorted(total.marks.counts.items()):
        table.add_row(name, f"{count:,}")
    console.print(table)
    console.print(
        f"{total.seeds} seeds, {len(total.failures)} failed; {total.simulated_seconds / 3600:.1f} simulated hours,"
        f" {total.steps:,} steps; {world.rules} rules, checked {total.checks:,} times",
        highlight=False,
    )
