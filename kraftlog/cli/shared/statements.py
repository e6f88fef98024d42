"""SQL statements as arguments, and their answers: what the commands that take a statement share."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperCommand

from kraftlog.cli.shared.options import Output
from kraftlog.cli.shared.output import print_csv, print_rows
from kraftlog.commands.sql_prompt import Answer, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS_MAX: Final = 1_000_000
TIMEOUT_SECONDS: Final = 60.0
"""The limit of a query on a file: no other client waits for it."""

_BEGINS_WITH_COMMENT: Final = re.compile(r"--[^=\s]*\s")
"""No option has white space in its name."""


class StatementCommand(TyperCommand):
    """Accepts a statement that begins with a comment, which the parser would otherwise read as an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as click does, except for a statement that begins with a comment."""
        statement = next(filter(_BEGINS_WITH_COMMENT.match, args), None)
        if statement is not None and "--" not in args:
            args.remove(statement)
            args += ["--", statement]
        return super().parse_args(ctx, args)


def run_statement(connection: sqlite3.Connection, statement: str) -> Answer:
    """The result of one statement, which can only read."""
    from statemachine.store.sql import run_query

    found = run_query(connection, statement, rows_max=ROWS_MAX, timeout_seconds=TIMEOUT_SECONDS)
    return found.columns, found.rows


def print_answer(connection: sqlite3.Connection, statement: str, output: Output) -> None:
    """Run one statement, which can only read, and print the result."""
    print_found(run_statement(connection, statement), Mode(output.value))


def print_found(answer: Answer, mode: Mode) -> None:
    """Print the result of a statement."""
    columns, rows = answer
    named = _distinct(columns)
    if mode is Mode.CSV:
        print_csv(named, (map(_shown, row) for row in rows))
        return
    print_rows(named, [dict(zip(named, map(_shown, row), strict=True)) for row in rows], Output(mode.value))


def _distinct(columns: Sequence[str]) -> list[str]:
    """The names of the columns, each once: a second `count(*)` becomes `count(*) 2`."""
    named: list[str] = []
    for column in columns:
        count = sum(name == column or name.startswith(f"{column} ") for name in named)
        named.append(f"{column} {count + 1}" if column in named else column)
    return named


def _shown(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
