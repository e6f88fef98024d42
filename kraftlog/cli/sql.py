"""`kraftlog sql`: one read-only SQL statement on the metadata of a live node, a data directory or a snapshot."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from kraftlog.cli.options import Output, OutputOption, endpoints, path_argument, run_async
from kraftlog.cli.output import complain, print_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kraftbase.endpoint import Endpoint

ROWS_MAX: Final = 1_000_000
TIMEOUT_SECONDS: Final = 60.0
"""The limit of a query on a file: no other client waits for it."""


_BEGINS_WITH_COMMENT: Final = re.compile(r"--[^=\s]*\s")
"""No option has white space in its name."""


class StatementCommand(TyperCommand):
    """Accepts a statement that begins with a comment, which the parser would take for an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As click does, but for such a statement."""
        statement = next(filter(_BEGINS_WITH_COMMENT.match, args), None)
        if statement is not None and "--" not in args:
            args.remove(statement)
            args += ["--", statement]
        return super().parse_args(ctx, args)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sql", cls=StatementCommand)(sql)


def sql(
    statement: Annotated[str, typer.Argument(metavar="SQL", help='One SELECT, such as "select * from topics".')],
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", parser=path_argument, metavar="FILE", help="A snapshot, a .checkpoint file."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", parser=path_argument, metavar="DIR", help="A node's data directory, also live."),
    ] = None,
    kafka: Annotated[
        Path | None,
        typer.Option("--kafka", parser=path_argument, metavar="DIR", help="A Kafka's directory, or a copy of it."),
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            envvar="KRAFTLOG_BOOTSTRAP_SERVER",
            metavar="HOST:PORT[,HOST:PORT]",
            help="Any nodes of a running cluster: used if neither file nor directory is named.",
        ),
    ] = None,
    replicas: Annotated[
        bool,
        typer.Option("--replicas", help="Ask how far each replica is, as its leader sees it, and not the metadata."),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask the metadata in SQL. Tables and views are listed in docs/sql.md. Nothing can be changed.

    What follows -- is the statement, whatever it begins with.
    """
    if (snapshot, directory, kafka).count(None) < 2:
        raise typer.BadParameter("name a snapshot or a directory, not both")
    if replicas:
        if (snapshot, directory, kafka).count(None) < 3:
            raise typer.BadParameter("only live leaders know that: name no file", param_hint="--replicas")
        if bootstrap_server is None:
            raise typer.BadParameter("name nodes of the running cluster", param_hint="--bootstrap-server")
        _answer_from_leaders(endpoints(bootstrap_server), statement, output)
        return
    if snapshot is not None:
        columns, rows = _from_snapshot(snapshot, statement)
    elif directory is not None:
        columns, rows = _from_directory(directory, statement)
    elif kafka is not None:
        from kraftlog.cli.kafka import answer_from_kafka

        answer_from_kafka(kafka, statement, output)
        return
    elif bootstrap_server is not None:
        from kraftlog.commands.admin import query

        columns, rows = run_async(query(endpoints(bootstrap_server), statement))
    else:
        raise typer.BadParameter("name --bootstrap-server, --directory, --snapshot or --kafka")
    _print(columns, rows, output)


def _answer_from_leaders(addresses: tuple[Endpoint, ...], statement: str, output: Output) -> None:
    from kraftlog.clients.replica_tables import replica_database
    from kraftlog.clients.replicas import describe_replicas

    found = run_async(describe_replicas(addresses, ()))
    with closing(replica_database(found)) as connection:
        print_answer(connection, statement, output)
    for error in found.silent.values():
        complain(str(error))
    if found.silent:
        raise typer.Exit(1)


def print_answer(connection: sqlite3.Connection, statement: str, output: Output) -> None:
    """Run one statement, which can only read, and print what it finds."""
    _print(*_run(connection, statement), output)


def _print(columns: Sequence[str], rows: Iterable[tuple[Any, ...]], output: Output) -> None:
    named = _distinct(columns)
    print_rows(named, [dict(zip(named, map(_shown, row), strict=True)) for row in rows], output)


def _from_snapshot(path: Path, statement: str) -> tuple[Sequence[str], Iterable[tuple[Any, ...]]]:
    from kraftlog.cli.shell import load_snapshot

    with closing(load_snapshot(path)) as connection:
        return _run(connection, statement)


def _from_directory(path: Path, statement: str) -> tuple[Sequence[str], Iterable[tuple[Any, ...]]]:
    from kraftbase.errors import StorageError
    from statemachine.store.private_copy import open_copy

    database = path / "metadata.db"
    if not database.is_file():
        raise StorageError(f"there is no {database}; name the data directory of a node")
    with closing(open_copy(database)) as connection:  # a live node must not wait for a query
        return _run(connection, statement)


def _run(connection: sqlite3.Connection, statement: str) -> tuple[Sequence[str], Iterable[tuple[Any, ...]]]:
    from statemachine.store.sql import run_query

    found = run_query(connection, statement, rows_max=ROWS_MAX, timeout_seconds=TIMEOUT_SECONDS)
    return found.columns, found.rows


def _distinct(columns: Sequence[str]) -> list[str]:
    """The names of the columns, each once: a second `count(*)` becomes `count(*) 2`."""
    named: list[str] = []
    for column in columns:
        count = sum(name == column or name.startswith(f"{column} ") for name in named)
        named.append(f"{column} {count + 1}" if column in named else column)
    return named


def _shown(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
