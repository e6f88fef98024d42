"""Ask before a change that may not be intended."""

from __future__ import annotations

import sys
from typing import Final

import typer

from kraftlog.cli.shared.options import Output
from kraftlog.cli.shared.output import note

EXIT_DECLINED: Final = 1


def check_can_ask(output: Output = Output.TABLE) -> None:
    """Raise a usage error if no user can be asked, or if the user would not see what the question is about."""
    if output is Output.JSON:
        raise typer.BadParameter("--output json cannot ask for confirmation; give --yes to confirm", param_hint="--yes")
    if not sys.stdin.isatty():
        raise typer.BadParameter("standard input is not a terminal; give --yes to confirm", param_hint="--yes")


def confirm(question: str) -> None:
    """Ask on standard error; "no" ends the command with exit code 1, and nothing is done."""
    if not typer.confirm(question, err=True):
        note("Nothing was changed.")
        raise typer.Exit(EXIT_DECLINED)
