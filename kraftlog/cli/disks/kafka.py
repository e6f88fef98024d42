"""`kraftlog kafka`: read a copy of a real Kafka's metadata, and import it (docs/operations/kafka.md)."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraftlog.cli.shared.options import Output, OutputOption, path_argument, usage
from kraftlog.cli.shared.output import note, print_fields, print_json, print_json_line, print_rows, say
from kraftlog.cli.shared.progress import late_progress
from kraftlog.cli.shared.statements import StatementCommand, print_answer

if TYPE_CHECKING:
    from kraftlog.offline.kafka.directory import KafkaDirectory
    from kraftlog.offline.kafka.image import KafkaImage

app = typer.Typer(
    help="A real Kafka's metadata, from a copy of its directory. Nothing is ever written there.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

KafkaDirectoryArgument = Annotated[
    Path,
    typer.Argument(
        parser=path_argument,
        metavar="DIR",
        help="A Kafka node's metadata.log.dir, or the first of its log.dirs, or a copy of it.",
    ),
]
SnapshotOnly = Annotated[
    bool,
    typer.Option("--snapshot-only", help="Use only the newest snapshot: later records may be uncommitted."),
]


@app.command()
def dump(
    path: Annotated[
        Path,
        typer.Argument(
            parser=path_argument, metavar="DIR", help="A Kafka's directory; or one segment or .checkpoint of it."
        ),
    ],
    offsets: Annotated[
        str | None,
        typer.Option("--offsets", metavar="A:B", help="From offset A to before B; either may be left out."),
    ] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only these, such as TOPIC_RECORD; repeatable.")
    ] = None,
) -> None:
    """Print the records of the log as JSON lines.

    Those of a .checkpoint have no offsets. Credentials, tokens and passwords are not shown. A torn end is a line of its
    own, the last. Standard error names the records that may be uncommitted.
    """
    from kraftlog.offline.kafka import dump as dumping

    start, end = usage(dumping.parse_offsets, offsets or ":", "--offsets")
    wanted_types = frozenset(usage(dumping.parse_type, name, "--type") for name in types) if types else None
    last_offset = -1
    # On a terminal the lines themselves show the progress, and a bar would be drawn between them.
    with late_progress("reading the log", is_wanted=not sys.stdout.isatty()) as progress:
        for line in dumping.dump(path, dumping.Wanted(start, end, wanted_types), progress):
            print_json_line(line)
            last_offset = line.get("offset", last_offset)
    _note_all(dumping.warnings(path, last_offset))


@app.command()
def describe(directory: KafkaDirectoryArgument, output: OutputOption = Output.TABLE) -> None:
    """Show the node, its quorum state, the voters, snapshots, epochs, segments, and the node's bootstrap records."""
    from kraftlog.offline.kafka import description
    from kraftlog.offline.kafka.directory import open_directory

    with late_progress("reading the log") as progress:
        found = description.describe(open_directory(directory), progress)
    if output is Output.JSON:
        print_json(found)
        return
    tables = {
        "Voters": description.VOTER_COLUMNS,
        "Snapshots": description.SNAPSHOT_COLUMNS,
        "Epochs": description.EPOCH_COLUMNS,
        "Segments": description.SEGMENT_COLUMNS,
        "Bootstrap": description.BOOTSTRAP_COLUMNS,
    }
    rows = {name: found.pop(name) for name in tables}
    print_fields({name: "" if value is None else value for name, value in found.items()}, output)
    for name, columns in tables.items():
        say("")
        say(f"{name}:")
        print_rows(columns, rows[name], output)


