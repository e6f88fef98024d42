"""Asking before something is done that may not be meant."""

from __future__ import annotations

import sys
from typing import Final

import typer

from kraftlog.cli.options import Output
from kraftlog.cli.output import note

EXIT_DECLINED: Final = 1


def check_can_ask(output: Output = Output.TABLE) -> None:
    """Raise a usage error if nobody is there to be asked, or would see what the question is about."""
    if output is Output.JSON:
        raise typer.BadParameter("with --output json nobody is asked; give --yes if it is meant", param_hint="--yes")
    if not sys.stdin.isatty():
        raise typer.BadParameter("standard input is no terminal to ask at; give it if it is meant", param_hint="--yes")


def confirm(question: str) -> None:
    """Ask on standard error; a no ends the command with exit code 1, and nothing is done."""
    if not typer.confirm(question, err=True):
        note("Nothing was changed.")
        raise typer.Exit(EXIT_DECLINED)
