"""How long a follower that was down takes to catch up, counted from the start of its process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.figures import write_json
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
from kraftlog.local.cluster import LocalCluster

TOPICS: Final = 500
TIMEOUT_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.02


async def measure(records: int, directory: Path | None) -> dict[str, Any]:
    """Stop a follower, commit `records` records, start it again; seconds until its log and its state are level."""
    async with (
        bench_cluster(directory, "catch-up") as cluster,
        AdminClient(cluster.bootstrap_servers) as client,
        prepared(client),
    ):
        await client.create_topics([new_topic(f"{TOPIC}-{number}") for number in range(TOPICS)])
        leader = await cluster.wait_for_leader()
        follower = next(node_id for node_id in cluster.voter_ids if node_id != leader)
        await cluster.stop([follower])
        before = (await cluster.describe(leader)).log_end_offset
        end_offset = await _write(client, records)
        started = time.monotonic()
        start = asyncio.create_task(cluster.start([follower]))
        level = await _wait_until_level(cluster, follower, end_offset, started)
        await start
        return {"records": end_offset - before, **level}


async def _write(client: AdminClient, records: int) -> int:
    end_offset = 0
    for turn in range(-(-records // TOPICS)):
        alterations = [set_config(f"{TOPIC}-{number}", "retention.ms", str(turn + 1)) for number in range(TOPICS)]
        end_offset = (await execute_once(client, alter_configs_operation(alterations))).end_offset
    return end_offset


async def _wait_until_level(
    cluster: LocalCluster, node_id: NodeId, end_offset: int, started: float
) -> dict[str, float]:
    level: dict[str, float] = {}
    while time.monotonic() - started < TIMEOUT_SECONDS:
        try:
            node = await cluster.describe(node_id, 1.0)
        except ApiError:
            await asyncio.sleep(POLL_SECONDS)
            continue
        seconds = round(time.monotonic() - started, 3)
        level.setdefault("answers_after_seconds", seconds)
        if node.log_end_offset >= end_offset:
            level.setdefault("log_level_after_seconds", seconds)
        if node.applied_end_offset >= end_offset:
            return {**level, "applied_after_seconds": seconds}
        await asyncio.sleep(POLL_SECONDS)
    raise ApiError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"node {node_id} has not caught up to offset {end_offset} after {TIMEOUT_SECONDS:g} s;"
        f" see {cluster.directory.log_path(node_id)}",
    )


async def run(records: int, directory: Path | None, json_path: Path | None, console: Console) -> bool:
    """Measure, print and write the result."""
    with console.status(f"a follower misses {records:,} records"):
        found = await measure(records, directory)
    write_json(json_path, {**found, "machine": await machine(directory)})
    console.print(
        f"A follower that missed {found['records']:,} records has them {found['log_level_after_seconds']:.2f} s after"
        f" its process was started (it answers after {found['answers_after_seconds']:.2f} s, has applied them all"
        f" after {found['applied_after_seconds']:.2f} s)."
    )
    return True
