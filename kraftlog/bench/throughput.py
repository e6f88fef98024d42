"""The throughput of a cluster: acknowledged operations per second from 64 concurrent callers of one client, and records
per second when each operation carries many.

Every acknowledged operation is on the disks of a majority. Operations are not retried; a failed one is counted and
makes the benchmark fail.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kraftbase.errors import ApiError
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.figures import summary, times_table, write_json
from kraftlog.bench.machine import machine
from kraftlog.bench.workload import (
    TOPIC,
    alter_configs_operation,
    bench_cluster,
    execute_once,
    new_topic,
    prepared,
    set_config,
)
from kraftpb.v1 import admin_pb2

CALLERS: Final = 64
BATCH_CALLERS: Final = 4
BATCH_TOPICS: Final = 500
WARM_UP_SECONDS: Final = 1.0
CONFIG: Final = "retention.ms"

_VALUES: Final = itertools.count(1)
"""Every value is new, since setting a config to its present value writes no record."""


@dataclass(slots=True)
class Load:
    """The results of callers that ran at the same time."""

    seconds: float = 0.0
    acknowledged: int = 0
    times_ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def operations_per_second(self) -> float:
        """Acknowledged operations per second."""
        return self.acknowledged / self.seconds


async def load(client: AdminClient, callers: int, seconds: float, operation: Callable[[], admin_pb2.Operation]) -> Load:
    """Let `callers` callers submit one operation after the other, made by `operation`, for `seconds`."""
    return await load_of(lambda: execute_once(client, operation()), callers, seconds)


async def load_of(submit: Callable[[], Awaitable[object]], callers: int, seconds: float) -> Load:
    """As `load`, for any operation: `submit` carries out one operation, and raises ApiError if it failed.

    Each caller submits at least one operation, even if the time is over.
    """
    result = Load()
    started = time.monotonic()

    async def call() -> None:
        is_over = False
        while not is_over:
            submitted_ns = time.monotonic_ns()
            try:
                await submit()
            except ApiError as error:
                result.errors.append(str(error))
            else:
                result.acknowledged += 1
                result.times_ms.append((time.monotonic_ns() - submitted_ns) / 1e6)
            is_over = time.monotonic() - started >= seconds

    await asyncio.gather(*(call() for _ in range(callers)))
    result.seconds = time.monotonic() - started
    return result


def single_operation() -> admin_pb2.Operation:
    """Return an operation that sets one config of one topic to a new value."""
    return alter_configs_operation([set_config(TOPIC, CONFIG, str(next(_VALUES)))])


def _many() -> admin_pb2.Operation:
    value = str(next(_VALUES))
    return alter_configs_operation([set_config(f"{TOPIC}-{number}", CONFIG, value) for number in range(BATCH_TOPICS)])


async def run(seconds: float, directory: Path | None, json_path: Path | None, console: Console) -> bool:
    """Measure both loads, print and write the result; return whether every operation succeeded."""
    with console.status("starting 3 voters and 2 observers") as status:
        async with (
            bench_cluster(directory, "throughput") as cluster,
            AdminClient(cluster.bootstrap_servers) as client,
            prepared(client),
        ):
            await client.create_topics([new_topic(f"{TOPIC}-{number}") for number in range(BATCH_TOPICS)])
            status.update(f"{CALLERS} callers, single operations")
            await load(client, CALLERS, WARM_UP_SECONDS, single_operation)
            single = await load(client, CALLERS, seconds, single_operation)
            status.update(f"{BATCH_CALLERS} callers, {BATCH_TOPICS} records an operation")
            many = await load(client, BATCH_CALLERS, seconds, _many)
    result = {
        "single_operations": _figures(single, CALLERS, 1),
        "batches": _figures(many, BATCH_CALLERS, BATCH_TOPICS),
        "machine": await machine(directory),
    }
    write_json(json_path, result)
    _print(single, many, console)
    return not single.errors and not many.errors


def _figures(found: Load, callers: int, records: int) -> dict[str, Any]:
    return {
        "callers": callers,
        "records_per_operation": records,
        "seconds": round(found.seconds, 3),
        "acknowledged": found.acknowledged,
        "failed": len(found.errors),
        "operations_per_second": round(found.operations_per_second, 1),
        "records_per_second": round(found.operations_per_second * records, 1),
        **({"submit_to_ack_ms": summary(found.times_ms)} if found.times_ms else {}),
    }


def _print(single: Load, many: Load, console: Console) -> None:
    console.print(f"{CALLERS} callers of one client: {single.operations_per_second:,.0f} acknowledged operations/s")
    console.print(
        f"{BATCH_TOPICS} records an operation, {BATCH_CALLERS} callers:"
        f" {many.operations_per_second * BATCH_TOPICS:,.0f} acknowledged records/s"
    )
    rows = [(name, summary(found.times_ms)) for name, found in (("single", single), ("batch", many)) if found.times_ms]
    console.print(times_table("Submit to acknowledged, milliseconds", rows))
    for found in (single, many):
        if found.errors:
            console.print(f"{len(found.errors)} operations failed, the first: {found.errors[0]}")
