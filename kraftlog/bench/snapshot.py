"""The cost of a snapshot of much metadata: its time, its effect on admin operations, and the time that it saves.

One cluster of three voters and two observers is filled; nodes take snapshots only on request. The figures are printed
with their targets.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.status import Status

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.connection import connect
from kraftlog.bench.figures import summary, times_table, write_json
from kraftlog.bench.filling import TIMEOUT_SECONDS, fill
from kraftlog.bench.machine import machine
from kraftlog.bench.targets import Target, targets_table
from kraftlog.bench.throughput import single_operation
from kraftlog.bench.transfer import measure_transfer
from kraftlog.bench.workload import BROKER_IDS, NO_SNAPSHOTS, TOPIC, bench_cluster, execute_once
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.local.cluster import LocalCluster
from kraftpb.v1 import snapshot_pb2, snapshot_pb2_grpc
from raft.core.types import OffsetAndEpoch
from raft.storage.directory import LOG_NAME, METADATA_DATABASE_NAME, SNAPSHOTS_NAME
from snapshot.reader import SnapshotReader

POLL_SECONDS: Final = 0.05
WITHOUT: Final = "without"
EVERYTHING_BUT_THE_IDENTITY: Final = (f"{METADATA_DATABASE_NAME}*", LOG_NAME, SNAPSHOTS_NAME, "quorum-state-*")


async def run(
    partitions: int, seconds: float, directory: Path | None, json_path: Path | None, console: Console
) -> bool:
    """Measure, print and write the result; return whether the nodes' snapshots have the same bytes."""
    async with (
        bench_cluster(directory, "snapshot", settings=NO_SNAPSHOTS) as cluster,
        AdminClient(cluster.bootstrap_servers, timeout_ms=int(TIMEOUT_SECONDS * 1000)) as client,
        living_brokers(client, BROKER_IDS),
    ):
        filling = await fill(cluster, client, partitions, console)
        with console.status("admin operations, without a snapshot") as status:
            leader = await cluster.wait_for_leader()
            taking = await _measure_taking(cluster, client, leader, seconds, status)
            using = await _measure_using(cluster, leader, status)
    result = {**filling, **taking, **using, "machine": await machine(directory)}
    targets = _targets(result)
    write_json(json_path, {**result, "targets": {target.name: target.as_json() for target in targets}})
    _print(result, console)
    console.print(targets_table(targets))
    return bool(result["different_digests"] == 1)


async def _measure_taking(
    cluster: LocalCluster, client: AdminClient, leader: NodeId, seconds: float, status: Status
) -> dict[str, Any]:
    times = {WITHOUT: await _times_during(client, asyncio.sleep(seconds))}
    status.update("the leader takes a snapshot")
    leader_seconds, times["the leader takes one"] = await _timed_during(client, _take(cluster, [leader]))
    status.update("all nodes take a snapshot at once")
    all_seconds, times["all five at once"] = await _timed_during(client, _take(cluster, cluster.node_ids))
    status.update("the same snapshot on every node")
    taken = await _take(cluster, cluster.node_ids)
    digests = await asyncio.to_thread(_digests, taken)
    return {
        "snapshot_bytes": taken[0].snapshot.size_bytes,
        "leader_snapshot_seconds": round(leader_seconds, 2),
        "all_nodes_snapshot_seconds": round(all_seconds, 2),
        "submit_to_ack_ms": {label: summary(found) for label, found in times.items()},
        "different_digests": len(digests),
        "resident_mib": {str(node_id): _memory_mib(cluster.pid(node_id), "VmRSS") for node_id in cluster.node_ids},
        "resident_peak_mib": {str(node_id): _memory_mib(cluster.pid(node_id), "VmHWM") for node_id in cluster.node_ids},
    }


async def _measure_using(cluster: LocalCluster, leader: NodeId, status: Status) -> dict[str, Any]:
    """Measure the use of snapshots. Every node has the same snapshot, and no records follow it."""
    status.update("the leader's snapshot is fetched")
    transfer = await measure_transfer(cluster, leader, await _latest_snapshot(cluster, leader))
    status.update("a follower starts again")
    follower = next(node_id for node_id in cluster.voter_ids if node_id != leader)
    restart_seconds = await _restart_without(cluster, leader, follower, [])
    status.update("an observer's database is rebuilt")
    observer = cluster.node_ids[-1]
    restore_seconds = await _restart_without(cluster, leader, observer, [f"{METADATA_DATABASE_NAME}*"])
    status.update("an observer starts empty")
    empty_seconds = await _restart_without(cluster, leader, observer, EVERYTHING_BUT_THE_IDENTITY)
    return {
        "transfer": transfer,
        "restart_seconds": round(restart_seconds, 2),
        "database_made_anew_seconds": round(restore_seconds, 2),
        "empty_observer_seconds": round(empty_seconds, 2),
        "empty_observer_log_start_offset": (await cluster.describe(observer)).log_start_offset,
        "empty_observer_resident_mib": _memory_mib(cluster.pid(observer), "VmRSS"),
        "empty_observer_resident_peak_mib": _memory_mib(cluster.pid(observer), "VmHWM"),
    }


