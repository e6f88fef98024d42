"""`kraftlog consume`: records of a topic of any broker, as lines or as a digest."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kraftlog.cli.shared.broker_options import INT32_MAX, BrokerServers, ChecksumOption, TopicArgument
from kraftlog.cli.shared.options import Output, endpoints, usage
from kraftlog.cli.shared.output import print_json, print_rows, say_bytes
from kraftlog.cli.shared.progress import late_progress
from kraftlog.cli.shared.streams import check_reader
from kraftlog.clients.positions import BEGINNING, END, FORMS, Position, PositionKind, parse_position

if TYPE_CHECKING:
    from kraftlog.clients.consuming import PartitionRange, RecordConsumer
    from kraftlog.clients.records import Record
    from kraftlog.clients.text_records import Shown
    from kraftlog.clients.totals import Totals


class RecordOutput(StrEnum):
    """How records are printed."""

    TEXT = "text"
    JSON = "json"


class Isolation(StrEnum):
    """Which records of transactions are read: all, or those of committed ones."""

    UNCOMMITTED = "read_uncommitted"
    COMMITTED = "read_committed"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("consume")(consume)


def consume(
    topic: TopicArgument,
    bootstrap_server: BrokerServers,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="ID", min=0, max=INT32_MAX, help="Only this one; may be given again."),
    ] = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar=FORMS, help="Where to begin; a time as 2026-11-24T03:15:00Z or 1764000000000ms."
        ),
    ] = PositionKind.BEGINNING.value,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="end|OFFSET|TIME", help="Stop before this; default: continue until Ctrl-C."),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="The same as --to end: read the present records, then stop.")
    ] = False,
    count: Annotated[int | None, typer.Option("--count", min=1, help="Stop after this number of records.")] = None,
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="Which records of transactions to read.")
    ] = Isolation.UNCOMMITTED,
    keys: Annotated[bool, typer.Option("--keys", help="Print keys.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print headers, as NAME:VALUE,NAME:VALUE.")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Print timestamps, in ms since 1970.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Print offsets, as PARTITION:OFFSET.")] = False,
    checksum: ChecksumOption = False,
    output: Annotated[
        RecordOutput,
        typer.Option("--output", help="What to print: values and the parts chosen by options, or JSON lines."),
    ] = RecordOutput.TEXT,
) -> None:
    """Print the records of a topic of any broker, one per line, without a consumer group.

    The parts before a value are separated by tabs. JSON lines have all parts; produce --json reads them. With
    --checksum only the digest is printed, per partition and of all.
    """
    from kraftlog.clients.broker_errors import require_confluent_kafka
    from kraftlog.clients.text_records import Shown
    from kraftlog.clients.totals import Totals

    start, stop = usage(parse_position, begin, "--from"), _stop(end, until_end=until_end)
    shown = Shown(offsets, timestamps, headers, keys)
    if (checksum or output is RecordOutput.JSON) and shown != Shown():
        hint = "--checksum" if checksum else "--output json"
        raise typer.BadParameter(
            "JSON lines already have all parts of a record; leave --keys, --headers, --timestamps and --offsets out",
            param_hint=hint,
        )
    require_confluent_kafka()
    partitions = _partitions(bootstrap_server, topic, partition or [])
    from kraftlog.clients.consuming import RecordConsumer

    is_committed_only = isolation is Isolation.COMMITTED
    with closing(RecordConsumer(endpoints(bootstrap_server), topic, is_committed_only=is_committed_only)) as consumer:
        ranges = consumer.ranges(partitions, start, stop)
        if checksum:
            totals = Totals(partitions)
            try:
                _read(consumer, ranges, count, totals.add)
            finally:
                _print_totals(totals, output)
        else:
            _read(consumer, ranges, count, _printer(shown, output))


def _stop(end: str | None, *, until_end: bool) -> Position | None:
    if until_end and end is not None:
        raise typer.BadParameter(
            "--until-end and --to both say where to stop; leave one of them out", param_hint="--until-end"
        )
    if end is None:
        return END if until_end else None
    position = usage(parse_position, end, "--to")
    if position == BEGINNING:
        raise typer.BadParameter(
            "there are no records before the beginning; give end, an offset or a time", param_hint="--to"
        )
    return position


def _partitions(bootstrap_server: str, topic: str, wanted: Sequence[int]) -> Sequence[int]:
    from kraftlog.clients.cluster import check_partitions, describe_cluster

    there = describe_cluster(endpoints(bootstrap_server), [topic]).partitions[topic]
    check_partitions(topic, wanted, there)
    return sorted(set(wanted)) or there


def _read(
    consumer: RecordConsumer,
    ranges: Sequence[PartitionRange],
    count: int | None,
    take: Callable[[Sequence[Record]], None],
) -> None:
    """Call `take` with all records that the options select."""
    from kraftlog.admin.client.time_limit import allowed_seconds

    done = 0
    with _progress(ranges, count) as progress:
        for batch in consumer.batches(ranges, allowed_seconds(math.inf)):
            wanted = batch if count is None else batch[: count - done]
            take(wanted)
            done += len(wanted)
            progress(done)
            if done == count:
                return
            if not wanted:
                check_reader()


def _printer(shown: Shown, output: RecordOutput) -> Callable[[Sequence[Record]], None]:
    from kraftlog.clients.json_records import json_of
    from kraftlog.clients.text_records import text_of

    def line(record: Record) -> bytes:
        if output is RecordOutput.JSON:
            return json.dumps(json_of(record), separators=(",", ":")).encode()
        return text_of(record, shown)

    def print_all(records: Sequence[Record]) -> None:
        say_bytes([line(record) for record in records])

    return print_all


@contextmanager
def _progress(ranges: Sequence[PartitionRange], count: int | None) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the records that are read; nothing is shown between records on a terminal."""
    ends = [of.end for of in ranges]
    spans = [0 if of.is_empty else of.end - of.start for of in ranges if of.end is not None]
    total = sum(spans) if len(spans) == len(ends) else None
    total = count if total is None else min(total, count or total)
    with late_progress("consuming", is_wanted=total is not None and not sys.stdout.isatty()) as progress:
        yield lambda done: progress(done, total)


def _print_totals(totals: Totals, output: RecordOutput) -> None:
    if output is RecordOutput.JSON:
        print_json(totals.fields())
        return
    rows = totals.rows()
    print_rows(tuple(rows[0]), rows, Output.TABLE)