@app.command(cls=StatementCommand)
def sql(
    directory: KafkaDirectoryArgument,
    statement: Annotated[str, typer.Argument(metavar="SQL", help='One SELECT, such as "select * from topics".')],
    snapshot_only: SnapshotOnly = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Load it again, and keep no copy in the user's cache directory.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask a Kafka's metadata in SQL. Tables and views are listed in docs/sql.md. Nothing can be changed."""
    with kafkas_metadata(directory, snapshot_only=snapshot_only, use_cache=not no_cache) as connection:
        print_answer(connection, statement, output)


@contextmanager
def kafkas_metadata(
    directory: Path, *, snapshot_only: bool = False, use_cache: bool = True
) -> Iterator[sqlite3.Connection]:
    """A Kafka's metadata, for statements; notes name what is wrong with it."""
    from kraftlog.offline.kafka.directory import open_directory
    from kraftlog.offline.kafka.statement_cache import StatementCache

    opened = open_directory(directory)
    cache = StatementCache(opened, snapshot_only=snapshot_only)
    if use_cache and (cached := cache.find()) is not None:
        _note_all(cached.warnings)
        connection = cached.connection
    else:
        image = _load(opened, snapshot_only=snapshot_only)
        _note_all(image.warnings())
        connection = image.connection
        image.prepare_for_statements()
        if use_cache:
            cache.keep(connection, image.warnings())
    with closing(connection):
        yield connection


def _load(opened: KafkaDirectory, *, snapshot_only: bool) -> KafkaImage:
    from kraftlog.offline.kafka.image import load_image

    newest = opened.newest_checkpoint
    end_offset = (0 if newest is None else newest.snapshot_id.offset) if snapshot_only else None
    with late_progress("loading") as progress:
        return load_image(opened, newest, end_offset=end_offset, progress=progress)


def _note_all(lines: list[str], named: str = "") -> None:
    for line in lines:
        note(f"note: {named}{line}")


def loaded(directory: Path, *, snapshot_only: bool, named: str = "") -> KafkaImage:
    """A Kafka's metadata; notes about it are printed on standard error, each after `named`."""
    from kraftlog.offline.kafka.directory import open_directory

    image = _load(open_directory(directory), snapshot_only=snapshot_only)
    _note_all(image.warnings(), named)
    return image


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(parser=path_argument, metavar="DIR1", help="A Kafka's directory.")],
    after: Annotated[
        Path, typer.Argument(parser=path_argument, metavar="DIR2", help="Another Kafka's directory, or a later copy.")
    ],
    snapshot_only: SnapshotOnly = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how the metadata in two directories differs: what was added, removed or changed from DIR1 to DIR2. They may
    be of two controllers, or two copies of one. The exit code is 0 if there is no difference, 1 if there is.
    """
    from kraftlog.offline.kafka.differences import COLUMNS, differences

    first = loaded(before, snapshot_only=snapshot_only, named=f"{before}: ")
    with closing(first.connection):
        second = loaded(after, snapshot_only=snapshot_only, named=f"{after}: ")
        with closing(second.connection):
            first.add_other_features()
            second.add_other_features()
            with late_progress("comparing") as progress:
                rows = [found.row() for found in differences(first.connection, second.connection, progress)]
    ends = f"{before} is at offset {first.end_offset}, {after} at {second.end_offset}"
    if rows or output is Output.JSON:
        print_rows(COLUMNS, rows, output)
    if output is Output.TABLE:
        say(f"{len(rows)} differences: {ends}." if rows else f"No differences: {ends}.")
    if rows:
        raise typer.Exit(1)


@app.command("import")
def import_snapshot(
    directory: KafkaDirectoryArgument,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            parser=path_argument,
            metavar="SNAPSHOT",
            help="An existing directory, in which the file is named after the snapshot; or a file of exactly that"
            " name.",
        ),
    ],
    snapshot_only: SnapshotOnly = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a kraftlog snapshot from a Kafka's metadata. `kraftlog restore` makes a cluster of it."""
    from kraftlog.offline.kafka.directory import open_directory
    from kraftlog.offline.kafka.takeover import import_image

    open_directory(directory).refuse_inside(to)
    image = loaded(directory, snapshot_only=snapshot_only)
    with closing(image.connection):
        with late_progress("writing") as progress:
            fields = import_image(image, to, progress)
        closed = image.kept_closed()
    print_fields(fields, output)
    _note_left_out(image.left_out(), "kraftlog")
    if closed:
        note(f"note: kept only for export to a Kafka, neither used nor shown by kraftlog: {', '.join(closed)}")


@app.command()
def export(
    snapshot: Annotated[
        Path, typer.Option("--snapshot", parser=path_argument, metavar="FILE", help="A snapshot of kraftlog's.")
    ],
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            parser=path_argument,
            metavar="FILE",
            help="An existing directory, in which the file is named after the snapshot; or a file of exactly that"
            " name.",
        ),
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a Kafka checkpoint from a kraftlog snapshot. A Kafka starts from it with all topics."""
    from kraftlog.cli.shared.snapshots import load_snapshot
    from kraftlog.offline.kafka.takeover import export_snapshot

    with closing(load_snapshot(snapshot)) as connection, late_progress("writing") as progress:
        fields, left_out = export_snapshot(connection, to, progress)
    print_fields(fields, output)
    _note_left_out(left_out, "a Kafka")


def _note_left_out(left_out: list[str], where: str) -> None:
    if left_out:
        note(f"note: left out, because {where} does not have them: {', '.join(left_out)}")
