"""`kraftlog watch`, `export` and `report`: the committed log as JSON lines, as Parquet, and what Spark says of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraftlog.cli.options import BootstrapServer, Output, OutputOption, endpoints, path_argument, run_async
from kraftlog.cli.output import note, print_fields, print_json, print_json_line, print_renderable

if TYPE_CHECKING:
    from analytics.export import ExportSummary
    from raft.core.types import Endpoint


OFFSET_MAX: Final = 2**63 - 1
WAITING_NOTE_SECONDS: Final = 5.0
"""After so long without a leader or a record, `watch` says on standard error what it waits for."""


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("watch")(watch)
    app.command("export")(export)
    app.command("report")(report)


def watch(
    bootstrap_server: BootstrapServer,
    start: Annotated[int, typer.Option("--from", min=0, max=OFFSET_MAX, help="The first offset.")] = 0,
    until: Annotated[
        int | None,
        typer.Option("--until", min=0, max=OFFSET_MAX, help="Stop before this offset; without it: go on until Ctrl-C."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Stop after so many records.")] = None,
) -> None:
    """Print committed records as JSON lines.

    Goes on as more are committed, from another node if the one that it follows goes away.
    """
    run_async(_watch(endpoints(bootstrap_server), start, until, limit))


async def _watch(addresses: tuple[Endpoint, ...], start: int, until: int | None, limit: int | None) -> None:
    waiting = asyncio.get_running_loop().call_later(
        WAITING_NOTE_SECONDS, note, "waiting for a leader: nothing is known to be committed without one"
    )
    try:
        await _print_records(addresses, start, until, limit, waiting)
    finally:
        waiting.cancel()


async def _print_records(
    addresses: tuple[Endpoint, ...], start: int, until: int | None, limit: int | None, waiting: asyncio.TimerHandle
) -> None:
    from kraftlog.connection import describe_any
    from kraftlog.record_json import committed_records
    from raft import observe
    from raft.core.types import NO_LEADER, Offset

    cluster_id = (await describe_any(addresses)).cluster_id  # nobody there is an error at first, later it is waited out
    end_offset = None if until is None else Offset(until)
    printed = 0
    async for watched in observe.watch(
        addresses, start_offset=Offset(start), end_offset=end_offset, cluster_id=cluster_id
    ):
        if watched.batches or watched.leader.leader_id != NO_LEADER:
            waiting.cancel()
        for batch in watched.batches:
            for record in committed_records(batch):
                if record["offset"] < start or (until is not None and record["offset"] >= until):
                    continue
                print_json_line(record)
                printed += 1
                if printed == limit:
                    return


def export(
    bootstrap_server: BootstrapServer,
    to: Annotated[
        Path, typer.Option("--to", parser=path_argument, metavar="DIR", help="The export's directory; it is continued.")
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Write committed records to Parquet files.

    Takes up where the last export into that directory ended; a manifest says which offsets are where.
    """
    from analytics.export import export_from

    summary: ExportSummary = run_async(export_from(endpoints(bootstrap_server), to))
    fields: dict[str, Any] = {
        "Directory": str(to),
        "StartOffset": summary.start_offset,
        "EndOffset": summary.end_offset,
        "Rows": summary.rows,
        "Files": summary.files,
        "ManifestVersion": summary.manifest_version,
    }
    print_fields(fields, output)


def report(
    source: Annotated[
        Path, typer.Option("--from", parser=path_argument, metavar="DIR", help="The directory of an export.")
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Let Spark tell what an export holds.

    Topics and partitions by broker, records by type and over time, leaders of the quorum. Needs Java 17.
    """
    from analytics.report import replayable_manifest
    from analytics.report import report as make_report
    from analytics.session import local_spark

    replayable_manifest(source)  # what is wrong with the export is told at once: Spark takes seconds to start
    spark = local_spark()
    try:
        found = make_report(spark, source)
    finally:
        spark.stop()
    if output is Output.JSON:
        print_json(found.to_dict())
        return
    from analytics.rendering import render

    print_renderable(render(found))
