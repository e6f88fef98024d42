"""The parts of `kraftlog bench metadata`: each on a cluster of its own, and beside each figure what it must reach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.figures import times_table, write_json
from bench.machine import machine
from bench.metadata.create import create_in_one_go, create_one_by_one
from bench.metadata.fencing import fence_leader
from bench.metadata.stage import Measured, Stage, set_stage
from bench.targets import targets_table

CREATE: Final = "create"
ONE_BY_ONE: Final = "one-by-one"
FAILOVER: Final = "failover"
PARTS: Final = (CREATE, ONE_BY_ONE, FAILOVER)

Part = Callable[[Stage], Awaitable[Measured]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    topics: int
    """Created in one go."""
    topic_partitions: int
    """Of each of these."""
    operations: int
    """One at a time."""
    leaders: int
    """Partitions that the fenced broker leads."""


async def run(
    only: Collection[str], sizes: Sizes, directory: Path | None, json_path: Path | None, console: Console
) -> bool:
    """Measure those parts, print and write the result; returns whether every operation succeeded."""
    parts: dict[str, Part] = {
        CREATE: partial(create_in_one_go, topics=sizes.topics, partitions_per_topic=sizes.topic_partitions),
        ONE_BY_ONE: partial(create_one_by_one, topics=sizes.operations),
        FAILOVER: partial(fence_leader, leaders=sizes.leaders),
    }
    found: dict[str, Measured] = {}
    for name, part in parts.items():
        if name in only:
            found[name] = await _on_a_stage(name, part, directory, console)
    targets = [target for measured in found.values() for target in measured.targets]
    result = {
        "parts": {name: measured.figures for name, measured in found.items()},
        "targets": {target.name: target.as_json() for target in targets},
        "machine": await machine(directory),
    }
    write_json(json_path, result)
    times = [row for measured in found.values() for row in measured.times]
    if times:
        console.print(times_table("One at a time, milliseconds", times))
    console.print(targets_table(targets))
    return not any(measured.errors for measured in found.values())


async def _on_a_stage(name: str, part: Part, directory: Path | None, console: Console) -> Measured:
    with console.status(f"{name}: starting 3 voters, 2 observers and 3 brokers", refresh_per_second=1) as status:
        async with set_stage(directory, name) as stage:
            status.update(name)
            measured = await part(stage)
    console.print(measured.sentence)
    return measured
