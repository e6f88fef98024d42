"""`kraftlog sim`: many seeds, one seed, or the zoo of known bugs."""

from __future__ import annotations

import itertools
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from kraftlog.process.logs import silence_logging
from kraftlog.sim.broker_log.run import LOG_WORLD
from kraftlog.sim.engine.command import Command
from kraftlog.sim.engine.mutation import MUTATIONS, WORLD_OF_BROKER_LOG, WORLD_OF_CLUSTERS, WORLD_OF_REPLICATION
from kraftlog.sim.engine.outcome import Overrides as WorldOverrides
from kraftlog.sim.quorum.fault_kinds import KINDS
from kraftlog.sim.quorum.invariants.catalogue import ALL
from kraftlog.sim.quorum.parameters import Overrides, draw
from kraftlog.sim.quorum.report import show_failure, show_missing_marks, show_run, show_total
from kraftlog.sim.quorum.runs.run import run
from kraftlog.sim.quorum.runs.shrink import shrink
from kraftlog.sim.quorum.runs.sweep import Total, sweep
from kraftlog.sim.replication.run import REPLICATION_WORLD
from kraftlog.sim.zoo.catalogue import NAMES
from kraftlog.sim.zoo.hunt import SEEDS_MAX, hunt_all
from kraftlog.sim.zoo.report import show_hunt


class SimulatedWorld(StrEnum):
    """What is simulated."""

    CLUSTERS = WORLD_OF_CLUSTERS
    BROKER_LOG = WORLD_OF_BROKER_LOG
    REPLICATION = WORLD_OF_REPLICATION


OTHER_WORLDS: Final = {SimulatedWorld.BROKER_LOG: LOG_WORLD, SimulatedWorld.REPLICATION: REPLICATION_WORLD}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
console = Console()


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    seeds: Annotated[int, typer.Option(help="how many seeds to run", min=1)] = 200,
    first: Annotated[int, typer.Option(help="the first of them", min=0)] = 0,
    minutes: Annotated[float | None, typer.Option(help="run seeds for this time instead of a number of them")] = None,
    at_least: Annotated[int, typer.Option(help="with --minutes: fewer seeds than this are a failure")] = 0,
    seed: Annotated[int | None, typer.Option(help="run this one seed")] = None,
    trace: Annotated[bool, typer.Option(help="with --seed: print every step")] = False,
    shrink_seed: Annotated[
        int | None, typer.Option("--shrink", help="shrink this seed's run as long as it still fails")
    ] = None,
    safety_seconds: Annotated[int | None, typer.Option(help="with --seed: how long faults happen")] = None,
    voters: Annotated[int | None, typer.Option(help="with --seed: how many voters")] = None,
    observers: Annotated[int | None, typer.Option(help="with --seed: how many observers")] = None,
    brokers: Annotated[int | None, typer.Option(help="with --seed: how many brokers, 0 for none")] = None,
    without: Annotated[list[str] | None, typer.Option(help="with --seed: without this kind of fault")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the outcome to this file")] = None,
    world: Annotated[SimulatedWorld, typer.Option(help="what is simulated")] = SimulatedWorld.CLUSTERS,
) -> None:
    """Run simulated clusters, a broker's logs, or brokers that replicate, under faults; check what must hold."""
    silence_logging()
    if context.invoked_subcommand is not None:
        return
    if world in OTHER_WORLDS:
        if any(count is not None for count in (voters, observers, brokers)):
            raise typer.BadParameter(f"seeds say how many brokers the world {world} has: no --voters, --brokers")
        is_well = Command(
            world=OTHER_WORLDS[world], seeds=seeds, first=first, minutes=minutes, at_least=at_least, seed=seed,
            trace=trace, shrink_seed=shrink_seed, json_file=json_file,
            overrides=WorldOverrides(safety_seconds, tuple(without or ())),
        ).run(console)  # fmt: skip
        raise typer.Exit(0 if is_well else 1)
    if shrink_seed is not None:
        _shrink(shrink_seed)
    elif seed is not None:
        overrides = Overrides(safety_seconds, tuple(without or ()), voters, observers, brokers)
        _run_one(seed, overrides, echo=trace, json_file=json_file)
    else:
        numbers = itertools.count(first) if minutes is not None else range(first, first + seeds)
        total = sweep(numbers, minutes=minutes, count=None if minutes is not None else seeds)
        _conclude(total, json_file, at_least=at_least, must_cover=minutes is not None or seeds >= 300)


@app.command()
def zoo(
    names: Annotated[list[str] | None, typer.Argument(help="hunt only these")] = None,
    seeds: Annotated[int, typer.Option(help="how many seeds a bug may take", min=1)] = SEEDS_MAX,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the outcome to this file")] = None,
) -> None:
    """Put known bugs into the simulated nodes, one at a time, and see which invariant catches them."""
    unknown = [name for name in names or () if name not in MUTATIONS]
    if unknown:
        console.print(
            f"error: no such bug: {', '.join(unknown)}; the bugs are: {', '.join(MUTATIONS)}", highlight=False
        )
        raise typer.Exit(2)
    catches = show_hunt(console, hunt_all(names or NAMES, seeds), len(names or NAMES))
    if json_file is not None:
        json_file.write_text(json.dumps([catch.summary() for catch in catches], indent=2) + "\n")
    if any(catch.caught_by is None for catch in catches):
        raise typer.Exit(1)


def _run_one(seed: int, overrides: Overrides, *, echo: bool, json_file: Path | None) -> None:
    outcome = run(draw(seed, KINDS, overrides), echo=echo)
    if json_file is not None:
        json_file.write_text(json.dumps(outcome.summary(), indent=2) + "\n")
    if outcome.violation is not None:
        show_failure(console, outcome, overrides)
        raise typer.Exit(1)
    show_run(console, outcome)


def _shrink(seed: int) -> None:
    try:
        overrides, outcome = shrink(seed, lambda line: console.print(line, highlight=False))
    except ValueError as error:
        console.print(f"error: {error}")
        raise typer.Exit(1) from None
    show_failure(console, outcome, overrides)


def _conclude(total: Total, json_file: Path | None, *, at_least: int, must_cover: bool) -> None:
    for failure in total.failures:
        show_failure(console, failure)
    show_total(console, total, len(ALL))
    if json_file is not None:
        json_file.write_text(json.dumps({"invariants": len(ALL), **total.summary()}, indent=2) + "\n")
    is_uncovered = must_cover and bool(total.missing_marks)
    if is_uncovered:
        show_missing_marks(console, total)
    if total.seeds < at_least:
        console.print(f"only {total.seeds} seeds; {at_least} were wanted", style="bold red")
    if total.failures or is_uncovered or total.seeds < at_least:
        raise typer.Exit(1)
