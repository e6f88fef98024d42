"""A soak of brokers in figures: a line while it runs; a table and JSON at the end."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console

from kraftlog.chaos.report import print_violations
from kraftlog.chaos.soak.brokers.run import BrokersSoak
from kraftlog.chaos.soak.plot import panels
from kraftlog.chaos.soak.report import bounds_table, size, worst_figures

FAULTS: Final = ("kills", "graceful restarts", "pauses", "elections", "reassignments")
PLOTTED_POINTS: Final = 1_000
RECORDS: Final = (
    "acknowledged",
    "unknown",
    "read",
    "acknowledged and lost",
    "contradictions",
    "deleted before a reader came",
    "producers that could not go on",
    "readers told of a cut",
)


def progress_line(soak: BrokersSoak) -> str:
    """The progress of the run."""
    if soak.arena is None or not soak.phases:
        return "starting"
    processes = [sample.process for sample in soak.latest if sample.process]
    log_bytes = max((sample.log_bytes for sample in soak.latest), default=0)
    return (
        f"{soak.arena.elapsed_seconds:3.0f} of {soak.plan.seconds:g} s: {soak.ledger.counts['acknowledged']:,} records"
        f" acknowledged, {soak.ledger.counts['read']:,} read; of a broker at most log {size(log_bytes)},"
        f" memory {size(max((process.resident_bytes for process in processes), default=0))},"
        f" {max((process.descriptors for process in processes), default=0)} descriptors;"
        f" now {' and '.join(soak.under_way.values()) or 'peace'}"
    )


def figures(soak: BrokersSoak) -> dict[str, Any]:
    """Return everything that was measured and counted."""
    counts = soak.arena.counts if soak.arena is not None else {}
    return {
        "seed": soak.plan.seed,
        "seconds": soak.plan.seconds,
        "records_per_second_wanted": soak.plan.records_per_second,
        "phases": [
            {
                "name": phase.name,
                "seconds": round(phase.ended - phase.began, 1),
                "acknowledged": phase.acknowledged,
                "read": phase.read,
                "quorum_elections": phase.elections,
            }
            for phase in soak.phases
        ],
        "records": {name: soak.ledger.counts[name] for name in RECORDS},
        "beside": {name: number for of in soak.disturbances for name, number in sorted(of.counts.items())},
        "large_requests": dict(sorted(soak.large_requests.counts.items())) if soak.large_requests is not None else {},
        "times_read_back": soak.times_read_back,
        "faults": {name: counts.get(name, 0) for name in FAULTS},
        "bounds": [worst_figures(worst) for worst in soak.checker.worst.values()],
        "over_time": {
            str(node_id): [
                {
                    "at_seconds": round(point.at_seconds, 1),
                    "resident_bytes": point.process.resident_bytes if point.process else None,
                    "descriptors": point.process.descriptors if point.process else None,
                    "threads": point.process.threads if point.process else None,
                    "disk_bytes": point.disk_bytes,
                }
                for point in points
            ]
            for node_id, points in soak.checker.points.items()
        },
        "notes": soak.ledger.notes,
        "violations": soak.violations,
    }


def plot(soak: BrokersSoak) -> str:
    """Return memory, descriptors, and bytes on disk of each process over time, as SVG."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {"resident bytes": {}, "descriptors": {}, "disk bytes": {}}
    for node_id, points in soak.checker.points.items():
        process = f"{soak.kinds[node_id]} {node_id}"
        step = len(points) // PLOTTED_POINTS + 1
        shown = points[::step]
        found["resident bytes"][process] = [
            (of.at_seconds, of.process.resident_bytes if of.process else 0) for of in shown
        ]
        found["descriptors"][process] = [(of.at_seconds, of.process.descriptors if of.process else 0) for of in shown]
        found["disk bytes"][process] = [(of.at_seconds, of.disk_bytes) for of in shown]
    title = f"Resources of brokers and nodes; {soak.plan.records_per_second:g} records/s wanted"
    return panels(found, title, [(phase.began, phase.name) for phase in soak.phases])


def print_result(soak: BrokersSoak, console: Console) -> None:
    """Print the table, and the violations."""
    found = figures(soak)
    console.print(f"Soak of brokers, seed {soak.plan.seed}, {soak.plan.seconds:g} s", style="italic", highlight=False)
    for phase in found["phases"]:
        console.print(
            f"{phase['name']}, {phase['seconds']:.0f} s: {phase['acknowledged']:,} records acknowledged,"
            f" {phase['acknowledged'] / max(phase['seconds'], 0.1):,.0f} a second"
            f" ({soak.plan.records_per_second:g} wanted), {phase['read']:,} read;"
            f" the quorum's epoch rose by {phase['quorum_elections']:,}",
            highlight=False,
        )
    for name in ("records", "beside", "large_requests", "faults"):
        console.print(
            f"{name.replace('_', ' ')}: {', '.join(f'{count:,} {what}' for what, count in found[name].items())}",
            markup=False,
            highlight=False,
        )
    console.print(f"everything was read back {found['times_read_back']:,} times", highlight=False)
    console.print(bounds_table(list(soak.checker.worst.values())))
    print_violations(soak.violations, console)
