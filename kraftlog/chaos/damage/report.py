"""A run in figures: a line while it runs; the table, the failures with the commands that repeat them, and JSON."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from kraftlog.chaos.damage.damages import KINDS
from kraftlog.chaos.damage.run import DamageRun, Plan, Result
from kraftlog.chaos.damage.verdicts import Verdict

RESULTS_NAME: Final = "results.jsonl"
"""In the directory of a run: a line for each damage, written when it is done."""
FAILURES_SHOWN: Final = 40
BAR_CHARACTERS: Final = 20
STORIES_SHOWN: Final = 3
STORY_CHARACTERS: Final = 300


def progress_line(run: DamageRun) -> str:
    """The progress of the run."""
    failed = len(failures(run))
    filled = BAR_CHARACTERS * len(run.results) // len(run.plan.numbers)
    bar = "█" * filled + "░" * (BAR_CHARACTERS - filled)
    return f"{bar} {len(run.results)} of {len(run.plan.numbers)} damages, {failed} failed; now {run.under_way}"


def failures(run: DamageRun) -> list[Result]:
    """Return the results that did not end well."""
    return [result for result in run.results if not result.outcome.verdict.is_well]


def repeat_command(plan: Plan, result: Result) -> str:
    """Return the command that makes the same damage again."""
    only = "".join(f" --only '{kind}'" for kind in plan.only)
    return f"kraftlog chaos damage --seed {plan.seed} --damage {result.damage.number}{only}"


def figures(run: DamageRun) -> dict[str, Any]:
    """Return everything that was counted, and every damage."""
    verdicts = Counter(str(result.outcome.verdict) for result in run.results)
    seconds = [result.seconds for result in run.results]
    return {
        "seed": run.plan.seed,
        "damages": len(run.results),
        "failed": len(failures(run)),
        "verdicts": {str(verdict): verdicts[str(verdict)] for verdict in Verdict},
        "found_by": dict(Counter(of.outcome.found_by for of in run.results if of.outcome.found_by)),
        "seconds_each": round(sum(seconds) / len(seconds), 2) if seconds else None,
        "results": [_row(run.plan, result) for result in run.results],
    }


def _row(plan: Plan, result: Result) -> dict[str, Any]:
    damage = result.damage
    return {
        "number": damage.number,
        "seed": plan.seed,
        "file": damage.file,
        "file_kind": damage.file_kind,
        "kind": damage.kind,
        "detail": damage.detail,
        "replication_factor": damage.replication_factor,
        "last_to_leave": damage.setting.is_last,
        "stopped": "killed" if damage.setting.is_killed else "clean",
        "verdict": str(result.outcome.verdict),
        "found_by": result.outcome.found_by,
        "stories": list(result.outcome.stories),
        "seconds": round(result.seconds, 2),
        "again": repeat_command(plan, result),
    }


def write_line(path: Path, plan: Plan, result: Result) -> None:
    """Append a damage to a file of JSON lines, so that results are kept if the run is interrupted."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(_row(plan, result)) + "\n")


def print_result(run: DamageRun, console: Console) -> None:
    """Print the table of kinds of files and of damage, and each failure."""
    found = figures(run)
    each = f", {found['seconds_each']:.1f} s each" if run.results else ""
    title = f"{found['damages']:,} damages of one file, seed {run.plan.seed}{each}"
    table = Table("file", *KINDS, title=title, box=None, pad_edge=False)
    table.title_justify = "left"
    cells: dict[tuple[str, str], Counter[Verdict]] = {}
    for result in run.results:
        cell = cells.setdefault((result.damage.file_kind, result.damage.kind), Counter())
        cell[result.outcome.verdict] += 1
    for file_kind in sorted({result.damage.file_kind for result in run.results}):
        table.add_row(file_kind, *(_cell(cells.get((file_kind, kind), Counter())) for kind in KINDS))
    console.print(table)
    console.print(", ".join(f"{name}: {count:,}" for name, count in found["verdicts"].items()), highlight=False)
    if found["found_by"]:
        by = ", ".join(f"{count} by {who}" for who, count in found["found_by"].items())
        console.print(f"hidden damages were found: {by}", highlight=False)
    _print_failures(run, console)


def _cell(counts: Counter[Verdict]) -> str:
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])


def _print_failures(run: DamageRun, console: Console) -> None:
    failed = failures(run)
    for result in failed[:FAILURES_SHOWN]:
        console.print(f"✗ {result.outcome.verdict}: {result.damage}", markup=False, highlight=False, soft_wrap=True)
        for story in result.outcome.stories[:STORIES_SHOWN]:
            console.print(f"    {story[:STORY_CHARACTERS]}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"    {repeat_command(run.plan, result)}", markup=False, highlight=False, soft_wrap=True)
    if len(failed) > FAILURES_SHOWN:
        console.print(f"✗ and {len(failed) - FAILURES_SHOWN} more, which --json has")
