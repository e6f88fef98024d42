"""How much readers slow down a writer: its acknowledged operations per second alone, and beside readers, in turn.

The readers are one process with a connection for each. Each reader reads the list of topics from the leader, again and
again. Unlike clients on other machines, they share the machine's processors with the nodes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.figures import summary, times_table, write_json
from kraftlog.bench.machine import machine
from kraftlog.bench.readers import UNDER_WAY
from kraftlog.bench.targets import Target, targets_table
from kraftlog.bench.throughput import WARM_UP_SECONDS, Load, load, single_operation
from kraftlog.bench.workload import bench_cluster, prepared

READERS: Final = 20
ROUNDS: Final = 5
KEPT_PERCENT: Final = 80.0
START_SECONDS: Final = 60.0


async def run(seconds: float, directory: Path | None, json_path: Path | None, console: Console) -> bool:
    """Measure, print and write the result; return whether every operation succeeded."""
    alone: list[Load] = []
    crowded: list[Load] = []
    with console.status("starting 3 voters and 2 observers") as status:
        async with (
            bench_cluster(directory, "crowd") as cluster,
            AdminClient(cluster.bootstrap_servers) as client,
            prepared(client),
        ):
            leader = cluster.endpoint(await cluster.wait_for_leader())
            await load(client, 1, WARM_UP_SECONDS, single_operation)
            for number in range(ROUNDS):
                status.update(f"round {number + 1} of {ROUNDS}: a writer alone")
                alone.append(await load(client, 1, seconds, single_operation))
                async with _readers(leader):
                    status.update(f"round {number + 1} of {ROUNDS}: a writer beside {READERS} readers")
                    await load(client, 1, WARM_UP_SECONDS, single_operation)
                    crowded.append(await load(client, 1, seconds, single_operation))
    shares = [beside.operations_per_second / by_itself.operations_per_second
              for by_itself, beside in zip(alone, crowded, strict=True)]  # fmt: skip
    target = Target("kept beside readers", median(shares) * 100, KEPT_PERCENT, "%", is_minimum=True)
    rates = {name: [round(found.operations_per_second, 1) for found in rounds]
             for name, rounds in (("alone", alone), ("beside readers", crowded))}  # fmt: skip
    result = {
        "readers": READERS,
        "operations_per_second": rates,
        "targets": {target.name: target.as_json()},
        "machine": await machine(directory),
    }
    write_json(json_path, result)
    for name, found in rates.items():
        console.print(f"{name}: {', '.join(f'{rate:,.0f}' for rate in found)} acknowledged operations/s of one caller")
    rows = [(name, summary([time for found in rounds for time in found.times_ms]))
            for name, rounds in (("alone", alone), ("beside readers", crowded))]  # fmt: skip
    console.print(times_table("Submit to acknowledged, milliseconds", rows))
    console.print(targets_table([target]))
    return not any(found.errors for found in (*alone, *crowded))


@asynccontextmanager
async def _readers(endpoint: Endpoint) -> AsyncIterator[None]:
    command = (sys.executable, "-m", "kraftlog.bench.readers", str(endpoint), str(READERS))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        if process.stdout is None or await _first_line(process.stdout) != UNDER_WAY:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the readers did not start; their error is above")
        yield
    finally:
        process.kill()
        await process.wait()


async def _first_line(output: asyncio.StreamReader) -> str:
    async with asyncio.timeout(START_SECONDS):
        return (await output.readline()).decode().strip()
