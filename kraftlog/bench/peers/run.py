"""kraftlog, etcd and Kafka's controllers in turn: the time of an operation, and the operations per second.

In each round every system runs alone: three new servers, and this process as the client, all on one machine. Every
other round has the opposite order. First operations run one at a time, each submitted shortly after the previous one is
visible on a node that does not lead; then from 64 callers, and from 256. Operations are not retried; a failed one makes
the benchmark fail.

The clients are one event loop in this process, with one connection to the leader. They differ as the protocols do.
kraftlog's client sends all pending operations as one message; etcd has no such call. Kafka handles one request of a
connection at a time, so each caller has its own connection there.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.bench.figures import summary, write_json
from kraftlog.bench.latency import PAUSE_SECONDS, WARM_UP_OPERATIONS
from kraftlog.bench.machine import machine
from kraftlog.bench.peers.etcd import EtcdSystem
from kraftlog.bench.peers.installed import Peers, find_peers
from kraftlog.bench.peers.kafka import KafkaSystem
from kraftlog.bench.peers.own import OwnSystem
from kraftlog.bench.peers.ratios import (
    ACKNOWLEDGED,
    CALLERS,
    ETCD,
    KAFKA,
    OWN,
    VISIBLE,
    Round,
    comparison_table,
    counted,
    load_key,
    medians,
    ratios,
    targets,
)
from kraftlog.bench.peers.system import System
from kraftlog.bench.targets import targets_table
from kraftlog.bench.throughput import WARM_UP_SECONDS, load_of

FIRST_WARM_UP_FACTOR: Final = 3.0
"""The factor of the first warm-up, with 64 callers: a JVM compiles the hot code in that time."""
START_SECONDS: Final = {OWN: 5.0, ETCD: 2.0, KAFKA: 15.0}
OPERATION_SECONDS: Final = {OWN: 0.01, ETCD: 0.008, KAFKA: 0.06}
"""The times of a start and of an operation on the machine of docs/figures.md, to estimate the benchmark's time."""

VISIBILITY: Final = {
    OWN: "by a Watch of a follower, in the client's process",
    ETCD: "by a Watch of a follower, in the client's process",
    KAFKA: "by DescribeConfigs of a follower, repeated after the acknowledgement until it has the value",
}

