"""`kraftlog chaos full-disks --json FILE`: exit code 0 if the disks fill with data only and the cluster continues."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kraftlog.chaos.session import VIOLATED, WELL, Session
from kraftlog.chaos.soak.full_disks import DISK_MEGABYTES, PARTITIONS_PER_TOPIC, VOTERS, FullDisks
from kraftlog.chaos.soak.report import size
from kraftlog.chaos.soak.samples import FileKind


def main(words: Sequence[str], console: Console) -> int:
    """Run, report, and keep the directory if there is something to inspect. Raises DirectoryNotEmpty."""
    arguments = _arguments(words)
    session = Session(arguments.dir, console)
    run = FullDisks(session.directory)
    code = session.run(run.run(), lambda: f"{run.stage}: {run.filling.acknowledged:,} topics acknowledged")
    if code not in (WELL, VIOLATED):
        return code
    _print(run, console)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures(run), indent=2) + "\n", encoding="utf-8")
    if code == VIOLATED:
        console.print(f"the nodes' logs and data are in {session.directory}/cluster", markup=False)
    return code


def figures(run: FullDisks) -> dict[str, Any]:
    """Return everything that was measured."""
    return {
        "left_out": run.left_out,
        "fill_seconds": round(run.fill_seconds, 1),
        "topics_when_full": run.acknowledged_when_full,
        "partitions_per_topic": PARTITIONS_PER_TOPIC,
        "disks": [
            {
                "node": disk.sample.node_id,
                "is_full": disk.is_full,
                "free_bytes": disk.free_bytes,
                "share_worth_keeping": round(disk.share_worth_keeping, 3),
                **{kind.value: size for kind, size in disk.sample.file_bytes.items()},
            }
            for disk in run.found
        ],
        "goes_on_after_seconds": None if run.go_on_seconds is None else round(run.go_on_seconds, 2),
        "violations": run.violations,
    }


def _print(run: FullDisks, console: Console) -> None:
    if run.left_out is not None:
        console.print(f"full disks: left out: {run.left_out}", markup=False)
        return
    title = f"{VOTERS} voters with disks of {DISK_MEGABYTES} MB"
    table = Table("node", *FileKind, "free", "worth keeping", title=title, box=None)
    table.title_justify = "left"
    for column in table.columns[1:]:
        column.justify = "right"
    for disk in run.found:
        sizes = [size(disk.sample.file_bytes[kind]) for kind in FileKind]
        table.add_row(str(disk.sample.node_id), *sizes, size(disk.free_bytes), f"{disk.share_worth_keeping:.0%}")
    console.print(table)
    console.print(
        f"{run.acknowledged_when_full:,} topics of {PARTITIONS_PER_TOPIC} partitions in {run.fill_seconds:.1f} s;"
        f" then it stopped: {run.filling.last_error or 'nothing was refused'}",
        highlight=False,
        markup=False,
    )
    if run.go_on_seconds is not None:
        console.print(f"{run.go_on_seconds:.2f} s after the disks had grown it continued, in the same processes")
    for story in run.violations:
        console.print(f"✗ {story}", markup=False, highlight=False)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kraftlog chaos full-disks",
        description=f"{VOTERS} voters fill disks of {DISK_MEGABYTES} MB, which then grow. Needs root, for tmpfs.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="keep all files in this directory; default: only after a failure"
    )
    return parser.parse_args(words)
