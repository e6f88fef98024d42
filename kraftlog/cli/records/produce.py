"""`kraftlog produce`: records from standard input or a file to a topic of any broker."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from kraftlog.cli.shared.broker_options import INT32_MAX, BrokerServers, ChecksumOption, TopicArgument
from kraftlog.cli.shared.options import Output, OutputOption, endpoints, path_argument
from kraftlog.cli.shared.output import note, print_error, print_fields
from kraftlog.cli.shared.progress import late_progress

if TYPE_CHECKING:
    from kraftlog.clients.producing import RecordProducer
    from kraftlog.clients.records import Record

LINGER_MS_MAX: Final = 60_000
BATCH_BYTES_MAX: Final = 2**31 - 1
WAITING_NOTE_SECONDS: Final = 5.0
"""After this time without an acknowledgment of all records read, `produce` prints that it waits for them."""


class Acks(StrEnum):
    """Which replicas must have a record before it counts as written."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Compression(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("produce")(produce)


def produce(
    topic: TopicArgument,
    bootstrap_server: BrokerServers,
    file: Annotated[
        Path | None,
        typer.Option("--file", parser=path_argument, metavar="FILE", help="Read this file; default: standard input."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="The separator of key and value; default: no keys."),
    ] = None,
    headers: Annotated[
        bool, typer.Option("--headers", help="Each line begins with NAME:VALUE,NAME:VALUE and a tab.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Each line is a JSON object, as consume --output json prints it.")
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option("--partition", metavar="ID", min=0, max=INT32_MAX, help="Write to this one; default: by the key."),
    ] = None,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Which replicas must have a record: none, the leader, or all in sync.")
    ] = Acks.ALL,
    compression: Annotated[
        Compression, typer.Option("--compression", help="How batches are compressed.")
    ] = Compression.NONE,
    idempotence: Annotated[
        bool | None,
        typer.Option(
            "--idempotence/--no-idempotence", help="Write each record once, in order; default: with --acks all."
        ),
    ] = None,
    linger_ms: Annotated[
        int,
        typer.Option(
            "--linger-ms", metavar="MS", min=0, max=LINGER_MS_MAX, help="How long a batch waits for more records."
        ),
    ] = 5,
    batch_bytes: Annotated[
        int,
        typer.Option("--batch-bytes", metavar="BYTES", min=1, max=BATCH_BYTES_MAX, help="The maximum size of a batch."),
    ] = 1_000_000,
    checksum: ChecksumOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write records to a topic of any broker, one per line, and report what was acknowledged.

    A record that could not be written is named by its line; then the exit code is 1. A line that is no record ends the
    command, after the lines before it are written. Ctrl-C waits for records in flight; a second Ctrl-C does not.
    """
    from kraftlog.clients.broker_errors import require_confluent_kafka

    is_idempotent = _is_idempotent(idempotence, acks)
    parse = _parser(key_separator, is_json=json, has_headers=headers)
    require_confluent_kafka()
    from kraftlog.admin.client.time_limit import allowed_seconds
    from kraftlog.clients.producing import DELIVERY_TIMEOUT_SECONDS, ProduceOptions, RecordProducer

    options = ProduceOptions(
        acks, compression, is_idempotent, linger_ms, batch_bytes, allowed_seconds(DELIVERY_TIMEOUT_SECONDS)
    )
    with _opened(file) as stream:
        _check_topic(bootstrap_server, topic, partition)
        producer = RecordProducer(endpoints(bootstrap_server), topic, options, print_error, has_digest=checksum)
        _write(producer, stream, parse, partition, output)


def _is_idempotent(wanted: bool | None, acks: Acks) -> bool:
    if wanted and acks is not Acks.ALL:
        raise typer.BadParameter(
            f"--idempotent needs --acks all, not {acks}; leave one of them out", param_hint="--idempotence"
        )
    return acks is Acks.ALL if wanted is None else wanted


def _parser(key_separator: str | None, *, is_json: bool, has_headers: bool) -> Callable[[bytes], Record]:
    from kraftlog.clients.json_records import record_from_json
    from kraftlog.clients.text_records import record_from_text

    if is_json and (has_headers or key_separator is not None):
        raise typer.BadParameter(
            "a JSON line has its own key and headers; leave the other options out", param_hint="--json"
        )
    if key_separator == "":
        raise typer.BadParameter("it is empty; name a text", param_hint="--key-separator")
    if is_json:
        return record_from_json
    separator = None if key_separator is None else key_separator.encode()
    return partial(record_from_text, key_separator=separator, has_headers=has_headers)


def _check_topic(bootstrap_server: str, topic: str, partition: int | None) -> None:
    from kraftlog.clients.cluster import check_partitions, describe_cluster

    found = describe_cluster(endpoints(bootstrap_server), [topic])
    check_partitions(topic, [] if partition is None else [partition], found.partitions[topic])


def _opened(file: Path | None) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if file is None else file.open("rb")


def _write(
    producer: RecordProducer,
    stream: BinaryIO,
    parse: Callable[[bytes], Record],
    partition: int | None,
    output: Output,
) -> None:
    """Write all lines, wait for the records in flight even after an error, and report."""
    from kraftbase.errors import ApiError
    from kraftlog.clients.producing import write_lines

    ended_by: BaseException | None = None
    started = time.monotonic()
    with _progress(stream) as progress:
        try:
            write_lines(producer, stream, parse, partition, progress)
        except (ApiError, OSError, KeyboardInterrupt) as error:
            ended_by = error
        ended_by = _finish(producer) or ended_by
    _report(producer, time.monotonic() - started, output)
    if ended_by is not None:
        raise ended_by
    if producer.deliveries.failed:
        raise typer.Exit(1)


def _finish(producer: RecordProducer) -> KeyboardInterrupt | None:
    """Wait until each record is written or has failed. Ctrl-C ends the wait, and is returned."""
    try:
        if not producer.finish(WAITING_NOTE_SECONDS):
            note(f"waiting for {producer.waiting} records that are not yet acknowledged; Ctrl-C abandons them")
            producer.finish()
    except KeyboardInterrupt as interrupted:
        producer.abandon()
        return interrupted
    return None


@contextmanager
def _progress(stream: BinaryIO) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the bytes that are read. A user who types is shown nothing."""
    status = os.fstat(stream.fileno())
    total = status.st_size if stat.S_ISREG(status.st_mode) else None
    with late_progress("producing", is_wanted=not stream.isatty()) as progress:
        yield lambda done: progress(done, total)


def _report(producer: RecordProducer, seconds: float, output: Output) -> None:
    found = producer.deliveries
    fields: dict[str, Any] = {
        "Topic": producer.topic,
        "Records": found.written,
        "Bytes": found.bytes_written,
        "Failed": found.failed,
        "Abandoned": found.abandoned,
        "Seconds": round(seconds, 3),
    }
    if producer.has_digest:
        fields["Checksum"] = found.digest.hex()
    if output is Output.TABLE and not found.abandoned:
        del fields["Abandoned"]
    print_fields(fields, output)
