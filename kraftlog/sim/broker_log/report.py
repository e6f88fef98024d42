"""`kraftlog sim --world broker-log`: what its options mean, and what users see."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from kraftlog.sim.broker_log.events import missing_events
from kraftlog.sim.broker_log.judges.rules import RULES
from kraftlog.sim.broker_log.parameters import LogOverrides, draw
from kraftlog.sim.broker_log.run import LogOutcome, LogTotal, run_log, shrink_log, sweep_log

COVERING_SEEDS: Final = 300
"""In so many seeds everything happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCommand:
    """The options that this world has."""

    seeds: int
    first: int
    minutes: float | None
    at_least: int
    seed: int | None
    trace: bool
    shrink_seed: int | None
    overrides: LogOverrides
    json_file: Path | None

    def run(self, console: Console) -> bool:
        """Do what was asked for; returns whether all is well."""
        if self.shrink_seed is not None:
            return self._shrink(console, self.shrink_seed)
        if self.seed is not None:
            outcome = run_log(draw(self.seed, self.overrides), echo=self.trace)
            self._write(outcome.summary())
            if outcome.violation is not None:
                show_failure(console, outcome, self.overrides)
            else:
                show_run(console, outcome)
            return outcome.violation is None
        return self._sweep(console)

    def _shrink(self, console: Console, seed: int) -> bool:
        try:
            overrides, outcome = shrink_log(seed, lambda line: console.print(line, highlight=False))
        except ValueError as error:
            console.print(f"error: {error}")
            return False
        show_failure(console, outcome, overrides)
        return True

    def _sweep(self, console: Console) -> bool:
        total = sweep_log(self._numbers())
        missing = missing_events(total.marks)
        self._write({**total.summary(), "missing_events": missing})
        for failure in total.failures:
            show_failure(console, failure, LogOverrides())
        show_total(console, total)
        must_cover = self.minutes is not None or self.seeds >= COVERING_SEEDS
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


def replay_command(seed: int, overrides: LogOverrides) -> str:
    """The command that runs a seed again, with every line of its trace."""
    command = f"kraftlog sim --world broker-log --seed {seed} --trace"
    if overrides.seconds is not None:
        command += f" --safety-seconds {overrides.seconds}"
    return command + "".join(f" --without {kind!r}" for kind in overrides.without_faults)


def show_failure(console: Console, outcome: LogOutcome, overrides: LogOverrides) -> None:
    """The last lines, what was drawn, what does not hold, and how to see it again."""
    seed = outcome.parameters.seed
    console.rule(f"seed {seed}")
    lines = [*outcome.last_lines, "configuration:"]
    lines += [f"  {name}: {value}" for name, value in outcome.parameters.describe().items()]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"seed {seed}: {outcome.violation}", style="bold red", highlight=False, markup=False)
    console.print(f"again: {replay_command(seed, overrides)}", highlight=False, markup=False, soft_wrap=True)


def show_run(console: Console, outcome: LogOutcome) -> None:
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


def show_total(console: Console, total: LogTotal) -> None:
    """The sum of a sweep, and how often each event happened."""
    table = Table("event", "times", title="simulation of a broker's log")
    for name, count in sorted(total.marks.counts.items()):
        table.add_row(name, f"{count:,}")
    console.print(table)
    console.print(
        f"{total.seeds} seeds, {len(total.failures)} failed; {total.simulated_seconds / 3600:.1f} simulated hours,"
        f" {total.steps:,} steps; {len(RULES)} rules, checked {total.checks:,} times",
        highlight=False,
    )
