"""`kraftlog dump-log`: what is in a segment, frame by frame (OT-20)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraftlog.cli.shared.options import path_argument
from kraftlog.cli.shared.output import print_json_line


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dump-log")(dump_log)


def dump_log(
    path: Annotated[
        Path,
        typer.Argument(parser=path_argument, metavar="FILE", help="A segment, a directory of segments, or a node's."),
    ],
    decode: Annotated[bool, typer.Option("--decode", help="Print the records of each batch, too.")] = False,
) -> None:
    """Print the frames of a log's segments as JSON lines.

    Continues after damage, which is printed as a line of its own. Changes nothing.
    """
    from kraftlog.offline.log_dump import dump

    for line in dump(path, decode=decode):
        print_json_line(line)
