"""kraftlog's broker and a stock Kafka in alternating pairs: throughput, response times and resources.

Both run all the time: kraftlog as one voter and one broker, Kafka as one node that is both. Each figure is measured
once uncounted on each system, so that the JVM has compiled the hot code, and then in pairs; every other pair has the
opposite order. Each client is a separate process, and the same program against both systems. Idle partitions and starts
are measured once, on separate brokers with default configs. Hostile requests, and large changes of the metadata on
kraftlog alone, run on separate brokers that report on their event loops.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftlog.bench.broker import own, stock_kafka
from kraftlog.bench.broker.comparison import KAFKA, OWN, Pair
from kraftlog.bench.broker.experiments import Sizes, experiments
from kraftlog.bench.broker.hostile import CONFIGS, HostileExperiment, hostile_table
from kraftlog.bench.broker.idle import measure_idle
from kraftlog.bench.broker.measures import MEASURES
from kraftlog.bench.broker.metadata_changes import measure_syncs, measure_turns
from kraftlog.bench.broker.pairs import Running, find_systems, measure_figures, told
from kraftlog.bench.broker.starts import measure_starts
from kraftlog.bench.broker.syncs import find_strace
from kraftlog.bench.machine import machine

IDLE: Final = "idle"
HOSTILE: Final = "hostile"
CHANGES: Final = "metadata-changes"
STARTS: Final = "starts"
BY_THEMSELVES: Final = (IDLE, HOSTILE, CHANGES, STARTS)
QUICK_DELETIONS: Final = {OWN: own.QUICK_DELETION, KAFKA: stock_kafka.QUICK_DELETION}
SPACE_FACTOR: Final = 2.5
"""The disk space of the largest figure on both brokers, including files that are deleted a moment later."""


async def run(
    figures: Sequence[str], sizes: Sizes, peers_directory: Path, directory: Path | None, console: Console
) -> dict[str, Any]:
    """Measure, show progress and tables on the console, and return the result for programs.

    Raises ApiError if a broker does not start or a client fails, ConfigurationError if the disk has too little room.
    """
    systems, labels = find_systems(peers_directory, console)
    with tempfile.TemporaryDirectory(prefix="kraftlog-broker-", dir=directory) as name, console.status("") as status:
        _check_room(Path(name), figures, sizes)
        measured: dict[str, list[Pair]] = {}
        known = experiments(sizes)
        in_pairs = [known[figure] for figure in figures if figure not in BY_THEMSELVES]
        if in_pairs:
            measured |= await measure_figures(
                systems, in_pairs, Path(name), status.update, brokers=1, configs=QUICK_DELETIONS
            )
        if IDLE in figures:
            measured[IDLE] = [await _idle(systems, sizes, Path(name), status.update)]
        if HOSTILE in figures:
            path = Path(name) / HOSTILE
            path.mkdir()
            experiment = HostileExperiment(HOSTILE, sizes.pairs, sizes.hostile_seconds)
            measured |= await measure_figures(systems, [experiment], path, status.update, brokers=1, configs=CONFIGS)
        if STARTS in figures:
            measured[STARTS] = [await _starts(systems, sizes, Path(name), status.update, console)]
        if CHANGES in figures:
            measured[CHANGES] = await _metadata_changes(sizes, Path(name), status.update, console)
    if HOSTILE in measured:
        console.print(hostile_table(measured[HOSTILE], labels))
    return {
        "systems": labels,
        "sizes": {field: getattr(sizes, field) for field in Sizes.__dataclass_fields__},
        "figures": told(measured, MEASURES, labels, console, own_tables=(HOSTILE,)),
        "machine": await machine(directory),
    }


async def _idle(systems: Mapping[str, Running], sizes: Sizes, path: Path, show: Callable[[str], None]) -> Pair:
    pair = {}
    for name, running in systems.items():
        show(f"{IDLE}: {sizes.partitions:,} partitions at {name}")
        directory = path / f"{name}-{IDLE}"
        async with running(directory) as system:
            pair[name] = await measure_idle(system, sizes.partitions, sizes.idle_seconds)
        shutil.rmtree(directory)
    return pair


async def _starts(
    systems: Mapping[str, Running], sizes: Sizes, path: Path, show: Callable[[str], None], console: Console
) -> Pair:
    """Measure the starts once; a Kafka that does not start has no figures."""
    pair = {}
    for name, running in systems.items():

        def show_step(step: str, name: str = name) -> None:
            show(f"{STARTS}: {name}: {step}")

        def failed(reason: str, name: str = name) -> None:
            if name == OWN:
                raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, reason)
            console.print(f"{name} does not start: {reason}")

        directory = path / f"{STARTS}-{name}"
        pair[name] = await measure_starts(running, directory, sizes.started_partitions, show_step, failed)
    return pair


async def _metadata_changes(sizes: Sizes, path: Path, show: Callable[[str], None], console: Console) -> list[Pair]:
    """Measure kraftlog alone: Kafka has no event loop of this kind, and syncs other files."""
    found: list[Pair] = []
    count, strace = sizes.changed_partitions, find_strace()
    if strace is None:
        console.print("Syncs are not counted: strace is not installed (apt-get install strace)")
    for number in range(1, sizes.pairs + 1):

        def show_round(step: str, number: int = number) -> None:
            show(f"{CHANGES}: {number} of {sizes.pairs}: {step}")

        figures = dict(await measure_turns(path / f"{CHANGES}-{number}", count, show_round))
        if strace is not None:
            figures |= await measure_syncs(path / f"{CHANGES}-{number}-traced", count, strace, show_round)
        found.append({OWN: figures})
    return found


def _check_room(path: Path, figures: Sequence[str], sizes: Sizes) -> None:
    largest = sizes.cold_bytes if "consume-cold" in figures else sizes.total_bytes
    wanted, free = round(SPACE_FACTOR * largest), shutil.disk_usage(path).free
    if free < wanted:
        raise ConfigurationError(
            f"{path} has {free / 1e9:.1f} GB free, and {wanted / 1e9:.1f} GB are needed; choose another directory with"
            " --dir, or less data with --bytes and --cold-bytes"
        )
