"""The output for users: the story of a run that failed, the sum of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from kraftlog.sim.quorum.parameters import Overrides
from kraftlog.sim.quorum.runs.outcome import Outcome
from kraftlog.sim.quorum.runs.sweep import Total

MARKS_SHOWN_MAX: Final = 40


def replay_command(seed: int, overrides: Overrides | None = None) -> str:
    """The command that runs a seed again, with every step printed."""
    command = f"kraftlog sim --seed {seed} --trace"
    if overrides is None:
        return command
    if overrides.safety_seconds is not None:
        command += f" --safety-seconds {overrides.safety_seconds}"
    if overrides.voters is not None:
        command += f" --voters {overrides.voters}"
    if overrides.observers is not None:
        command += f" --observers {overrides.observers}"
    if overrides.brokers is not None:
        command += f" --brokers {overrides.brokers}"
    return command + "".join(f" --without {kind!r}" for kind in overrides.without_faults)


def show_failure(console: Console, outcome: Outcome, overrides: Overrides | None = None) -> None:
    """The seed, what does not hold, the configuration, the last lines, every node, and how to replay it."""
    seed = outcome.parameters.seed
    console.rule(f"seed {seed}")
    for line in outcome.last_lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print("nodes at the end:")
    for line in outcome.nodes:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print("configuration:")
    for name, value in outcome.parameters.describe().items():
        console.print(f"  {name}: {value}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"seed {seed}: {outcome.violation}", style="bold red", highlight=False, markup=False)
    console.print(f"again: {replay_command(seed, overrides)}", highlight=False, markup=False, soft_wrap=True)


def show_run(console: Console, outcome: Outcome) -> None:
    """One run without a violation."""
    console.print(
        f"seed {outcome.parameters.seed}: all invariants hold; {outcome.simulated_seconds:.0f} simulated seconds,"
        f" {outcome.steps} steps, {outcome.acknowledged} of {outcome.operations} operations acknowledged,"
        f" trace {outcome.trace_digest}",
        highlight=False,
    )


def show_total(console: Console, total: Total, invariant_count: int) -> None:
    """The sum of a sweep."""
    table = Table(title="simulation", show_header=False)
    hours = total.simulated_seconds / 3600
    speed = total.simulated_seconds / total.elapsed_seconds if total.elapsed_seconds else 0.0
    rows: Sequence[tuple[str, str]] = (
        ("seeds", f"{total.seeds:,}"),
        ("failed", f"{len(total.failures)}"),
        ("simulated cluster-hours", f"{hours:.1f}"),
        ("elapsed", f"{total.elapsed_seconds:.0f} s, {speed:.0f} times real time"),
        ("steps", f"{total.steps:,}"),
        ("invariants", f"{invariant_count}, checked {total.checks:,} times"),
        ("kinds of faults", f"{total.fault_kinds}"),
        ("operations", f"{total.operations:,}, {total.acknowledged:,} acknowledged"),
        ("keys without a verdict", f"{total.undecided_keys}"),
        ("coverage marks missing", f"{len(total.missing_marks)}"),
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show_missing_marks(console: Console, total: Total) -> None:
    """What should have happened and did not."""
    names = total.missing_marks
    console.print("never happened:", style="bold red")
    for name in names[:MARKS_SHOWN_MAX]:
        console.print(f"  {name}", highlight=False, markup=False)
    if len(names) > MARKS_SHOWN_MAX:
        console.print(f"  and {len(names) - MARKS_SHOWN_MAX} more")
