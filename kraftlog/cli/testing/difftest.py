"""`kraftlog difftest`: the same administration on stock Kafka controllers and on ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraftlog.cli.shared.options import path_argument


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("difftest")(difftest)


def difftest(
    sequences: Annotated[int, typer.Option("--sequences", min=1, help="How many sequences of steps.")] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The first sequence's; the others follow.")] = 0,
    length: Annotated[int, typer.Option("--length", min=1, help="How many steps, after the brokers' start.")] = 40,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Make each sequence with a finding as short as it can be.")
    ] = False,
    steps: Annotated[
        Path | None,
        typer.Option(
            "--steps", parser=path_argument, metavar="FILE", help="Run the sequences in this report of --json instead."
        ),
    ] = None,
    installed: Annotated[
        Path, typer.Option("--peers", parser=path_argument, metavar="DIR", help="Where `make peers` installs Kafka.")
    ] = Path("build/peers"),
    json: Annotated[
        Path | None,
        typer.Option("--json", parser=path_argument, metavar="FILE", help="Also write the result to this file."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", parser=path_argument, metavar="DIR", help="Where the clusters are made; default: /tmp."),
    ] = None,
) -> None:
    """Compare our controller with Kafka's.

    The same generated administration, valid and invalid, runs on three stock Kafka controllers and on three voters.
    After each step the error codes, the records of each resource and the whole metadata are compared. A difference that
    docs/rules lists as a deviation is counted under its rule; any other is a finding, and fails the command.
    """
    import uvloop
    from rich.console import Console

    from kraftlog.difftest.run import Plan, run

    plan = Plan(sequences=sequences, seed=seed, length=length, is_shrunk=shrink, steps=steps)
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    if not uvloop.run(run(installed, plan, directory, json, console)):
        raise typer.Exit(1)
