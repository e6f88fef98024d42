"""`kraftlog watch`, `export` and `report`: the committed log as JSON lines, as Parquet, and as a report of Spark."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraftlog.cli.shared.options import (
    BootstrapServer,
    BootstrapServerOrNone,
    Output,
    OutputOption,
    endpoints,
    is_on_command_line,
    path_argument,
    run_async,
    usage,
)
from kraftlog.cli.shared.output import note, print_fields, print_json, print_json_line, print_renderable
from kraftlog.cli.shared.progress import late_progress
from kraftlog.cli.shared.streams import ended_with_reader

if TYPE_CHECKING:
    from kraftbase.endpoint import Endpoint
    from kraftlog.analytics.export import ExportSummary
    from kraftpb.v1 import log_pb2


OFFSET_MAX: Final = 2**63 - 1
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
WAITING_NOTE_SECONDS: Final = 5.0
"""After this time without a leader or a record, `watch` prints on standard error what it waits for."""
TIMEOUT_HINT: Final = "all records known to be committed are printed; raise --timeout, or leave it out"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("watch")(watch)
    app.command("export")(export)
    app.command("report")(report)


def watch(
    bootstrap_server: BootstrapServer,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="earliest|latest|OFFSET",
            help="Where to begin: the log's start, the next record, or that offset.",
        ),
    ] = EARLIEST,
    until: Annotated[
        int | None,
        typer.Option(
            "--until", min=0, max=OFFSET_MAX, help="Stop before this offset; without it: continue until Ctrl-C."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Stop after this number of records.")] = None,
) -> None:
    """Print committed records as JSON lines.

    Continues as more are committed, from another node if the one that it follows fails.
    """
    wanted = usage(_parse_begin, begin, "--from")
    if isinstance(wanted, int):
        _check_until(until, wanted)
    run_async(_watch(endpoints(bootstrap_server), wanted, until, limit), timeout_hint=TIMEOUT_HINT)


def _parse_begin(text: str) -> int | str:
    """An offset, or one of the words that stand for an offset. Raises ValueError."""
    if text in (EARLIEST, LATEST):
        return text
    if not text.isascii() or not text.isdigit() or int(text) > OFFSET_MAX:
        raise ValueError(
            f"{text!r} is not an offset to begin at; write {EARLIEST}, {LATEST} or an offset up to {OFFSET_MAX}"
        )
    return int(text)


def _check_until(until: int | None, start: int) -> None:
    if until is not None and until < start:
        raise typer.BadParameter(
            f"{until} is below {start}, where --from begins; give a higher one", param_hint="--until"
        )


async def _watch(addresses: tuple[Endpoint, ...], begin: int | str, until: int | None, limit: int | None) -> None:
    from kraftbase.errors import ApiError, ErrorCode
    from kraftlog.admin.client.connection import describe_any

    waiting = asyncio.get_running_loop().call_later(
        WAITING_NOTE_SECONDS, note, "waiting for a leader: nothing is known to be committed without one"
    )
    try:
        node = await describe_any(
            addresses
        )  # at the first attempt, no answer of any node is an error; later the command waits for an answer
        start = await _start_offset(addresses, node, begin)
        _check_until(until, start)
        with ended_with_reader():
            await _print_records(addresses, node.cluster_id, start, until, limit, waiting)
    except ApiError as error:
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            hint = f"--from {EARLIEST} begins where it starts now"
            raise ApiError(error.code, f"{error.args[0]}; {hint}") from None
        raise
    finally:
        waiting.cancel()


async def _start_offset(addresses: tuple[Endpoint, ...], node: log_pb2.DescribeNodeResponse, begin: int | str) -> int:
    """The offset to begin with; prints on standard error if the log does not reach it yet."""
    if begin == EARLIEST:
        return int(node.log_start_offset)
    if isinstance(begin, int) and begin <= node.high_watermark:
        return begin
    from kraftlog.commands.clients import committed_end_offset

    # Only the leader knows the newest high watermark; its followers learn it a little later.
    end_offset = max(int(node.high_watermark), await committed_end_offset(addresses))
    if not isinstance(begin, int):
        return max(0, end_offset)
    if begin > end_offset:
        note(f"offset {begin} is beyond the high watermark, {end_offset}: waiting until the log reaches it")
    return begin


async def _print_records(
    addresses: tuple[Endpoint, ...],
    cluster_id: str,
    start: int,
    until: int | None,
    limit: int | None,
    waiting: asyncio.TimerHandle,
) -> None:
    from kraftbase.sentinels import NO_LEADER
    from kraftbase.types import Offset
    from kraftlog.offline.record_json import committed_records
    from raft import observe

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
    context: typer.Context,
    to: Annotated[
        Path,
        typer.Option("--to", parser=path_argument, metavar="DIR", help="The export's directory; continues an export."),
    ],
    bootstrap_server: BootstrapServerOrNone = None,
    kafka: Annotated[
        Path | None,
        typer.Option("--kafka", parser=path_argument, metavar="DIR", help="Export a Kafka's directory, or a copy."),
    ] = None,
    with_tail: Annotated[
        bool,
        typer.Option(
            "--with-tail",
            help="With --kafka: also export the records after its newest snapshot, which may be uncommitted.",
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write committed records to Parquet files.

    Continues where the last export into that directory ended; a manifest lists the offsets of each file. Of a Kafka's
    directory it exports what its newest snapshot contains, in the same form.
    """
    if kafka is not None:
        if is_on_command_line(context, "bootstrap_server"):
            raise typer.BadParameter("both options name a source; leave one of them out", param_hint="--kafka")
        summary = _export_kafka(kafka, to, with_tail=with_tail)
    elif with_tail:
        raise typer.BadParameter(
            "only a Kafka's directory has a tail; name the directory with --kafka", param_hint="--with-tail"
        )
    elif bootstrap_server is not None:
        from kraftlog.analytics.export import export_from

        summary = run_async(export_from(endpoints(bootstrap_server), to))
    else:
        raise typer.BadParameter("name nodes, or a Kafka's directory with --kafka", param_hint="--bootstrap-server")
    fields: dict[str, Any] = {
        "Directory": str(to),
        "StartOffset": summary.start_offset,
        "EndOffset": summary.end_offset,
        "Rows": summary.rows,
        "Files": summary.files,
        "ManifestVersion": summary.manifest_version,
    }
    print_fields(fields, output)


