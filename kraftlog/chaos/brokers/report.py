"""A run in figures: a line while it runs, a table and JSON at the end."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console
from rich.table import Table

from kraftlog.chaos.brokers.run import BrokersRun
from kraftlog.chaos.report import print_violations

FAULTS: Final = (
    "graceful restarts",
    "pauses",
    "partitions",
    "slow links",
    "disks filled",
    "ended on a full disk",
    "connections reset",
    "refusals",
    "accept queues filled",
    "elections",
    "reassignments",
)
RECORDS: Final = (
    "acknowledged",
    "unknown",
    "read",
    "acknowledged and lost",
    "contradictions",
    "high watermarks",
    "high watermarks that went back",
    "producers that could not go on",
    "readers told of a cut",
    "written twice",
)


def progress_line(run: BrokersRun) -> str:
    """The progress of the run."""
    if run.arena is None:
        return "starting"
    faults = " and ".join(run.under_way.values()) or "peace"
    wanted = f" of {run.plan.kills}" if run.plan.kills else ""
    return (
        f"{run.arena.elapsed_seconds:3.0f} of {run.plan.seconds:g} s: {run.kills}{wanted} kills of brokers,"
        f" {run.ledger.counts['acknowledged']:,} records acknowledged, {run.ledger.counts['unknown']:,} unknown,"
        f" {run.ledger.counts['read']:,} read; now {faults}"
    )


def figures(run: BrokersRun) -> dict[str, Any]:
    """Return everything that was counted."""
    counts = run.arena.counts if run.arena is not None else {}
    longest_seconds = round(run.freshness.longest_seconds, 2) if run.freshness is not None else 0
    return {
        "seed": run.plan.seed,
        "seconds": round(run.arena.elapsed_seconds, 1) if run.arena is not None else 0,
        "network": run.network.description if run.network is not None else None,
        "faults_left_out": run.left_out,
        "faults": {
            "brokers killed": run.kills,
            "nodes killed": counts.get("kills", 0) - run.kills,
            **{name: counts.get(name, 0) for name in FAULTS},
        },
        "fencings": _fencings(run),
        "records": {name: run.ledger.counts[name] for name in RECORDS},
        "large_requests": dict(sorted(run.large_requests.counts.items())) if run.large_requests is not None else {},
        "metadata_changes": run.freshness.changes if run.freshness is not None else 0,
        "longest_until_a_broker_knew_seconds": longest_seconds,
        "times_read_back": run.times_read_back,
        "longest_pause_seconds": round(run.ledger.longest_pause_seconds, 2),
        "notes": run.ledger.notes,
        "violations": run.violations,
    }


def _fencings(run: BrokersRun) -> dict[str, Any]:
    if run.fencings is None:
        return {}
    counts = dict(sorted(run.fencings.counts.items()))
    return counts | {"longest from an end to the evidence, s": round(run.fencings.longest_seconds, 2)}


def print_result(run: BrokersRun, console: Console) -> None:
    """Print the table, and the details of all violations."""
    found = figures(run)
    title = f"Chaos with brokers, seed {run.plan.seed}, {found['seconds']:g} s"
    table = Table("", "", title=title, box=None, show_header=False)
    table.title_justify = "left"
    table.add_row("network", found["network"])
    for name, count in found["faults"].items():
        table.add_row(name, f"{count:,}")
    for name, reason in run.left_out.items():
        table.add_row(name, f"left out: {reason}")
    for name, count in found["fencings"].items():
        table.add_row(f"fencings: {name}", f"{count:,}")
    for name, count in found["records"].items():
        table.add_row(f"records {name}" if name in ("acknowledged", "unknown", "read") else name, f"{count:,}")
    for name, count in found["large_requests"].items():
        table.add_row(f"large requests: {name}", f"{count:,}")
    table.add_row("times that everything was read back", f"{found['times_read_back']:,}")
    table.add_row("longest without an acknowledgement by a partition", f"{found['longest_pause_seconds']:.2f} s")
    table.add_row("changes of metadata", f"{found['metadata_changes']:,}")
    table.add_row("longest until a broker knew of one", f"{found['longest_until_a_broker_knew_seconds']:.2f} s")
    console.print(table)
    print_violations(run.violations, console)
