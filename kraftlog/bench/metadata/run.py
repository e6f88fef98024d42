"""The parts of `kraftlog bench metadata`, with the target of each.

Each part has its own cluster, so that its figures do not depend on the other parts; only the two parts that need much
metadata share one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from kraftlog.bench.figures import times_table, write_json
from kraftlog.bench.machine import machine
from kraftlog.bench.metadata.altering import alter_at_rate
from kraftlog.bench.metadata.create import create_in_one_go, create_one_by_one
from kraftlog.bench.metadata.fencing import fence_leader
from kraftlog.bench.metadata.large_store import fill_store, time_reads, time_single_operations
from kraftlog.bench.metadata.stage import Measured, Stage, set_stage
from kraftlog.bench.probe import Visibility, probe_command
from kraftlog.bench.targets import targets_table
from kraftlog.bench.workload import NO_SNAPSHOTS, OBSERVERS, VOTERS

CREATE: Final = "create"
ONE_BY_ONE: Final = "one-by-one"
FAILOVER: Final = "failover"
ALTER: Final = "alter"
READS: Final = "reads"
LATENCY: Final = "latency"
PARTS: Final = (CREATE, ONE_BY_ONE, FAILOVER, ALTER, READS, LATENCY)
STARTING: Final = f"starting {VOTERS} voters, {OBSERVERS} observers and their brokers"

Part = Callable[[Stage], Awaitable[Measured]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of all parts."""

    topics: int
    """The number of topics created at once."""
    topic_partitions: int
    """The partitions of each of these topics."""
    operations: int
    """The number of creations, reads and other operations that run one at a time."""
    leaders: int
    """Partitions that the fenced broker leads."""
    rate: float
    """AlterPartition operations per second."""
    seconds: float
    """How long they are sent, in seconds."""
    partitions: int
    """The partitions in the large store."""


class Runner:
    """Measures parts and prints the results of each."""

    def __init__(self, sizes: Sizes, directory: Path | None, console: Console) -> None:
        self.found: dict[str, Measured] = {}
        self._sizes = sizes
        self._directory = directory
        self._console = console

    async def run(self, only: Collection[str]) -> None:
        """Measure the named parts."""
        sizes = self._sizes
        parts: dict[str, Part] = {
            CREATE: partial(create_in_one_go, topics=sizes.topics, partitions_per_topic=sizes.topic_partitions),
            ONE_BY_ONE: partial(create_one_by_one, topics=sizes.operations),
            FAILOVER: partial(fence_leader, leaders=sizes.leaders),
            ALTER: partial(alter_at_rate, rate=sizes.rate, seconds=sizes.seconds),
        }
        for name, part in parts.items():
            if name in only:
                with self._console.status(f"{name}: {STARTING}", refresh_per_second=1) as status:
                    async with set_stage(self._directory, name) as stage:
                        status.update(name)
                        self._note(name, await part(stage))
        if any(name in only for name in (READS, LATENCY)):
            await self._run_with_large_store(only)

    async def _run_with_large_store(self, only: Collection[str]) -> None:
        sizes = self._sizes
        observer_ids = frozenset(range(VOTERS + 1, VOTERS + OBSERVERS + 1))
        with Visibility.listening(observer_ids) as visibility, Visibility.listening(observer_ids) as applied:
            command = probe_command(visibility, applied)
            async with set_stage(self._directory, "large", settings=NO_SNAPSHOTS, command=command) as stage:
                await fill_store(stage, sizes.partitions, self._console)
                parts: dict[str, Part] = {
                    READS: partial(time_reads, count=sizes.operations, partitions=sizes.partitions),
                    LATENCY: partial(
                        time_single_operations,
                        visibility=visibility,
                        applied=applied,
                        count=sizes.operations,
                        partitions=sizes.partitions,
                    ),
                }
                for name, part in parts.items():
                    if name in only:
                        with self._console.status(name, refresh_per_second=1):
                            self._note(name, await part(stage))

    def _note(self, name: str, measured: Measured) -> None:
        self.found[name] = measured
        self._console.print(measured.sentence)
        if measured.errors:
            self._console.print(f"{len(measured.errors)} operations failed, the first: {measured.errors[0]}")


async def run(
    only: Collection[str], sizes: Sizes, directory: Path | None, json_path: Path | None, console: Console
) -> bool:
    """Measure the named parts, print and write the result; return whether every operation succeeded."""
    runner = Runner(sizes, directory, console)
    await runner.run(only)
    measured = runner.found.values()
    targets = [target for part in measured for target in part.targets]
    result = {
        "parts": {name: part.figures for name, part in runner.found.items()},
        "targets": {target.name: target.as_json() for target in targets},
        "machine": await machine(directory),
    }
    write_json(json_path, result)
    times = [row for part in measured for row in part.times]
    if times:
        console.print(times_table("Single operations and reads, milliseconds", times))
    if targets:
        console.print(targets_table(targets))
    return not any(part.errors for part in measured)