def _export_kafka(path: Path, to: Path, *, with_tail: bool) -> ExportSummary:
    from kraftlog.analytics.export import export as make_export
    from kraftlog.offline.kafka.directory import open_directory
    from kraftlog.offline.kafka.export_source import KafkaSource, check_continues, log_ends

    directory = open_directory(path)
    directory.refuse_inside(to)
    with late_progress("reading the log") as progress:
        check_continues(directory, to, progress)
        ends = log_ends(directory, progress)
    with late_progress("exporting") as progress:
        source = KafkaSource(directory, ends.end_offset if with_tail else ends.certain_offset, progress)
        summary = run_async(make_export(source, to))
    if ends.end_offset > ends.certain_offset:
        behind = f"offsets {ends.certain_offset} to {ends.end_offset - 1} are after the newest snapshot"
        told = "may be uncommitted" if with_tail else "may be uncommitted, and are not exported; --with-tail does"
        note(f"note: {behind} and {told}")
    return summary


def report(
    source: Annotated[
        Path, typer.Option("--from", parser=path_argument, metavar="DIR", help="The directory of an export.")
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Let Spark report what an export holds.

    Topics and partitions by broker, records by type and over time, leaders of the quorum. Needs Java 17.
    """
    from kraftlog.analytics.report import replayable_manifest
    from kraftlog.analytics.report import report as make_report
    from kraftlog.analytics.session import local_spark

    replayable_manifest(source)  # an error in the export is reported at once: Spark takes seconds to start
    spark = local_spark()
    try:
        found = make_report(spark, source)
    finally:
        spark.stop()
    if output is Output.JSON:
        print_json(found.to_dict())
        return
    from kraftlog.analytics.rendering import render

    print_renderable(render(found))
