"""What commands print: tables for users, JSON for programs. Only this module writes to standard output.

Notes and errors are for users only and go to standard error.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraftlog.cli.shared.options import Output

if TYPE_CHECKING:
    from rich.console import RenderableType

UNWRAPPED_WIDTH: Final = 1_000_000
"""Wider than any output: a terminal wraps what is wider than itself, and nothing is cut."""

COLUMN_GAPS: Final = (3, 2, 1)
"""How many spaces separate columns: the first number, or a later one on a terminal too narrow for that."""

UPRIGHT_GAP: Final = 2
"""Between the names of columns and their values, in a row printed upright."""

ESCAPED_CATEGORIES: Final = ("Cc", "Cs", "Zl", "Zp")
"""Of Unicode: controls, which a terminal would obey, lone surrogates, and what ends a line."""


def say(line: str) -> None:
    """Print one line unchanged."""
    sys.stdout.write(line + "\n")


def say_bytes(lines: Sequence[bytes]) -> None:
    """Print lines of any content, and flush them: unchanged, or on a terminal as `visible` returns them."""
    if not lines:
        return
    if sys.stdout.isatty():
        for line in lines:
            say(visible(line.decode(errors="backslashreplace")))
        sys.stdout.flush()
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(b"\n".join((*lines, b"")))
    sys.stdout.buffer.flush()


def note(line: str) -> None:
    """Print a note for the user at the terminal."""
    sys.stderr.write(line + "\n")


def print_error(message: str) -> None:
    """Print on standard error, on one line, what went wrong; standard output is flushed first."""
    sys.stdout.flush()
    note(f"error: {visible(' '.join(message.split()))}")


def print_json(value: Any) -> None:
    """Print JSON, indented."""
    say(_json_text(value, indent=2))


def print_json_line(value: Any) -> None:
    """Print JSON on one line and flush it."""
    say(_json_text(value, separators=(",", ":")))
    sys.stdout.flush()


def print_rows(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], output: Output) -> None:
    """Print rows as a table with `columns`, or as a JSON list with everything that the rows hold.

    Nothing is cut: a table must show everything that was asked for. On a terminal too narrow for it, each row is
    printed upright, a column per line. Without a terminal, the table is as wide as what it shows.
    """
    if output is Output.JSON:
        print_json(list(rows))
        return
    names = [visible(column) for column in columns]
    shown = [[visible(_cell(row[column])) for column in columns] for row in rows]
    room = _terminal_width()
    for gap in COLUMN_GAPS:
        lines = _aligned([names, *shown], gap)
        width = max(map(_width, lines))
        if room is None or width <= room:
            _print_table(lines, width)
            return
    _print_upright(names, shown, room or 0)


def print_csv(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print rows as CSV (RFC 4180), below the names of the columns; None is an empty value."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def _terminal_width() -> int | None:
    """The number of columns of the terminal; None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _print_table(lines: Sequence[str], width: int) -> None:
    from rich.text import Text

    print_renderable(Text(lines[0], style="bold"))
    say("─" * width)
    for line in lines[1:]:
        say(line)


def _print_upright(names: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> None:
    """Each row as a block: its number, then a line for each column."""
    from rich.text import Text

    if not rows:
        say("no rows")
    longest = max(map(_width, names))
    for number, cells in enumerate(rows, start=1):
        heading = f"─[ {number} ]"
        print_renderable(Text(heading.ljust(room, "─"), style="bold"))
        for name, cell in zip(names, cells, strict=True):
            say(f"{name}{' ' * (longest - _width(name) + UPRIGHT_GAP)}{cell}".rstrip())


def print_result(result: Any, lines: Iterable[str], output: Output) -> None:
    """Print what a command has changed: `lines` for people, or `result` as JSON, with the ids of what was created.

    Every command that changes something ends here, unless it prints rows. A refused change is an error in either form.
    """
    if output is Output.JSON:
        print_json(result)
        return
    for line in lines:
        say(line)


def print_renderable(renderable: RenderableType) -> None:
    """Print an object of rich unchanged: nothing in it is markup, and nothing is cut or wrapped."""
    from rich.console import Console

    # Without a height, too, rich takes a dumb terminal for one of 80 columns whatever the width is.
    console = Console(width=UNWRAPPED_WIDTH, height=1, markup=False, emoji=False, highlight=False)
    console.print(renderable)


def print_fields(fields: Mapping[str, Any], output: Output) -> None:
    """Print `Name: value` lines as Kafka's tools do, or one JSON object."""
    if output is Output.JSON:
        print_json(fields)
        return
    width = max(map(len, fields), default=0) + 2
    for name, value in fields.items():
        shown = visible(str(value)) if isinstance(value, (str, int)) else _json_text(value)
        say(f"{name + ':':<{width}}{shown}")


def visible(text: str) -> str:
    """`text` on one line, with terminal control characters escaped as Python writes them: ESC is `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        repr(letter)[1:-1] if unicodedata.category(letter) in ESCAPED_CATEGORIES else letter for letter in text
    )


def _aligned(table: Sequence[Sequence[str]], gap: int) -> list[str]:
    """Each row as a line, with its cells aligned in columns."""
    widths = [max(map(_width, column)) for column in zip(*table, strict=True)]
    return [
        (" " * gap).join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)


def _json_text(value: Any, **layout: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, **layout)
    except ValueError:  # JSON has no number that is not finite
        return json.dumps(_finite(value), allow_nan=False, **layout)


def _finite(value: Any) -> Any:
    """`value` with numbers that are not finite as texts, as protobuf's JSON has them."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


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
