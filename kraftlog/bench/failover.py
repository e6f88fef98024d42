"""How long a cluster is without a leader: the leader's process is killed with SIGKILL while a client writes.

The time is counted from the kill to the first acknowledgment by the next leader. After all rounds every topic whose
creation was acknowledged must exist on every node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.figures import summary, times_table, write_json
from kraftlog.bench.machine import machine
from kraftlog.bench.workload import bench_cluster, check_result, create_topic_operation, prepared
from kraftlog.local.cluster import LocalCluster

ROUND_TIMEOUT_SECONDS: Final = 30.0
OPERATIONS_BEFORE_KILL: Final = 20


class Writer:
    """Creates one topic after another and remembers each acknowledgement."""

    def __init__(self, client: AdminClient, callers: int = 1) -> None:
        """`callers` write at the same time."""
        self.callers = callers
        self._client = client
        self.acknowledged: dict[str, float] = {}
        """Topic names, and the time (CLOCK_MONOTONIC) of their acknowledgement."""
        self.end_offset = 0
        self._acknowledgement = asyncio.Event()
        self._number = 0

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write within the block."""
        tasks = [asyncio.create_task(self._write()) for _ in range(self.callers)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self) -> None:
        """Create topics until cancelled. An unacknowledged topic may exist: it is not counted, nor its name reused."""
        while True:
            self._number += 1
            name = f"topic-{self._number}"
            try:
                result = await self._client.execute(create_topic_operation(name))
                check_result(result)
            except ApiError:
                continue
            self.end_offset = max(self.end_offset, result.end_offset)
            self.acknowledged[name] = time.monotonic()
            self._acknowledgement.set()

    async def wait_for_acknowledgements(self, count: int) -> float:
        """Wait for `count` more acknowledgements; return the time of the last. Raises ApiError REQUEST_TIMED_OUT."""
        wanted = len(self.acknowledged) + count
        try:
            async with asyncio.timeout(ROUND_TIMEOUT_SECONDS):
                while len(self.acknowledged) < wanted:
                    self._acknowledgement.clear()
                    await self._acknowledgement.wait()
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{len(self.acknowledged)} acknowledgements, and no other in {ROUND_TIMEOUT_SECONDS:g} s;"
                " see the nodes' logs",
            ) from None
        return time.monotonic()


async def kill_leader(cluster: LocalCluster, writer: Writer) -> tuple[NodeId, float]:
    """SIGKILL the leader; return its id, and the seconds until the next leader acknowledged an operation."""
    leader = await cluster.wait_for_leader()
    killed = time.monotonic()
    await cluster.kill(leader)
    # Each caller's first acknowledgement may be the dead leader's last; later ones are the next leader's.
    acknowledged = await writer.wait_for_acknowledgements(writer.callers + 1)
    successor = await cluster.wait_for_leader()
    if successor == leader:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"node {leader} leads although it was killed")
    return leader, acknowledged - killed


async def lost(cluster: LocalCluster, writer: Writer) -> dict[NodeId, int]:
    """Return how many acknowledged topics each node lacks, once it has applied the last of them."""
    missing = {}
    await cluster.wait_until_applied(writer.end_offset)
    for node_id in cluster.node_ids:
        async with AdminClient([cluster.endpoint(node_id)]) as client:
            listed = {topic.name for topic in (await client.list_topics()).topics}
        missing[node_id] = len(writer.acknowledged.keys() - listed)
    return missing


async def measure(rounds: int, directory: Path | None) -> dict[str, Any]:
    """Kill the leader `rounds` times; the killed node starts again before the next round."""
    times = []
    async with (
        bench_cluster(directory, "failover") as cluster,
        AdminClient(cluster.bootstrap_servers) as client,
        prepared(client),
    ):
        writer = Writer(client)
        async with writer.writing():
            for _ in range(rounds):
                await writer.wait_for_acknowledgements(OPERATIONS_BEFORE_KILL)
                killed, seconds = await kill_leader(cluster, writer)
                times.append(seconds)
                await cluster.start([killed])
                await cluster.wait_until_applied(writer.end_offset)
        missing = await lost(cluster, writer)
    return {
        "rounds": rounds,
        "kill_to_acknowledged_ms": summary([seconds * 1000 for seconds in times]),
        "acknowledged": len(writer.acknowledged),
        "lost": sum(missing.values()),
    }


async def run(rounds: int, directory: Path | None, json_path: Path | None, console: Console) -> bool:
    """Measure, print and write the result; return whether no acknowledged operation was lost."""
    with console.status(f"killing the leader {rounds} times"):
        found = await measure(rounds, directory)
    write_json(json_path, {**found, "machine": await machine(directory)})
    rows = [("kill to acknowledged", found["kill_to_acknowledged_ms"])]
    console.print(times_table(f"SIGKILL of the leader, {rounds} times, milliseconds", rows))
    console.print(f"{found['acknowledged']:,} operations acknowledged, {found['lost']} lost.")
    return not found["lost"]
