"""`kraftlog verify`: whether the files of a stopped node or broker are sound."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from kraftlog.cli.shared.options import Output, OutputOption, path_argument
from kraftlog.cli.shared.output import print_json, print_rows, say
from kraftlog.cli.shared.progress import late_progress


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify)


def verify(
    directory: Annotated[
        Path,
        typer.Argument(
            parser=path_argument,
            metavar="DIR",
            help="The data directory of a stopped node or broker, or one of a broker's log directories.",
        ),
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Report whether the files of a stopped node or broker are sound, and what its next start does about damaged ones.

    Changes nothing. The exit code is 0 if all files are sound, apart from what any crash leaves; 1 if anything is
    damaged.
    """
    from kraftlog.offline.file_reports import COLUMNS, is_sound
    from kraftlog.offline.verification import verify_directory

    with late_progress("reading the log") as progress:
        reports = verify_directory(directory, progress)
    sound = is_sound(reports)
    rows = [report.row() for report in reports]
    if output is Output.JSON:
        print_json({"Directory": str(directory), "IsSound": sound, "Files": rows})
    else:
        print_rows(COLUMNS, rows, output)
        for line in itertools.chain.from_iterable(report.lines() for report in reports):
            say(line)
        say(f"{directory} is {'sound' if sound else 'damaged'}.")
    if not sound:
        raise typer.Exit(1)
