"""`kraftlog sql`: read-only SQL statements on the metadata of a live node, a data directory or a snapshot."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraftlog.cli.shared.errors import one_line
from kraftlog.cli.shared.options import endpoints, path_argument, run_async
from kraftlog.cli.shared.output import print_error, say
from kraftlog.cli.shared.statements import StatementCommand, print_found, run_statement
from kraftlog.commands.sql_prompt import Ask, Mode, SqlPrompt

if TYPE_CHECKING:
    from kraftbase.endpoint import Endpoint


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sql", cls=StatementCommand)(sql)


Statement = Annotated[
    str | None,
    typer.Argument(
        metavar="[SQL]", help='One SELECT, such as "select * from topics"; a prompt, or standard input, if not given.'
    ),
]
SnapshotFile = Annotated[
    Path | None,
    typer.Option("--snapshot", parser=path_argument, metavar="FILE", help="A snapshot, a .checkpoint file."),
]
NodeDirectory = Annotated[
    Path | None,
    typer.Option("--directory", parser=path_argument, metavar="DIR", help="A node's data directory, also live."),
]
KafkaDirectory = Annotated[
    Path | None,
    typer.Option("--kafka", parser=path_argument, metavar="DIR", help="A Kafka's directory, or a copy of it."),
]
Nodes = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        envvar="KRAFTLOG_BOOTSTRAP_SERVER",
        metavar="HOST:PORT[,HOST:PORT]",
        help="Any nodes of a running cluster: used if neither file nor directory is named.",
    ),
]
FromLeaders = Annotated[
    bool,
    typer.Option("--replicas", help="Query the lag of each replica, as its leader sees it, instead of the metadata."),
]
ModeOption = Annotated[Mode, typer.Option("--output", help="What to print: a table to read, JSON, or CSV.")]


def sql(
    statement: Statement = None,
    snapshot: SnapshotFile = None,
    directory: NodeDirectory = None,
    kafka: KafkaDirectory = None,
    bootstrap_server: Nodes = None,
    replicas: FromLeaders = False,
    output: ModeOption = Mode.TABLE,
) -> None:
    """Query the metadata in SQL. Tables and views are listed in docs/sql.md. Nothing can be changed. The words after --
    are the statement, even if it begins with a dash. At the prompt, .help lists further commands.
    """
    given = (snapshot, directory, kafka).count(None)
    if given < 2:
        raise typer.BadParameter("name a snapshot or a directory, not both")
    if replicas and given < 3:
        raise typer.BadParameter("only live leaders know the lag; name no file or directory", param_hint="--replicas")
    if replicas and bootstrap_server is None:
        raise typer.BadParameter("name nodes of the running cluster", param_hint="--bootstrap-server")
    if snapshot is not None:
        source = _snapshot(snapshot)
    elif directory is not None:
        source = _directory(directory)
    elif kafka is not None:
        source = _kafka(kafka)
    elif bootstrap_server is None:
        raise typer.BadParameter("name --bootstrap-server, --directory, --snapshot or --kafka")
    else:
        addresses = endpoints(bootstrap_server)
        source = _leaders(addresses) if replicas else _nodes(addresses)
    with source as ask:
        prompt = SqlPrompt(ask, print_found, say, output)
        if statement is not None and statement.lstrip().startswith("."):
            prompt.take(statement)
        elif statement is not None:
            print_found(ask(statement), output)
        elif sys.stdin.isatty():
            _converse(prompt)
        else:
            _run_lines(prompt)


def _run_lines(prompt: SqlPrompt) -> None:
    """Run standard input up to its first error."""
    for line in sys.stdin:
        prompt.take(line.rstrip("\n"))
        sys.stdout.flush()  # the sender of the lines may wait for their output
        if prompt.is_done:
            return
    prompt.finish()


def _converse(prompt: SqlPrompt) -> None:
    """Ask for lines until the end of the input. Ctrl-C drops a statement."""
    with suppress(ImportError):  # not on every system
        import readline  # noqa: F401 (lets lines be edited)
    while not prompt.is_done:
        try:
            prompt.take(input(prompt.prompt))
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            prompt.forget()
            say("")
        except Exception as error:
            message = one_line(error)
            if message is None:
                raise
            print_error(message)


# --- where statements run
# -----------------------------------------------------------------------------------------------------


@contextmanager
def _leaders(addresses: tuple[Endpoint, ...]) -> Iterator[Ask]:
    from kraftlog.clients.replica_tables import replica_database
    from kraftlog.clients.replicas import describe_replicas

    found = run_async(describe_replicas(addresses, ()))
    with closing(replica_database(found)) as connection:
        yield partial(run_statement, connection)
    for error in found.silent.values():
        print_error(str(error))
    if found.silent:
        raise typer.Exit(1)


@contextmanager
def _nodes(addresses: tuple[Endpoint, ...]) -> Iterator[Ask]:
    from kraftlog.commands.admin import query

    yield lambda statement: run_async(query(addresses, statement))


@contextmanager
def _snapshot(path: Path) -> Iterator[Ask]:
    from kraftlog.cli.shared.snapshots import load_snapshot

    with closing(load_snapshot(path)) as connection:
        yield partial(run_statement, connection)


@contextmanager
def _kafka(path: Path) -> Iterator[Ask]:
    from kraftlog.cli.disks.kafka import kafkas_metadata

    with kafkas_metadata(path) as connection:
        yield partial(run_statement, connection)


@contextmanager
def _directory(path: Path) -> Iterator[Ask]:
    from kraftbase.errors import StorageError
    from statemachine.store.private_copy import open_copy

    database = path / "metadata.db"
    if not database.is_file():
        raise StorageError(f"{database} does not exist; name the data directory of a node")
    with closing(open_copy(database)) as connection:  # a live node must not wait for a query
        yield partial(run_statement, connection)
