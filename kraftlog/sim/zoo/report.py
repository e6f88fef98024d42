"""The output of the hunt."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from kraftlog.sim.zoo.catalogue import BUGS, NAMES
from kraftlog.sim.zoo.hunt import Catch


def show_hunt(console: Console, catches: Iterable[Catch], count: int) -> list[Catch]:
    """The progress of the hunt, then its table."""
    found: list[Catch] = []
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), transient=True) as progress:
        bar = progress.add_task("bugs", total=count)
        for catch in catches:
            found.append(catch)
            progress.update(bar, advance=1, description=catch.name)
    table = Table("bug", "known from", "caught by", "seeds", title="zoo")
    for catch in sorted(found, key=lambda catch: NAMES.index(catch.name)):
        caught_by = catch.invariant if catch.caught_by is not None else "[bold red]not caught"
        table.add_row(catch.name, BUGS[catch.name][1].origin, caught_by, str(catch.seeds))
    console.print(table)
    return found