Running = Callable[[Path], AbstractAsyncContextManager[System]]
"""Runs a system in a directory within a block."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int
    operations: int
    """The operations that run one at a time, of each system in each round."""
    seconds: float
    """How long each number of callers submits operations."""
    warm_up_seconds: float = WARM_UP_SECONDS
    """How long they submit uncounted operations before."""


async def run(
    peers_directory: Path, sizes: Sizes, directory: Path | None, json_path: Path | None, console: Console
) -> bool:
    """Measure, print and write the result; return whether there was a peer, and every operation succeeded."""
    peers = find_peers(peers_directory)
    for name, reason in peers.missing.items():
        console.print(f"{name} is left out: {reason}")
    systems, labels = _systems(peers)
    if len(systems) == 1:
        return False
    seconds = expected_seconds(systems, sizes)
    console.print(f"{counted(sizes.rounds)} of {', '.join(labels.values())}: about {seconds / 60:.1f} minutes.")
    errors: list[str] = []
    with console.status("") as status:
        rounds = await measure(systems, sizes, directory, errors, status.update)
    compared = {peer: ratios(rounds, peer) for peer in systems if peer != OWN}
    bounded = targets(compared[ETCD]) if ETCD in compared else []
    result = {
        "systems": labels,
        "missing": dict(peers.missing),
        "visible": {name: VISIBILITY[name] for name in systems},
        "operations": sizes.operations,
        "seconds": sizes.seconds,
        "rounds": rounds,
        "medians": {name: medians(rounds, name) for name in systems},
        "ratios": {peer: {key: round(ratio, 3) for key, ratio in found.items()} for peer, found in compared.items()},
        "targets": {target.name: target.as_json() for target in bounded},
        "failed": len(errors),
        "machine": await machine(directory),
    }
    write_json(json_path, result)
    console.print(comparison_table(rounds, labels))
    for name in systems:
        console.print(f"Visible, {labels[name]}: {VISIBILITY[name]}.")
    if bounded:
        console.print(targets_table(bounded))
    if errors:
        console.print(f"{len(errors)} operations failed, the first: {errors[0]}")
    return not errors


def expected_seconds(systems: Iterable[str], sizes: Sizes) -> float:
    """Estimate the time of the benchmark."""
    loads = (FIRST_WARM_UP_FACTOR + len(CALLERS)) * sizes.warm_up_seconds + len(CALLERS) * sizes.seconds
    operations = sizes.operations + WARM_UP_OPERATIONS
    return sizes.rounds * sum(START_SECONDS[name] + operations * OPERATION_SECONDS[name] + loads for name in systems)


def _systems(peers: Peers) -> tuple[dict[str, Running], dict[str, str]]:
    """Return how to run each system, and its name with its version, kraftlog first."""
    systems: dict[str, Running] = {OWN: OwnSystem.running}
    labels = {OWN: OWN}
    if peers.etcd is not None:
        systems[ETCD] = partial(EtcdSystem.running, peers.etcd.program)
        labels[ETCD] = f"etcd {peers.etcd.version}"
    if peers.kafka is not None:
        systems[KAFKA] = partial(KafkaSystem.running, peers.kafka.java, peers.kafka.jars)
        labels[KAFKA] = f"Kafka {peers.kafka.version}"
    return systems, labels


async def measure(
    systems: Mapping[str, Running],
    sizes: Sizes,
    directory: Path | None,
    errors: list[str],
    show: Callable[[str], None],
) -> list[Round]:
    """Measure each system in each round. Failed operations are added to `errors`, `show` gets the current step.

    Raises ApiError if a system does not start, or all of its operations fail.
    """
    rounds: list[Round] = []
    for number in range(sizes.rounds):
        found = {}
        for name in list(systems) if number % 2 == 0 else reversed(list(systems)):
            show(f"round {number + 1} of {sizes.rounds}: {name}")
            found[name] = await _turn(systems[name], sizes, directory, errors)
        rounds.append(found)
    return rounds


async def _turn(running: Running, sizes: Sizes, directory: Path | None, errors: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="kraftlog-peers-", dir=directory) as name:
        async with running(Path(name)) as system:
            await load_of(system.submit, CALLERS[0], FIRST_WARM_UP_FACTOR * sizes.warm_up_seconds)
            await time_operations(system, WARM_UP_OPERATIONS, errors)
            figures = await time_operations(system, sizes.operations, errors)
            for callers in CALLERS:
                await load_of(system.submit, callers, sizes.warm_up_seconds)
                found = await load_of(system.submit, callers, sizes.seconds)
                errors += found.errors
                _check_some(found.acknowledged, errors)
                figures[load_key(callers)] = round(found.operations_per_second, 1)
    return figures


async def time_operations(system: System, operations: int, errors: list[str]) -> dict[str, float]:
    """Return the median times of operations, each submitted shortly after the previous one is visible."""
    acknowledged_ms, visible_ms = [], []
    async with system.watching() as when_visible:
        for _ in range(operations):
            await asyncio.sleep(random.uniform(*PAUSE_SECONDS))  # noqa: S311 (no secret)
            submitted_ns = time.monotonic_ns()
            try:
                place = await system.submit()
                acknowledged_ns = time.monotonic_ns()
                visible_ns = await when_visible(place)
            except ApiError as error:
                errors.append(str(error))
                continue
            acknowledged_ms.append((acknowledged_ns - submitted_ns) / 1e6)
            visible_ms.append((visible_ns - submitted_ns) / 1e6)
    _check_some(len(visible_ms), errors)
    return {ACKNOWLEDGED: summary(acknowledged_ms)["p50"], VISIBLE: summary(visible_ms)["p50"]}


def _check_some(succeeded: int, errors: Sequence[str]) -> None:
    if succeeded == 0:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no operation succeeded; the last error: {errors[-1]}")
