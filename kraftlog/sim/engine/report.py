"""The output of `kraftlog sim`: a run that failed, a run that did not, and the sum of many."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console
from rich.table import Table

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.outcome import Outcome, Total
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.engine.world import NOTHING, World

MISSING_SHOWN_MAX: Final = 40


def replay_command(world: World[Any], seed: int, overrides: Overrides = NOTHING) -> str:
    """Return the command that runs a seed again and prints every line of its trace."""
    command = f"kraftlog sim --world {world.name} --seed {seed} --trace"
    if overrides.seconds is not None:
        command += f" --safety-seconds {overrides.seconds}"
    command += "".join(f" --{name} {count}" for name, count in overrides.sizes.items())
    return command + "".join(f" --without {kind!r}" for kind in overrides.without_faults)


def show_failure(console: Console, world: World[Any], outcome: Outcome, overrides: Overrides = NOTHING) -> None:
    """Print the last lines of the trace, every node's state, the parameters, the violation, and the replay command."""
    seed = outcome.parameters.seed
    console.rule(f"seed {seed}")
    lines = [*outcome.last_lines, "nodes at the end:", *outcome.nodes, "configuration:"]
    lines += [f"  {name}: {value}" for name, value in outcome.parameters.describe().items()]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"seed {seed}: {outcome.violation}", style="bold red", highlight=False, markup=False)
    console.print(f"again: {replay_command(world, seed, overrides)}", highlight=False, markup=False, soft_wrap=True)


def show_run(console: Console, outcome: Outcome) -> None:
    """Print one line about a run without a violation."""
    figures = "".join(f" {count} {_words(name)}," for name, count in outcome.figures.items())
    console.print(
        f"seed {outcome.parameters.seed}: all invariants hold; {outcome.simulated_seconds:.0f} simulated seconds,"
        f" {outcome.steps} steps, {outcome.checks} checks,{figures} trace {outcome.trace_digest}",
        highlight=False,
    )


def show_total(console: Console, world: World[Any], total: Total) -> None:
    """Print the sum of a sweep as a table."""
    table = Table(title=f"simulation of {world.subject}", show_header=False)
    speed = total.simulated_seconds / total.elapsed_seconds if total.elapsed_seconds else 0.0
    rows = [
        ("seeds", f"{total.seeds:,}"),
        ("failed", f"{len(total.failures)}"),
        ("simulated hours", f"{total.simulated_seconds / 3600:.1f}"),
        ("elapsed", f"{total.elapsed_seconds:.0f} s, {speed:.0f} times real time"),
        ("steps", f"{total.steps:,}"),
        ("invariants", f"{world.invariants}, checked {total.checks:,} times"),
        ("kinds of faults", f"{kinds_seen(world, total.marks)}"),
        *((_words(name), f"{count:,}") for name, count in total.figures.items()),
        ("marks missing", f"{len(world.missing(total.marks))}"),
    ]
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show_marks(console: Console, marks: Marks) -> None:
    """Print every mark and how often it was hit."""
    table = Table("mark", "times")
    for name, count in sorted(marks.counts.items()):
        table.add_row(name, f"{count:,}")
    console.print(table)


def show_missing(console: Console, missing: list[str]) -> None:
    """Print the marks that a long sweep must hit and this one did not."""
    console.print("never happened:", style="bold red")
    for name in missing[:MISSING_SHOWN_MAX]:
        console.print(f"  {name}", highlight=False, markup=False)
    if len(missing) > MISSING_SHOWN_MAX:
        console.print(f"  and {len(missing) - MISSING_SHOWN_MAX} more")


def kinds_seen(world: World[Any], marks: Marks) -> int:
    """Return the number of kinds of faults that happened."""
    return sum(1 for kind in world.fault_kinds if marks.counts[f"fault: {kind}"])


def _words(name: str) -> str:
    return name.replace("_", " ")
