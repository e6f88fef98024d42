"""What a snapshot of much metadata costs: how long it takes, what admin operations notice, and what it is good for.

One cluster of three voters and two observers is filled; nodes take snapshots only when they are asked.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.figures import summary, times_table, write_json
from bench.machine import machine
from bench.throughput import single_operation
from bench.workload import TOPIC, bench_cluster, execute_once, new_topic
from kraftlog.cluster import LocalCluster
from kraftlog.connection import connect
from kraftpb.v1 import admin_pb2, snapshot_pb2, snapshot_pb2_grpc
from raft.core.errors import ErrorCode, ProtocolError
from raft.core.types import NodeId
from raft.storage.directory import LOG_NAME, METADATA_DATABASE_NAME, SNAPSHOTS_NAME
from raft.storage.posix import PosixFileSystem
from snapshot.reader import SnapshotReader
from statemachine.client import AdminClient

BROKERS: Final = 3
PARTITIONS_PER_TOPIC: Final = 100
TOPICS_PER_OPERATION: Final = 99
"""With their partitions just below the 10,000 records that one operation may have."""
OPERATIONS_IN_FLIGHT: Final = 2
TIMEOUT_SECONDS: Final = 300.0
POLL_SECONDS: Final = 0.05
EVERYTHING_BUT_THE_IDENTITY: Final = (f"{METADATA_DATABASE_NAME}*", LOG_NAME, SNAPSHOTS_NAME, "quorum-state-*")
SETTINGS: Final = {
    "metadata.log.max.record.bytes.between.snapshots": 2**50,
    "metadata.log.max.snapshot.interval.ms": 0,
}


async def run(
    partitions: int, seconds: float, directory: Path | None, json_path: Path | None, console: Console
) -> bool:
    """Measure, print and write the result; returns whether the nodes' snapshots were the same bytes."""
    async with (
        bench_cluster(directory, "snapshot", settings=SETTINGS) as cluster,
        AdminClient(cluster.bootstrap_servers, timeout_ms=int(TIMEOUT_SECONDS * 1000)) as client,
    ):
        filling = await _fill(cluster, client, partitions, console)
        with console.status("admin operations, nobody takes a snapshot") as status:
            leader = await cluster.wait_for_leader()
            times = {"without": await _times_during(client, asyncio.sleep(seconds))}
            status.update("the leader takes a snapshot")
            leader_seconds, times["the leader takes one"] = await _timed_during(client, _take(cluster, [leader]))
            status.update("all nodes take a snapshot at once")
            all_seconds, times["all five at once"] = await _timed_during(client, _take(cluster, cluster.node_ids))
            status.update("the same snapshot on every node")
            taken = await _take(cluster, cluster.node_ids)
            digests = await asyncio.to_thread(_digests, taken)
            resident = {str(node_id): _resident_mib(cluster.pid(node_id)) for node_id in cluster.node_ids}
            status.update("a follower starts again")
            follower = next(node_id for node_id in cluster.voter_ids if node_id != leader)
            restart_seconds = await _restart(cluster, follower)
            status.update("an observer's database is made anew")
            observer = cluster.node_ids[-1]
            restore_seconds = await _restart_without(cluster, observer, [f"{METADATA_DATABASE_NAME}*"])
            status.update("an observer begins with nothing")
            empty_seconds = await _restart_without(cluster, observer, EVERYTHING_BUT_THE_IDENTITY)
    result = {
        **filling,
        "snapshot_bytes": taken[0].snapshot.size_bytes,
        "leader_snapshot_seconds": round(leader_seconds, 2),
        "all_nodes_snapshot_seconds": round(all_seconds, 2),
        "submit_to_ack_ms": {label: summary(found) for label, found in times.items()},
        "different_digests": len(digests),
        "resident_mib": resident,
        "restart_seconds": round(restart_seconds, 2),
        "database_made_anew_seconds": round(restore_seconds, 2),
        "empty_observer_seconds": round(empty_seconds, 2),
        "machine": await machine(directory),
    }
    write_json(json_path, result)
    _print(result, console)
    return len(digests) == 1


