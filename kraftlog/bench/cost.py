"""The cost of an operation for the leader: processor seconds per 1,000 operations, of this code and another checkout's.

The versions run in pairs, on copies of one cluster directory that the other version has made, with this code's client:
one operation at a time, then 64 callers. The result is the median of the pairs' ratios: anything that slows the machine
down for a while slows down both runs of a pair.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

import kraftlog
from kraftbase.checks import check
from kraftbase.errors import ConfigurationError
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.figures import write_json
from kraftlog.bench.machine import machine
from kraftlog.bench.process_usage import processor_seconds
from kraftlog.bench.throughput import CALLERS, single_operation
from kraftlog.bench.workload import VOTERS, execute_once, prepared
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from kraftlog.process import grpc_settings

START_SECONDS: Final = 60.0
WARM_UP_SHARE: Final = 0.1
OWN_CODE: Final = Path(kraftlog.__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds of the leader per 1,000 operations."""

    one_at_a_time: float
    many_callers: float


async def run(
    against: Path, operations: int, pairs: int, directory: Path | None, json_path: Path | None, console: Console
) -> bool:
    """Measure, print and write the result. Raises ConfigurationError if there is no kraftlog in `against`."""
    if not (against / "kraftlog" / "__main__.py").exists():
        raise ConfigurationError(f"{against} has no kraftlog/__main__.py; give a checkout of the project")
    found: list[tuple[Cost, Cost]] = []
    with tempfile.TemporaryDirectory(prefix="kraftlog-cost-", dir=directory) as name, console.status("") as status:
        template = Path(name) / "template"
        await _make_directory(against, template)
        for pair in range(pairs):
            costs = {}
            for code in (against, OWN_CODE) if pair % 2 == 0 else (OWN_CODE, against):
                status.update(f"pair {pair + 1} of {pairs}: {'this code' if code == OWN_CODE else code}")
                costs[code] = await _measure(code, template, Path(name) / "run", operations)
            found.append((costs[against], costs[OWN_CODE]))
    _print(found, against, console)
    result = {
        "operations": operations,
        "callers": CALLERS,
        "pairs": [[[cost.one_at_a_time, cost.many_callers] for cost in pair] for pair in found],
        "median_ratio_one_at_a_time": round(_ratio(found, "one_at_a_time"), 3),
        "median_ratio_many_callers": round(_ratio(found, "many_callers"), 3),
        "machine": await machine(directory),
    }
    write_json(json_path, result)
    return True


async def _make_directory(code: Path, path: Path) -> None:
    """Make a cluster directory with that code's `kraftlog up`, and end it as soon as it reports that it is up."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "kraftlog", "up", "--dir", str(path), "--voters", str(VOTERS)),
        env={**os.environ, "PYTHONPATH": str(code)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output = process.stdout
    check(output is not None, "its standard output is a pipe")
    try:
        async with asyncio.timeout(START_SECONDS):
            while b" is up." not in (line := await output.readline()):  # type: ignore[union-attr]
                if not line:
                    raise ConfigurationError(f"kraftlog up of {code} ended with exit code {await process.wait()}")
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        await process.communicate()


async def _measure(code: Path, template: Path, path: Path, operations: int) -> Cost:
    shutil.copytree(template, path)
    try:
        cluster = LocalCluster(open_or_create(path), lambda config: _start_command(code, config))
        async with cluster.running():
            leader = await cluster.wait_for_leader()
            async with AdminClient(cluster.bootstrap_servers) as client, prepared(client):
                costs = []
                for callers in (1, CALLERS):
                    await _execute(client, callers, int(operations * WARM_UP_SHARE) + 1)
                    before = processor_seconds(cluster.pid(leader))
                    await _execute(client, callers, operations)
                    costs.append((processor_seconds(cluster.pid(leader)) - before) * 1000 / operations)
            await _check_still_leads(cluster, leader)
    finally:
        shutil.rmtree(path)
    return Cost(*costs)


async def _execute(client: AdminClient, callers: int, operations: int) -> None:
    """Carry out this many operations; each caller carries out one at a time."""
    left = iter(range(operations))

    async def call() -> None:
        for _ in left:
            await execute_once(client, single_operation())

    await asyncio.gather(*(call() for _ in range(callers)))


async def _check_still_leads(cluster: LocalCluster, leader: NodeId) -> None:
    if await cluster.wait_for_leader() != leader:
        raise ConfigurationError(f"node {leader} lost its leadership during the measurement: use an idle machine")


def _start_command(code: Path, config: Path) -> list[str]:
    program = [sys.executable, "-P", "-m", "kraftlog", "start", "--stop-at-eof", "--config", str(config)]
    own = [f"--unset={name}" for name in grpc_settings.set_here]  # the other version has its own, or none
    return ["env", *own, f"PYTHONPATH={code}", *program]


def _ratio(found: Sequence[tuple[Cost, Cost]], field: str) -> float:
    return float(median(getattr(own, field) / getattr(other, field) for other, own in found))


def _print(found: Sequence[tuple[Cost, Cost]], against: Path, console: Console) -> None:
    title = "Processor seconds of the leader per 1,000 operations"
    table = Table("", "one at a time", f"{CALLERS} callers", title=title, title_justify="left", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for label, at in ((str(against), 0), ("this code", 1)):
        costs: list[Any] = [pair[at] for pair in found]
        table.add_row(
            f"{label}, median",
            f"{median(cost.one_at_a_time for cost in costs):.3f}",
            f"{median(cost.many_callers for cost in costs):.3f}",
        )
    table.add_row(
        "median of the pairs' ratios",
        f"{_ratio(found, 'one_at_a_time'):.3f}",
        f"{_ratio(found, 'many_callers'):.3f}",
    )
    console.print(table)
