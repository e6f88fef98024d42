"""Our broker and a stock Kafka in alternated pairs: what they carry, how quickly they answer, what they take.

Both run all the time: ours as one voter and one broker, Kafka as one node that is both. Each figure is measured once at
each without counting, so that the JVM has compiled what runs often; then in pairs, every other one in the opposite
order. A client is a process of its own, and the same program against both. Idle partitions are measured once, at
brokers of their own with defaults in everything.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from rich.console import Console

from kraftbase.errors import ConfigurationError
from kraftlog.bench.broker.comparison import KAFKA, OWN, Figures, Pair, as_json, comparison_table, targets
from kraftlog.bench.broker.experiments import Experiment, Sizes, experiments
from kraftlog.bench.broker.idle import measure_idle
from kraftlog.bench.broker.own import LABEL, OwnBroker
from kraftlog.bench.broker.stock_kafka import StockKafka
from kraftlog.bench.broker.system import System
from kraftlog.bench.machine import machine
from kraftlog.bench.peers.installed import Kafka, find_peers
from kraftlog.bench.targets import targets_table

IDLE: Final = "idle"
SPACE_FACTOR: Final = 2.5
"""Bytes on the disk of the largest figure, at both brokers, with room for what is deleted a moment later."""


class Running(Protocol):
    """Runs a system in a directory within a block."""

    def __call__(self, directory: Path, *, is_plain: bool = False) -> AbstractAsyncContextManager[System]:
        """`is_plain`: with defaults in everything."""
        ...


async def run(
    figures: Sequence[str], sizes: Sizes, peers_directory: Path, directory: Path | None, console: Console
) -> dict[str, Any]:
    """Measure, show progress and tables on the console, and return the result for programs.

    Raises ApiError if a broker does not start or a client fails, ConfigurationError if the disk has too little room.
    """
    peers = find_peers(peers_directory)
    if peers.kafka is None:
        console.print(f"Kafka is left out, and nothing is compared: {peers.missing[KAFKA]}")
    systems, labels = _systems(peers.kafka)
    with tempfile.TemporaryDirectory(prefix="kraftlog-broker-", dir=directory) as name, console.status("") as status:
        _check_room(Path(name), figures, sizes)
        measured: dict[str, list[Pair]] = {}
        in_pairs = [figure for figure in figures if figure != IDLE]
        if in_pairs:
            measured |= await _in_pairs(systems, in_pairs, sizes, Path(name), status.update)
        if IDLE in figures:
            measured[IDLE] = [await _idle(systems, sizes, Path(name), status.update)]
    console.print(comparison_table(measured, labels))
    judged = [target for figure, pairs in measured.items() for target in targets(figure, pairs)]
    if judged:
        console.print(targets_table(judged))
    return {
        "systems": labels,
        "sizes": {field: getattr(sizes, field) for field in Sizes.__dataclass_fields__},
        "figures": {figure: as_json(figure, pairs) for figure, pairs in measured.items()},
        "machine": await machine(directory),
    }


def _systems(kafka: Kafka | None) -> tuple[dict[str, Running], dict[str, str]]:
    """How to run each, and what it is called with its version; ours first."""
    systems: dict[str, Running] = {OWN: OwnBroker.running}
    labels = {OWN: LABEL}
    if kafka is not None:
        systems[KAFKA] = partial(StockKafka.running, kafka)
        labels[KAFKA] = f"Kafka {kafka.version}"
    return systems, labels


async def _in_pairs(
    systems: Mapping[str, Running], figures: Sequence[str], sizes: Sizes, path: Path, show: Callable[[str], None]
) -> dict[str, list[Pair]]:
    measured = {}
    async with AsyncExitStack() as stack:
        running = {}
        for name, system in systems.items():
            show(f"{name} starts")
            running[name] = await stack.enter_async_context(system(path / name))
        known = experiments(sizes)
        for figure in figures:
            measured[figure] = await measure_pairs(known[figure], running, sizes.pairs, show)
    return measured


async def measure_pairs(
    experiment: Experiment, systems: Mapping[str, System], pairs: int, show: Callable[[str], None]
) -> list[Pair]:
    """One figure at every system, in pairs; the first is not counted. `show` is told what is done now."""
    for name, system in systems.items():
        show(f"{experiment.name}: {name} is prepared")
        await experiment.prepare(system)
    found: list[Pair] = []
    for number in range(pairs + 1):
        pair: dict[str, Figures] = {}
        for name in list(systems) if number % 2 == 0 else reversed(list(systems)):
            at = "uncounted, to warm up" if number == 0 else f"pair {number} of {pairs}"
            show(f"{experiment.name}: {at}: {name}")
            pair[name] = await experiment.measure(systems[name])
        found.append(pair)
    for name, system in systems.items():
        show(f"{experiment.name}: {name} is cleaned up")
        await experiment.clean_up(system)
    return found[1:]


async def _idle(systems: Mapping[str, Running], sizes: Sizes, path: Path, show: Callable[[str], None]) -> Pair:
    pair = {}
    for name, running in systems.items():
        show(f"{IDLE}: {sizes.partitions:,} partitions at {name}")
        directory = path / f"{name}-{IDLE}"
        async with running(directory, is_plain=True) as system:
            pair[name] = await measure_idle(system, sizes.partitions, sizes.idle_seconds)
        shutil.rmtree(directory)
    return pair


def _check_room(path: Path, figures: Sequence[str], sizes: Sizes) -> None:
    largest = sizes.cold_bytes if "consume-cold" in figures else sizes.total_bytes
    wanted, free = round(SPACE_FACTOR * largest), shutil.disk_usage(path).free
    if free < wanted:
        raise ConfigurationError(
            f"{path} has {free / 1e9:.1f} GB of room, and {wanted / 1e9:.1f} GB are needed; choose another place with"
            " --dir, or less with --bytes and --cold-bytes"
        )