async def _fill(cluster: LocalCluster, client: AdminClient, partitions: int, console: Console) -> dict[str, Any]:
    """Create topics of 100 partitions with three replicas, and wait until every node has applied them."""
    for broker_id in range(1, BROKERS + 1):
        await client.register_broker(broker_id, [("PLAINTEXT", "localhost", 9091 + broker_id)])
    await client.create_topics([new_topic(TOPIC)])
    topics = -(-partitions // PARTITIONS_PER_TOPIC)
    names = iter([f"filling-{number}" for number in range(topics)])
    started = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("partitions", total=topics * PARTITIONS_PER_TOPIC)

        async def create() -> int:
            end_offset = 0
            while some := [name for name, _ in zip(names, range(TOPICS_PER_OPERATION), strict=False)]:
                end_offset = (await execute_once(client, _creation(some))).end_offset
                progress.advance(task, len(some) * PARTITIONS_PER_TOPIC)
            return end_offset

        end_offset = max(await asyncio.gather(*(create() for _ in range(OPERATIONS_IN_FLIGHT))))
        created_seconds = time.monotonic() - started
        await cluster.wait_until_applied(end_offset, TIMEOUT_SECONDS)
    return {
        "partitions": topics * PARTITIONS_PER_TOPIC,
        "created_seconds": round(created_seconds, 2),
        "applied_everywhere_seconds": round(time.monotonic() - started, 2),
    }


def _creation(names: Iterable[str]) -> admin_pb2.Operation:
    topics = [
        admin_pb2.CreatableTopic(name=name, num_partitions=PARTITIONS_PER_TOPIC, replication_factor=BROKERS)
        for name in names
    ]
    return admin_pb2.Operation(create_topics=admin_pb2.CreateTopicsRequest(topics=topics), timeout_ms=60_000)


async def _timed_during(client: AdminClient, work: Awaitable[Any]) -> tuple[float, list[float]]:
    started = time.monotonic()
    times_ms = await _times_during(client, work)
    return time.monotonic() - started, times_ms


async def _times_during(client: AdminClient, work: Awaitable[Any]) -> list[float]:
    """How long single operations take from submitted to acknowledged, one after the other, while `work` goes on."""
    task = asyncio.ensure_future(work)
    times_ms: list[float] = []
    while not task.done():
        submitted_ns = time.monotonic_ns()
        await execute_once(client, single_operation())
        times_ms.append((time.monotonic_ns() - submitted_ns) / 1e6)
    await task
    return times_ms


async def _take(cluster: LocalCluster, node_ids: Iterable[NodeId]) -> list[snapshot_pb2.CreateSnapshotResponse]:
    async def take(node_id: NodeId) -> snapshot_pb2.CreateSnapshotResponse:
        async with connect(cluster.endpoint(node_id)) as channel:
            stub = snapshot_pb2_grpc.SnapshotServiceStub(channel)
            return await stub.CreateSnapshot(snapshot_pb2.CreateSnapshotRequest(), timeout=TIMEOUT_SECONDS)

    return await asyncio.gather(*(take(node_id) for node_id in node_ids))


def _digests(taken: Iterable[snapshot_pb2.CreateSnapshotResponse]) -> set[bytes]:
    digests = set()
    for response in taken:
        with SnapshotReader(PosixFileSystem(), response.snapshot.path) as reader:
            digests.add(reader.verify().digest)
    return digests


def _resident_mib(process_id: int) -> int:
    for line in Path(f"/proc/{process_id}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024)
    return 0


async def _restart(cluster: LocalCluster, node_id: NodeId) -> float:
    """Seconds from the start of the process until it answers and has applied what it had."""
    applied = (await cluster.describe(node_id)).applied_end_offset
    await cluster.stop([node_id])
    return await _start(cluster, node_id, applied)


async def _restart_without(cluster: LocalCluster, node_id: NodeId, patterns: Iterable[str]) -> float:
    applied = (await cluster.describe(node_id)).applied_end_offset
    await cluster.stop([node_id])
    for pattern in patterns:
        for path in cluster.directory.data_path(node_id).glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return await _start(cluster, node_id, applied)


async def _start(cluster: LocalCluster, node_id: NodeId, applied_end_offset: int) -> float:
    started = time.monotonic()
    await cluster.start([node_id])
    while time.monotonic() - started < TIMEOUT_SECONDS:
        if (await cluster.describe(node_id)).applied_end_offset >= applied_end_offset:
            return time.monotonic() - started
        await asyncio.sleep(POLL_SECONDS)
    raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, f"node {node_id} has not caught up in {TIMEOUT_SECONDS:g} s")


def _print(result: dict[str, Any], console: Console) -> None:
    console.print(
        f"{result['partitions']:,} partitions created in {result['created_seconds']:.1f} s, applied by all five nodes"
        f" after {result['applied_everywhere_seconds']:.1f} s."
    )
    console.print(
        f"A snapshot has {result['snapshot_bytes'] / 1e6:.1f} MB and takes {result['leader_snapshot_seconds']:.1f} s;"
        f" all nodes at once {result['all_nodes_snapshot_seconds']:.1f} s."
    )
    same = "the same" if result["different_digests"] == 1 else f"{result['different_digests']} different"
    console.print(f"The five nodes' snapshots of one offset have {same} digest{'' if same == 'the same' else 's'}.")
    console.print(times_table("Submit to acknowledged, milliseconds", list(result["submit_to_ack_ms"].items())))
    console.print(f"Resident memory, MiB: {', '.join(f'{key}: {mib}' for key, mib in result['resident_mib'].items())}.")
    console.print(
        f"A voter answers {result['restart_seconds']:.1f} s after its start. An observer has everything applied after"
        f" {result['database_made_anew_seconds']:.1f} s if its database was lost, after"
        f" {result['empty_observer_seconds']:.1f} s if it had nothing but its identity."
    )
