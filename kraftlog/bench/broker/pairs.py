"""Runs systems side by side, measures them in alternating pairs, and prints the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from kraftlog.bench.broker.comparison import KAFKA, OWN, Figures, Pair, as_json, comparison_table, targets
from kraftlog.bench.broker.experiment import Experiment
from kraftlog.bench.broker.measure import Measures
from kraftlog.bench.broker.own import LABEL, OwnBrokers
from kraftlog.bench.broker.stock_kafka import StockKafka
from kraftlog.bench.broker.system import System
from kraftlog.bench.peers.installed import find_peers
from kraftlog.bench.targets import targets_table

Show = Callable[[str], None]
"""Called with a description of the present step."""


class Running(Protocol):
    """Runs a system in a directory within a block."""

    def __call__(
        self, directory: Path, *, brokers: int = 1, configs: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[System]:
        """Run this many brokers with these configs; all other configs have their defaults."""
        ...


def find_systems(peers_directory: Path, console: Console) -> tuple[dict[str, Running], dict[str, str]]:
    """Return how to run each system, and its name with its version, kraftlog first. Print what is missing."""
    peers = find_peers(peers_directory)
    systems: dict[str, Running] = {OWN: OwnBrokers.running}
    labels = {OWN: LABEL}
    if peers.kafka is None:
        console.print(f"Kafka is left out, so there is no comparison: {peers.missing[KAFKA]}")
    else:
        systems[KAFKA] = partial(StockKafka.running, peers.kafka)
        labels[KAFKA] = f"Kafka {peers.kafka.version}"
    return systems, labels


async def measure_figures(
    systems: Mapping[str, Running],
    experiments: Sequence[Experiment],
    path: Path,
    show: Show,
    *,
    brokers: int,
    configs: Mapping[str, Mapping[str, str]],
) -> dict[str, list[Pair]]:
    """Run the systems in `path`, and measure one experiment after the other. `configs` has each system's configs."""
    measured = {}
    async with AsyncExitStack() as stack:
        running = {}
        for name, system in systems.items():
            show(f"{name} starts")
            running[name] = await stack.enter_async_context(
                system(path / name, brokers=brokers, configs=configs.get(name))
            )
        for experiment in experiments:
            measured[experiment.name] = await measure_pairs(experiment, running, show)
    return measured


async def measure_pairs(experiment: Experiment, systems: Mapping[str, System], show: Show) -> list[Pair]:
    """Measure one figure of every system, in pairs; every other pair has the opposite order."""
    for name, system in systems.items():
        show(f"{experiment.name}: {name} is prepared")
        await experiment.prepare(system)
    found: list[Pair] = []
    uncounted = 1 if experiment.is_warmed_up else 0
    for number in range(1 - uncounted, experiment.pairs + 1):
        pair: dict[str, Figures] = {}
        for name in list(systems) if number % 2 == 0 else reversed(list(systems)):
            at = "uncounted, to warm up" if number == 0 else f"pair {number} of {experiment.pairs}"
            show(f"{experiment.name}: {at}: {name}")
            pair[name] = await experiment.measure(systems[name])
        found.append(pair)
    for name, system in systems.items():
        show(f"{experiment.name}: {name} is cleaned up")
        await experiment.clean_up(system)
    return found[uncounted:]


def told(
    measured: Mapping[str, Sequence[Pair]],
    measures: Measures,
    labels: Mapping[str, str],
    console: Console,
    own_tables: Collection[str] = (),
) -> dict[str, Any]:
    """Print the tables of all figures except `own_tables`; return all figures for the JSON output."""
    shown = {figure: pairs for figure, pairs in measured.items() if figure not in own_tables}
    if shown:
        console.print(comparison_table(shown, measures, labels))
    bounded = [target for figure, pairs in shown.items() for target in targets(figure, measures[figure], pairs)]
    if bounded:
        console.print(targets_table(bounded))
    return {figure: as_json(figure, measures[figure], pairs) for figure, pairs in measured.items()}