def _targets(result: dict[str, Any]) -> list[Target]:
    times: dict[str, dict[str, float]] = result["submit_to_ack_ms"]
    meanwhile = [figures for label, figures in times.items() if label != WITHOUT]
    ratio = max(figures["p99"] for figures in meanwhile) / times[WITHOUT]["p99"]
    transfer = result["transfer"]
    resident = max(*result["resident_mib"].values(), result["empty_observer_resident_mib"])
    return [
        Target("the leader takes a snapshot", result["leader_snapshot_seconds"], 30, "s"),
        Target("admin p99 during a snapshot, to without", round(ratio, 2), 3, "times"),
        Target("longest operation during a snapshot", max(figures["max"] for figures in meanwhile), 250, "ms"),
        Target("empty observer level", result["empty_observer_seconds"], 60, "s"),
        Target("transfer", transfer["discarded_mb_per_second"], 100, "MB/s", is_minimum=True),
        Target("transfer, checked and durable", transfer["received_mb_per_second"], 100, "MB/s", is_minimum=True),
        Target("restart until level", result["restart_seconds"], 3, "s"),
        Target("resident, the largest node", resident, 300, "MiB"),
    ]


async def _timed_during(client: AdminClient, work: Awaitable[Any]) -> tuple[float, list[float]]:
    started = time.monotonic()
    times_ms = await _times_during(client, work)
    return time.monotonic() - started, times_ms


async def _times_during(client: AdminClient, work: Awaitable[Any]) -> list[float]:
    """Return the times of single operations, one after the other, from submitted to acknowledged while `work` runs."""
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


async def _latest_snapshot(cluster: LocalCluster, node_id: NodeId) -> OffsetAndEpoch:
    async with connect(cluster.endpoint(node_id)) as channel:
        stub = snapshot_pb2_grpc.SnapshotServiceStub(channel)
        listed = await stub.ListSnapshots(snapshot_pb2.ListSnapshotsRequest(), timeout=TIMEOUT_SECONDS)
    ids = [found.snapshot_id for found in listed.snapshots]
    return max(OffsetAndEpoch(epoch=Epoch(found.epoch), offset=Offset(found.end_offset)) for found in ids)


def _memory_mib(process_id: int, field: str) -> int:
    for line in Path(f"/proc/{process_id}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return round(int(line.split()[1]) / 1024)
    return 0


async def _restart_without(cluster: LocalCluster, leader: NodeId, node_id: NodeId, patterns: Iterable[str]) -> float:
    """Restart a node without some of its files; return the seconds from its start until it is level with the leader.

    A level node has applied everything below the leader's high watermark, and answers a query.
    """
    await cluster.stop([node_id])
    for pattern in patterns:
        for path in cluster.directory.data_path(node_id).glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    high_watermark = (await cluster.describe(leader)).high_watermark
    started = time.monotonic()
    await cluster.start([node_id])
    while time.monotonic() - started < TIMEOUT_SECONDS:
        if (await cluster.describe(node_id)).applied_end_offset >= high_watermark:
            async with AdminClient([cluster.endpoint(node_id)]) as reader:
                await reader.describe_topics([TOPIC])
            return time.monotonic() - started
        await asyncio.sleep(POLL_SECONDS)
    raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"node {node_id} has not caught up in {TIMEOUT_SECONDS:g} s")


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
    transfer = result["transfer"]
    console.print(
        f"FetchSnapshot in {transfer['pieces']} pieces of {transfer['piece_bytes'] / 2**20:g} MiB, one after the other:"
        f" {transfer['discarded_mb_per_second']:.0f} MB/s discarded, {transfer['received_mb_per_second']:.0f} MB/s"
        f" checked and durable. Before that, the leader reads the whole snapshot once:"
        f" {transfer['read_through_by_leader_seconds']:.2f} s."
    )
    how = "by snapshot" if result["empty_observer_log_start_offset"] else "by the log, from its beginning"
    console.print(
        f"A voter is level {result['restart_seconds']:.1f} s after its start. An observer is level after"
        f" {result['database_made_anew_seconds']:.1f} s if its database was lost, after"
        f" {result['empty_observer_seconds']:.1f} s if it had only its identity ({how}); then it uses"
        f" {result['empty_observer_resident_mib']} MiB, {result['empty_observer_resident_peak_mib']} at the peak."
    )
