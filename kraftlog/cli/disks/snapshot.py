"""`kraftlog snapshot`: take, list, show, check and copy snapshots."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraftlog.cli.shared.options import Output, OutputOption, endpoints, is_on_command_line, path_argument, run_async
from kraftlog.cli.shared.output import print_fields, print_json, print_json_line, print_rows, say

if TYPE_CHECKING:
    from kraftlog.commands.snapshots import Progress
    from raft.core.types import OffsetAndEpoch

app = typer.Typer(help="Snapshots of the metadata.", no_args_is_help=True, rich_markup_mode=None)

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_NODES: Final = typer.Option(
    "--bootstrap-server",
    envvar="KRAFTLOG_BOOTSTRAP_SERVER",
    metavar="HOST:PORT[,HOST:PORT]",
    help="Nodes; the first that answers is used, leader or not.",
)
Nodes = Annotated[str, _NODES]
NodesOrNone = Annotated[str | None, _NODES]
SnapshotFile = Annotated[Path, typer.Argument(parser=path_argument, metavar="FILE", help="A snapshot.")]
SnapshotFiles = Annotated[list[Path], typer.Argument(parser=path_argument, metavar="FILE...", help="Snapshots.")]


@app.command()
def create(bootstrap_server: Nodes, output: OutputOption = Output.TABLE) -> None:
    """Have a node take a snapshot. Waits until it is durable. If nothing was applied since the last snapshot, returns
    the last one.
    """
    from kraftlog.commands import snapshots

    taken = run_async(snapshots.create(endpoints(bootstrap_server)))
    if output is Output.JSON:
        print_json(taken)
        return
    is_new = taken.pop("IsNew")
    print_fields(taken, output)
    if not is_new:
        say("It existed before; nothing was applied since.")


@app.command("list")
def list_snapshots(
    context: typer.Context,
    directory: Annotated[
        Path | None,
        typer.Argument(
            parser=path_argument, metavar="DIR", help="A node's data directory, or a directory of snapshots."
        ),
    ] = None,
    bootstrap_server: NodesOrNone = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the snapshots of a node, or in a directory.

    Changes nothing, and the node may run.
    """
    if directory is not None:
        if is_on_command_line(context, "bootstrap_server"):
            raise typer.BadParameter(
                "it and DIR name two sources; leave one of them out", param_hint="--bootstrap-server"
            )
        _list_directory(directory, output)
        return
    if bootstrap_server is None:
        raise typer.BadParameter("name a directory, or nodes with --bootstrap-server", param_hint="DIR")
    from kraftlog.commands import snapshots
    from kraftlog.offline.snapshot_files import COLUMNS

    print_rows(COLUMNS, run_async(snapshots.listing(endpoints(bootstrap_server))), output)


def _list_directory(directory: Path, output: Output) -> None:
    from kraftlog.offline.snapshot_files import COLUMNS, list_directory

    rows = list_directory(directory)
    print_rows(COLUMNS, rows, output)
    if output is Output.TABLE:
        for row in rows:
            if "Problem" in row:
                say(f"{row['Path']}: {row['Problem']}")


@app.command()
def inspect(
    file: SnapshotFile,
    show_records: Annotated[
        bool, typer.Option("--records", help="Print the records instead, as JSON lines, like `kraftlog watch`.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what a snapshot is and what it holds.

    Reads all of it first, and shows nothing of a damaged one. Changes nothing.
    """
    from kraftlog.offline import snapshot_files

    if show_records:
        for record in snapshot_files.decoded_records(file):
            print_json_line(record)
        return
    found = snapshot_files.inspect(file)
    if output is Output.JSON:
        print_json(found)
        return
    by_type = found.pop("RecordsByType")
    print_fields(found, output)
    say("")
    rows: list[dict[str, Any]] = [{"RecordType": name, "Records": count} for name, count in by_type.items()]
    print_rows(("RecordType", "Records"), rows, output)


@app.command()
def verify(files: SnapshotFiles, output: OutputOption = Output.TABLE) -> None:
    """Report whether snapshots are whole, or where they are damaged.

    Reads all of each, and changes nothing. The exit code is 0 if all are whole, 1 if any is damaged or cannot be read.
    """
    from kraftbase.errors import StorageError
    from kraftlog.offline.file_reports import COLUMNS
    from kraftlog.offline.snapshot_files import verify_files

    checks = verify_files(files)
    rows = [report.row() for report in checks.reports]
    if rows and output is Output.JSON:
        print_json({"IsSound": checks.are_sound, "Files": rows})
    elif rows:
        print_rows(COLUMNS, rows, output)
        for report in checks.reports:
            for line in report.lines():
                say(line)
    if checks.failures:
        raise StorageError("; ".join(map(str, checks.failures)))
    if not checks.are_sound:
        raise typer.Exit(1)


@app.command()
def save(
    bootstrap_server: Nodes,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            parser=path_argument,
            metavar="FILE_OR_DIR",
            help="An existing directory, in which the file is named after the snapshot; or a file of exactly that"
            " name.",
        ),
    ],
    end_offset: Annotated[
        int | None, typer.Option("--end-offset", min=0, max=INT64_MAX, help="Of the snapshot; else the newest.")
    ] = None,
    epoch: Annotated[int | None, typer.Option("--epoch", min=0, max=INT32_MAX, help="Of the snapshot.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Copy a snapshot of a node to this machine.

    A snapshot's name is its id: END_OFFSET-EPOCH.checkpoint, with 20 and 10 digits. A FILE of such a name selects that
    snapshot; any other name is refused. An existing file is never replaced, and the copy appears only after it was
    verified and is durable.
    """
    from kraftlog.commands import snapshots

    wanted = _wanted(end_offset, epoch)
    with _progress() as progress:
        saved = run_async(snapshots.save(endpoints(bootstrap_server), to, wanted, progress))
    print_fields(saved, output)


def _wanted(end_offset: int | None, epoch: int | None) -> OffsetAndEpoch | None:
    from kraftbase.types import Epoch, Offset
    from raft.core.types import OffsetAndEpoch

    if end_offset is None and epoch is None:
        return None
    if end_offset is None or epoch is None:
        raise typer.BadParameter("a snapshot's id has both; give both or none", param_hint="--end-offset / --epoch")
    return OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(end_offset))


@contextmanager
def _progress() -> Iterator[Progress]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda received, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("snapshot", total=None)
        yield lambda received, total: bar.update(task, completed=received, total=total)
