"""Summarizes measured times in a few figures, as JSON and as a table with bars."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from kraftlog.analytics.rendering import bar

MICROSECONDS_PER_MILLISECOND: Final = 1000
PERCENTILES: Final = (50, 90, 99)


def summary(times_ms: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99, max and mean of at least one time, in milliseconds."""
    ordered = sorted(times_ms)
    figures = {f"p{percent}": percentile(ordered, percent) for percent in PERCENTILES}
    figures["max"] = ordered[-1]
    figures["mean"] = math.fsum(ordered) / len(ordered)
    return {name: round(value, 3) for name, value in figures.items()}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of the ordered values that at least `percent` % of them do not exceed (nearest rank)."""
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[max(rank, 1) - 1]


def times_table(title: str, rows: Sequence[tuple[str, dict[str, float]]]) -> Table:
    """One row per summary, with a bar of its mean; all bars have one scale."""
    table = Table("", "p50", "p90", "p99", "max", "mean", "mean, ms", title=title, title_justify="left", box=None)
    for column in table.columns[1:6]:
        column.justify = "right"
    longest = max((figures["mean"] for _, figures in rows), default=0.0)
    for label, figures in rows:
        numbers = [f"{figures[name]:.2f}" for name in ("p50", "p90", "p99", "max", "mean")]
        table.add_row(label, *numbers, bar(_microseconds(figures["mean"]), _microseconds(longest)))
    return table


def _microseconds(milliseconds: float) -> int:
    return round(milliseconds * MICROSECONDS_PER_MILLISECOND)


def write_json(path: Path | None, result: Any) -> None:
    """Write a benchmark's result to the file that `--json` named, if it did."""
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
