"""`kraftlog sim`: many seeds, one seed, or the zoo of known bugs, in one of the worlds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from kraftlog.process.logs import silence_logging
from kraftlog.sim.engine.command import Command
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.worlds import DEFAULT, WORLDS
from kraftlog.sim.zoo.catalogue import NAMES
from kraftlog.sim.zoo.hunt import SEEDS_MAX, hunt_all
from kraftlog.sim.zoo.report import show_hunt

WORLD_NAMES: Final = "|".join(WORLDS)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
console = Console()


def _known_world(name: str | None) -> str | None:
    if name is not None and name not in WORLDS:
        raise typer.BadParameter(f"there is no world {name!r}; the worlds are {', '.join(WORLDS)}")
    return name


def _refuse_many_seeds(context: typer.Context) -> None:
    """Raise BadParameter if an option for several seeds was given as well."""
    given = [
        f"--{name.replace('_', '-')}" for name in ("seeds", "first", "minutes", "at_least")
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    ]  # fmt: skip
    if given:
        raise typer.BadParameter(f"--seed and --shrink run one seed: leave {' and '.join(given)} out, or them")


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    seeds: Annotated[int, typer.Option(help="how many seeds to run", min=1)] = 200,
    first: Annotated[int, typer.Option(help="the first seed", min=0)] = 0,
    minutes: Annotated[float | None, typer.Option(help="run seeds for this many minutes, whatever --seeds is")] = None,
    at_least: Annotated[int, typer.Option(help="fail if fewer seeds than this have run, as may be with --minutes")] = 0,
    seed: Annotated[int | None, typer.Option(help="run this one seed")] = None,
    trace: Annotated[bool, typer.Option(help="with --seed: print every step")] = False,
    marks: Annotated[bool, typer.Option(help="print how often each mark was hit")] = False,
    shrink_seed: Annotated[
        int | None, typer.Option("--shrink", help="find a smaller run of this seed that still fails")
    ] = None,
    safety_seconds: Annotated[int | None, typer.Option(help="seconds in which faults happen", min=0)] = None,
    voters: Annotated[int | None, typer.Option(help="number of voters")] = None,
    observers: Annotated[int | None, typer.Option(help="number of observers")] = None,
    brokers: Annotated[int | None, typer.Option(help="number of brokers")] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="leave out this kind of fault; `kraftlog sim faults` lists them")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the outcome to this file")] = None,
    world: Annotated[str, typer.Option(metavar=WORLD_NAMES, callback=_known_world, help="the world to run")] = DEFAULT,
) -> None:
    """Run simulated clusters, a broker's logs, or brokers that replicate, under faults; check what must hold.

    Each seed draws what no option sets. --voters, --observers and --brokers are for worlds that have them.
    """
    silence_logging()
    if context.invoked_subcommand is not None:
        return
    if seed is not None or shrink_seed is not None:
        _refuse_many_seeds(context)
    sizes = {"voters": voters, "observers": observers, "brokers": brokers}
    chosen = {name: count for name, count in sizes.items() if count is not None}
    command = Command(
        world=WORLDS[world], seeds=seeds, first=first, minutes=minutes, at_least=at_least, seed=seed, trace=trace,
        marks=marks, shrink_seed=shrink_seed, json_file=json_file,
        overrides=Overrides(safety_seconds, tuple(without or ()), chosen),
    )  # fmt: skip
    try:
        command.check()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit(0 if command.run(console) else 1)


@app.command()
def faults(
    world: Annotated[str, typer.Option(metavar=WORLD_NAMES, callback=_known_world, help="which world")] = DEFAULT,
) -> None:
    """List the kinds of faults of a world, as --without takes them."""
    for kind in WORLDS[world].fault_kinds:
        typer.echo(kind)


@app.command()
def zoo(
    names: Annotated[list[str] | None, typer.Argument(help="hunt only these")] = None,
    seeds: Annotated[int, typer.Option(help="the number of seeds in which a bug must be caught", min=1)] = SEEDS_MAX,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the outcome to this file")] = None,
    world: Annotated[
        str | None, typer.Option(metavar=WORLD_NAMES, callback=_known_world, help="hunt only the bugs of this world")
    ] = None,
) -> None:
    """Put known bugs into the simulated nodes, one at a time, and report which invariant catches each."""
    known = NAMES if world is None else tuple(bug.name for bug in WORLDS[world].bugs)
    unknown = [name for name in names or () if name not in known]
    if unknown:
        message = f"error: no such bug: {', '.join(unknown)}; the bugs are: {', '.join(known)}"
        console.print(message, highlight=False, markup=False)
        raise typer.Exit(2)
    hunted = names or known
    catches = show_hunt(console, hunt_all(hunted, seeds), len(hunted))
    if json_file is not None:
        json_file.write_text(json.dumps([catch.summary() for catch in catches], indent=2) + "\n")
    if any(catch.caught_by is None for catch in catches):
        raise typer.Exit(1)
