"""What commands print: tables for people, JSON for programs. Only this module writes to standard output.

A note is for people only and goes to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraftlog.cli.options import Output

if TYPE_CHECKING:
    from rich.console import RenderableType

UNWRAPPED_WIDTH: Final = 10_000


def say(line: str) -> None:
    """Print one line as it is."""
    sys.stdout.write(line + "\n")


def note(line: str) -> None:
    """Tell whoever waits at the terminal what is going on."""
    sys.stderr.write(line + "\n")


def print_json(value: Any) -> None:
    """Print JSON, indented."""
    say(json.dumps(value, indent=2))


def print_json_line(value: Any) -> None:
    """Print JSON on one line and let it out at once."""
    say(json.dumps(value, separators=(",", ":")))
    sys.stdout.flush()


def print_rows(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], output: Output) -> None:
    """Print rows as a table with `columns`, or as a JSON list with everything that the rows hold."""
    if output is Output.JSON:
        print_json(list(rows))
        return
    from rich import box
    from rich.table import Table

    table = Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    print_renderable(table)


def print_renderable(renderable: RenderableType) -> None:
    """Print something of rich's. Without a terminal nothing is cut or wrapped: the reader is a program or a file."""
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=UNWRAPPED_WIDTH, no_color=True)
    console.print(renderable)


def print_fields(fields: Mapping[str, Any], output: Output) -> None:
    """Print `Name: value` lines as Kafka's tools do, or one JSON object."""
    if output is Output.JSON:
        print_json(fields)
        return
    width = max(map(len, fields), default=0) + 2
    for name, value in fields.items():
        say(f"{name + ':':<{width}}{value if isinstance(value, (str, int)) else json.dumps(value)}")


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case dict():
            return ", ".join(f"{key}={item}" for key, item in value.items())
        case list() | tuple():
            return ", ".join(map(str, value))
        case _:
            return str(value)
