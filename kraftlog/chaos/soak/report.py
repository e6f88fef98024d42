"""A soak in figures: a line while it runs; a table, JSON and a plot at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from kraftlog.chaos.soak.bounds_checker import Point, Worst
from kraftlog.chaos.soak.plot import blocks, svg
from kraftlog.chaos.soak.run import Soak
from kraftlog.chaos.soak.samples import FileKind
from kraftlog.sim.quorum.registers.history import Outcome

OUTCOMES: Final = (Outcome.ACKNOWLEDGED, Outcome.REFUSED, Outcome.UNKNOWN)
FAULTS: Final = ("kills", "graceful restarts", "slow readers", "snapshots on demand", "pauses", "disks filled")
BLOCKS_WIDTH: Final = 48
KIBIBYTE: Final = 1024


def progress_line(soak: Soak) -> str:
    """The progress of the run."""
    if soak.arena is None or soak.load is None or not soak.phases:
        return "starting"
    most = {kind: max((sample.file_bytes[kind] for sample in soak.latest), default=0) for kind in FileKind}
    resident = max((sample.process.resident_bytes for sample in soak.latest if sample.process), default=0)
    faults = " and ".join(soak.under_way.values()) or "peace"
    return (
        f"{soak.arena.elapsed_seconds:3.0f} of {soak.plan.seconds:g} s:"
        f" {soak.load.outcomes[Outcome.ACKNOWLEDGED]:,} operations; log {size(most[FileKind.LOG])},"
        f" snapshots {size(most[FileKind.SNAPSHOTS])}, database {size(most[FileKind.DATABASE])},"
        f" -wal {size(most[FileKind.WAL])}, memory {size(resident)}; now {faults}"
    )


def figures(soak: Soak) -> dict[str, Any]:
    """Return everything that was measured and counted."""
    counts = soak.arena.counts if soak.arena is not None else {}
    outcomes = soak.load.outcomes if soak.load is not None else {}
    return {
        "seed": soak.plan.seed,
        "seconds": soak.plan.seconds,
        "operations_per_second_wanted": soak.plan.operations_per_second,
        "phases": [
            {
                "name": phase.name,
                "seconds": round(phase.ended - phase.began, 1),
                "acknowledged": phase.acknowledged,
                "operations_per_second": round(phase.operations_per_second, 1),
                "elections": phase.elections,
            }
            for phase in soak.phases
        ],
        "operations": {outcome.value: outcomes.get(outcome, 0) for outcome in OUTCOMES},
        "written_bytes_per_operation": _written_per_operation(soak),
        "faults_left_out": soak.left_out,
        "faults": {name: counts.get(name, 0) for name in FAULTS},
        "bounds": [worst_figures(worst) for worst in soak.checker.worst.values()],
        "bytes_over_time": [
            {"at_seconds": round(point.at_seconds, 1), **{kind.value: point.file_bytes[kind] for kind in FileKind}}
            for point in soak.checker.points
        ],
        "violations": soak.violations,
    }


def print_result(soak: Soak, console: Console) -> None:
    """Print the table, the bytes over time, and the violations."""
    found = figures(soak)
    console.print(f"Soak, seed {soak.plan.seed}, {soak.plan.seconds:g} s", style="italic", highlight=False)
    for phase in found["phases"]:
        console.print(
            f"{phase['name']}, {phase['seconds']:.0f} s: {phase['acknowledged']:,} operations acknowledged,"
            f" {phase['operations_per_second']:,.0f} a second ({soak.plan.operations_per_second:g} wanted),"
            f" {phase['elections']:,} elections",
            highlight=False,
        )
    made = ", ".join(f"{count} {name}" for name, count in found["faults"].items())
    console.print(f"{made}; {found['operations']['refused']:,} refused, {found['operations']['unknown']:,} unknown")
    for name, reason in soak.left_out.items():
        console.print(f"{name}: left out: {reason}", markup=False)
    console.print(f"a node wrote {found['written_bytes_per_operation']:,} bytes for each operation", highlight=False)
    console.print(bounds_table(list(soak.checker.worst.values())))
    console.print(bytes_table(soak.checker.points))
    for story in soak.violations:
        console.print(f"✗ {story}", markup=False, highlight=False)


def bounds_table(found: Sequence[Worst]) -> Table:
    """Return a table with each bound, the figure closest to it, and its node and time."""
    table = Table("", "at most", "bound", "of it", "node", "at", "", title="Resources of a node", box=None)
    table.title_justify = "left"
    for column in table.columns[1:6]:
        column.justify = "right"
    for worst in found:
        measure = worst.measure
        show = size if measure.name.split(",")[0].endswith("bytes") else lambda value: f"{value:,.3g}"
        table.add_row(
            measure.name,
            show(measure.value),
            show(measure.limit),
            "" if math.isinf(worst.share) else f"{worst.share:.0%}",
            str(worst.node_id),
            f"{worst.at_seconds:.0f} s",
            "holds" if measure.holds else "✗",
        )
    return table


def bytes_table(points: Sequence[Point]) -> Table:
    """Return a table with the most bytes of any node per kind of file, over time."""
    table = Table("", "most", "at the end", "over time", title="Bytes on disk, of the node with most", box=None)
    table.title_justify = "left"
    for column in table.columns[1:3]:
        column.justify = "right"
    for kind in FileKind:
        values = [point.file_bytes[kind] for point in points]
        if any(values):
            table.add_row(kind.value, size(max(values)), size(values[-1]), blocks(values, BLOCKS_WIDTH))
    return table


def plot(soak: Soak) -> str:
    """Return the bytes over time, as SVG."""
    title = f"Bytes on disk of the node with most; {soak.plan.operations_per_second:g} operations/s wanted"
    return svg(soak.checker.points, title, [(phase.began, phase.name) for phase in soak.phases])


def size(value: float) -> str:
    """Return bytes with a unit."""
    for unit in ("B", "KiB", "MiB"):
        if value < KIBIBYTE:
            return f"{value:,.0f} {unit}" if unit == "B" or value >= 100 else f"{value:,.1f} {unit}"
        value /= KIBIBYTE
    return f"{value:,.2f} GiB"


def worst_figures(worst: Worst) -> dict[str, Any]:
    """Return one bound for the JSON output."""
    return {
        "name": worst.measure.name,
        "most": round(worst.measure.value, 3),
        "bound": round(worst.measure.limit, 3),
        "node": worst.node_id,
        "at_seconds": round(worst.at_seconds, 1),
        "holds": worst.measure.holds,
    }


def _written_per_operation(soak: Soak) -> int:
    acknowledged = soak.load.outcomes[Outcome.ACKNOWLEDGED] if soak.load is not None else 0
    nodes = len(soak.arena.cluster.node_ids) if soak.arena is not None else 1
    return round(soak.checker.written_bytes() / nodes / max(acknowledged, 1))
