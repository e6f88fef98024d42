"""A run in figures: a line while it runs, a table and JSON at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from kraftlog.chaos.run import Run
from kraftlog.sim.quorum.registers.history import Outcome

ANSWERS: Final = (Outcome.ACKNOWLEDGED, Outcome.REFUSED, Outcome.UNKNOWN)
VIOLATIONS_SHOWN: Final = 20
FAULTS: Final = (
    "kills",
    "graceful restarts",
    "databases lost",
    "pauses",
    "partitions",
    "slow links",
    "disks filled",
    "ended on a full disk",
)


def progress_line(run: Run) -> str:
    """The progress of the run."""
    if run.arena is None or run.workload is None:
        return "starting"
    outcomes = run.workload.outcomes
    faults = " and ".join(run.under_way.values()) or "peace"
    return (
        f"{min(run.arena.elapsed_seconds, run.plan.seconds):3.0f} of {run.plan.seconds:g} s:"
        f" {run.arena.counts['kills']} kills, {outcomes[Outcome.ACKNOWLEDGED]:,} operations acknowledged,"
        f" {outcomes[Outcome.REFUSED]:,} refused, {outcomes[Outcome.UNKNOWN]:,} unknown; now {faults}"
    )


def figures(run: Run) -> dict[str, Any]:
    """Return everything that was counted."""
    counts = run.arena.counts if run.arena is not None else {}
    outcomes = run.workload.outcomes if run.workload is not None else {}
    return {
        "seed": run.plan.seed,
        "seconds": run.plan.seconds,
        "network": run.network.description if run.network is not None else None,
        "slow_link": run.network.slow_link if run.network is not None else None,
        "faults_left_out": run.left_out,
        "faults": {name: counts.get(name, 0) for name in FAULTS},
        "operations": {outcome.value: outcomes.get(outcome, 0) for outcome in ANSWERS},
        "windows": len(run.windows),
        "worst_window_acknowledged": min((window.acknowledged for window in run.windows), default=None),
        "longest_unavailability_seconds": round(run.longest_gap_seconds, 3),
        "linearizability": run.register_results,
        "snapshots": run.snapshots,
        "log_starts": run.log_starts,
        "lost": run.lost,
        "violations": run.violations,
    }


def write_json(path: Path, run: Run) -> None:
    """Write the figures to a file."""
    path.write_text(json.dumps(figures(run), indent=2) + "\n", encoding="utf-8")


def print_result(run: Run, console: Console) -> None:
    """Print the table, and the details of all violations."""
    found = figures(run)
    table = Table("", "", title=f"Chaos, seed {run.plan.seed}, {run.plan.seconds:g} s", box=None, show_header=False)
    table.title_justify = "left"
    table.add_row("network", found["network"])
    for name, count in found["faults"].items():
        table.add_row(name, f"{count:,}")
    for name, reason in run.left_out.items():
        table.add_row(name, f"left out: {reason}")
    for name, count in found["operations"].items():
        table.add_row(f"operations {name}", f"{count:,}")
    table.add_row("windows of 10 s in which service was owed", f"{found['windows']:,}")
    table.add_row("fewest writes acknowledged in a window", _or_none(found["worst_window_acknowledged"]))
    table.add_row("longest time without one while owed", f"{found['longest_unavailability_seconds']:.2f} s")
    for result, count in run.register_results.items():
        table.add_row(f"registers {result}", f"{count:,}")
    table.add_row("snapshots kept, each the same on all nodes that have it", f"{found['snapshots']:,}")
    table.add_row("offsets at which the nodes' logs start", ", ".join(f"{start:,}" for start in found["log_starts"]))
    table.add_row("acknowledged and lost", f"{found['lost']:,}")
    console.print(table)
    print_violations(run.violations, console)


def print_violations(violations: Sequence[str], console: Console) -> None:
    """Print a line for each of the first violations."""
    for story in violations[:VIOLATIONS_SHOWN]:
        console.print(f"✗ {story}", markup=False, highlight=False)
    if len(violations) > VIOLATIONS_SHOWN:
        console.print(f"✗ and {len(violations) - VIOLATIONS_SHOWN} more")


def _or_none(count: int | None) -> str:
    return "none was long enough" if count is None else f"{count:,}"
