"""Snapshots between real nodes: taken, fetched, continued from, and the log's start that follows them (KIP-630).

A rule that tests here are named after: SN-07.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kraftbase.errors import InvariantViolation
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, Offset
from kraftlog.commands import quorum
from kraftpb.v1 import log_pb2, log_pb2_grpc, quorum_pb2, quorum_pb2_grpc
from raft.core.types import OffsetAndEpoch
from raft.storage.segment import segment_name
from tests.raft.nodes import Cluster
from tests.raft.snapshot_nodes import (
    EAGER,
    REPLICATED,
    TIMESTAMP_MS,
    Loader,
    SnapshotCluster,
    numbered,
    snapshot_cluster,
    take_snapshot,
)
from tests.snapshot.builders import overwrite
from tests.statemachine.waiting import turns, until


async def described(cluster: Cluster) -> dict[int, dict[str, Any]]:
    """The rows of `quorum describe --replication` by node."""
    leader = await cluster.leader()
    endpoint = cluster.nodes[leader.node_key.node_id].identity.endpoint
    async with grpc.aio.insecure_channel(str(endpoint)) as channel:
        stub = quorum_pb2_grpc.QuorumServiceStub(channel)
        response = await stub.DescribeQuorum(
            quorum_pb2.DescribeQuorumRequest(cluster_id=cluster.cluster_id), timeout=60
        )
    return {row["NodeId"]: row for row in quorum.replication(response)}


async def a_follower(cluster: Cluster) -> int:
    leader_id = (await cluster.leader()).node_key.node_id
    return next(node_id for node_id in cluster.nodes if node_id != leader_id and node_id <= len(cluster.voters))


# --- createSnapshot (3.2 of the facts) --------------------------------------------------------------------------------


async def test_sn07_create_snapshot_keeps_the_rules(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path, voter_count=1) as cluster:
        client = await cluster.leader()
        for _ in range(3):
            await client.append([b"a", b"b"])  # from offset 1 on; the leader's change is at 0
        epoch = client.leader_and_epoch.epoch

        def create(offset: int, epoch: int = epoch) -> object:
            return client.create_snapshot(OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(offset)), TIMESTAMP_MS)

        assert client.high_watermark == client.log_end_offset == 7
        for offset, given, reason in (
            (8, epoch, "not committed"),
            (5, epoch + 1, "not of epoch"),
            (5, epoch - 1, "not of epoch"),
            (4, epoch, "within a batch"),
            (0, 0, "would be empty"),
            (0, epoch, "would be empty"),
            (-1, epoch, "would be empty"),
        ):
            with pytest.raises(ValueError, match=reason):
                create(offset, given)
        assert client.latest_snapshot_id is None

        loader = cluster.loader(1)
        await loader.has_records(6)
        at_end = take_snapshot(client, loader)
        assert at_end == OffsetAndEpoch(epoch=epoch, offset=Offset(7))
        assert client.latest_snapshot_id == at_end
        assert create(7) is None, "it exists"
        take_snapshot(client, loader, 3)
        assert client.log_start_offset == 3
        assert create(1) is None, "the log starts further on"
        assert create(3) is None
        with pytest.raises(ValueError, match="within a batch"):
            create(4)
        take_snapshot(client, loader, 5)
        assert client.latest_snapshot_id == at_end
        min((tmp_path / "node-1" / "snapshots").glob("*.checkpoint")).unlink()
        start = client.log_start_offset
        assert create(start) is not None, "the one at the log's start was deleted, and may be made again"


async def test_sn07_what_is_on_disk_and_not_committed_is_in_no_snapshot(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 3)
        client = await cluster.leader()
        leader_id = client.node_key.node_id
        for node_id in [node_id for node_id in cluster.nodes if node_id != leader_id]:
            await cluster.stop(node_id)
        committed = client.high_watermark
        waiting = asyncio.ensure_future(client.append([b"only the leader has it"]))
        log = cluster.nodes[leader_id].log
        await until(lambda: log.flushed_end_offset == committed + 1)
        epoch = log.epochs.last_epoch
        with pytest.raises(ValueError, match="not committed"):
            client.create_snapshot(OffsetAndEpoch(epoch=epoch, offset=log.flushed_end_offset), TIMESTAMP_MS)
        writer = client.create_snapshot(OffsetAndEpoch(epoch=epoch, offset=committed), TIMESTAMP_MS)
        assert writer is not None
        writer.close()
        waiting.cancel()


async def test_sn61_a_listener_that_waits_for_a_snapshot_is_given_the_next_one_that_is_taken(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path, voter_count=1) as cluster:
        await two_snapshots(cluster)
        client = cluster.clients[1]
        assert client.log_start_offset > 0
        for path in (tmp_path / "node-1" / "snapshots").glob("*.checkpoint"):
            path.unlink()
        waiting = Loader("waiting")
        client.register(waiting)
        await until(lambda: client.latest_snapshot_id is None)
        await turns()
        assert waiting.records == []
        snapshot_id = take_snapshot(client, cluster.loader(1))
        await waiting.has_records(30)
        assert waiting.loaded == [snapshot_id]


async def test_sn07_nothing_is_committed_for_a_node_that_knows_no_high_watermark(tmp_path: Path) -> None:
    cluster = SnapshotCluster(tmp_path, 3, REPLICATED, make_recorder=Loader)
    client = await cluster.up(1)
    try:
        assert client.high_watermark == -1
        with pytest.raises(ValueError, match="not committed"):
            client.create_snapshot(OffsetAndEpoch(epoch=Epoch(0), offset=Offset(1)), TIMESTAMP_MS)
    finally:
        await cluster.stop(1)


async def test_sn05_a_snapshot_that_is_closed_without_a_freeze_is_none(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path, voter_count=1) as cluster:
        await cluster.append(0, 3)
        client = cluster.clients[1]
        snapshot_id = OffsetAndEpoch(epoch=client.leader_and_epoch.epoch, offset=client.high_watermark)
        writer = client.create_snapshot(snapshot_id, TIMESTAMP_MS)
        assert writer is not None
        writer.append([b"a"])
        writer.close()
        writer.close()
        assert client.latest_snapshot_id is None
        assert list((tmp_path / "node-1" / "snapshots").iterdir()) == []
        take_snapshot(client, cluster.loader(1))
        with pytest.raises(InvariantViolation):
            writer.append([b"a"])


# --- fetching a snapshot ---------------------------------------------------------------------------------------------


def watch_parts(files: MemoryFileSystem) -> list[str]:
    """The operations on half-written snapshots, from now on."""
    operations: list[str] = []

    def note(operation: str, path: str) -> None:
        if path.endswith(".part"):
            operations.append(operation)

    files.before_operation = note
    return operations


async def test_pk10_an_observer_that_joins_with_nothing_fetches_the_snapshot_and_follows(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 40)
        leader = await cluster.leader()
        snapshot_id = take_snapshot(leader, cluster.loader(leader.node_key.node_id))
        await cluster.append(40, 45)
        assert leader.log_start_offset == 0, "although the log has everything"
        files = MemoryFileSystem()
        operations = watch_parts(files)
        observer = await cluster.up(4, files)
        loader = cluster.loader(4)
        await loader.has_records(45)
        assert loader.loaded == [snapshot_id]
        assert loader.first_commit_offset == snapshot_id.offset
        assert loader.records == numbered(45)
        assert observer.latest_snapshot_id == snapshot_id
        assert observer.log_start_offset == snapshot_id.offset
        assert operations.count("create") == 1
        assert operations.count("write_at") > 10
        await cluster.append(45, 50)
        assert loader.records == numbered(50)
        assert loader.loaded == [snapshot_id]


async def test_sn20_a_voter_that_was_down_while_the_start_moved_on_fetches_the_snapshot_and_votes(
    tmp_path: Path,
) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 10)
        stopped = await a_follower(cluster)
        await cluster.stop(stopped)
        await cluster.append(10, 30)
        first = cluster.snapshot_everywhere()
        await cluster.append(30, 40)
        second = cluster.snapshot_everywhere()
        await until(lambda: all(client.log_start_offset == first.offset for client in cluster.clients.values()))
        client = await cluster.up(stopped)
        loader = cluster.loader(stopped)
        await loader.has_records(40)
        assert loader.records == numbered(40)
        assert second in loader.loaded
        assert client.log_start_offset == second.offset
        leader_id = (await cluster.leader()).node_key.node_id
        (third,) = (node_id for node_id in cluster.nodes if node_id not in (leader_id, stopped))
        await cluster.stop(third)
        await cluster.append(40, 45)  # its vote is needed
        assert loader.records == numbered(45)


class PausingFiles(MemoryFileSystem):
    """Stops the disk's thread before a certain piece of a snapshot is written, until it is released."""

    def __init__(self, pause_at: int) -> None:
        super().__init__()
        self.operations: list[str] = []
        self.has_paused = threading.Event()
        self.may_go_on = threading.Event()

        def note(operation: str, path: str) -> None:
            if not path.endswith(".part"):
                return
            self.operations.append(operation)
            if self.operations.count("write_at") == pause_at and not self.has_paused.is_set():
                self.has_paused.set()
                assert self.may_go_on.wait(20)

        self.before_operation = note


async def test_sn12_a_transfer_goes_on_where_it_stopped_when_another_leader_has_the_same_snapshot(
    tmp_path: Path,
) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 40)
        snapshot_id = cluster.snapshot_everywhere()
        leader = await cluster.leader()
        (path,) = (tmp_path / f"node-{leader.node_key.node_id}" / "snapshots").iterdir()
        piece_count = -(-path.stat().st_size // 64)
        files = PausingFiles(pause_at=piece_count // 2)
        try:
            await cluster.up(4, files)
            await until(files.has_paused.is_set)
            await cluster.stop(leader.node_key.node_id)
            voters = [client for node_id, client in cluster.clients.items() if node_id != 4]
            await until(lambda: any(client._node.replica.is_leader for client in voters))
        finally:
            files.may_go_on.set()
        loader = cluster.loader(4)
        await loader.has_records(40)
        assert loader.loaded == [snapshot_id]
        assert files.operations.count("create") == 1
        assert files.operations.count("write_at") == piece_count, "no byte arrived twice"
        with cluster.nodes[4]._shell.snapshots._store.open_whole(snapshot_id) as reader:
            assert reader.read_at(0, 10**6) == path.read_bytes()


async def test_a_node_that_stops_in_the_middle_of_a_transfer_leaves_nothing_open_and_begins_again(
    tmp_path: Path,
) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 40)
        snapshot_id = cluster.snapshot_everywhere()
        files = PausingFiles(pause_at=5)
        await cluster.up(4, files)
        await until(files.has_paused.is_set)
        stopping = asyncio.ensure_future(cluster.stop(4))
        await turns()
        files.may_go_on.set()
        await asyncio.wait_for(stopping, 100)
        assert files.list_directory(f"{tmp_path}/node-4/snapshots") == []
        await cluster.up(4, files)
        await cluster.recorders[4].has_records(40)
        assert cluster.loader(4).loaded == [snapshot_id]


# --- the log's start --------------------------------------------------------------------------------------------------


async def two_snapshots(cluster: SnapshotCluster, first: int = 0) -> tuple[OffsetAndEpoch, OffsetAndEpoch]:
    """Thirty more records, and on every node a snapshot after the 10th and the 20th of them."""
    await cluster.append(first, first + 30)
    offsets = await offsets_by_count(cluster)
    one, other = (cluster.snapshot_everywhere(offsets[first + count]) for count in (10, 20))
    return one, other


async def offsets_by_count(cluster: SnapshotCluster) -> dict[int, int]:
    """The end offset of this many records."""
    leader = await cluster.leader()
    return {count: offset for offset, count in cluster.loader(leader.node_key.node_id).counts.items()}


async def test_sn51_the_log_start_moves_on_every_node_and_the_segments_below_it_go(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        first, second = await two_snapshots(cluster)
        await until(lambda: all(client.log_start_offset == first.offset for client in cluster.clients.values()))
        for node_id, client in cluster.clients.items():
            directory = tmp_path / f"node-{node_id}" / "log"
            segments = sorted(path.name for path in directory.glob("*.log"))
            assert segments[0] > segment_name(Offset(0))
            assert segments[0] <= segment_name(first.offset)
            assert client.latest_snapshot_id == second
        rows = await described(cluster)
        assert {row["HoldsLogStart"] for row in rows.values()} == {""}
        leader_id = (await cluster.leader()).node_key.node_id
        assert rows[leader_id]["LogStartOffset"] == first.offset
        async with asyncio.timeout(100):
            while {row["LogStartOffset"] for row in (await described(cluster)).values()} != {first.offset}:
                await asyncio.sleep(0.02)


async def test_sn51_the_log_start_waits_for_a_reader_that_stopped_and_then_moves(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 5)
        leader = await cluster.leader()
        leader_id = leader.node_key.node_id
        slow = Loader("slow")
        slow.may_read.clear()
        leader.register(slow)
        first, _ = await two_snapshots(cluster, 5)
        await _until_held(cluster, leader_id, "slow at 0 for")
        assert {client.log_start_offset for client in cluster.clients.values()} == {0}, "followers follow"
        slow.may_read.set()
        await until(lambda: all(client.log_start_offset == first.offset for client in cluster.clients.values()))
        await slow.has_records(35)
        assert slow.records == numbered(35)
        assert slow.loaded == []
        assert (await described(cluster))[leader_id]["HoldsLogStart"] == ""


async def _until_held(cluster: Cluster, node_id: int, words: str) -> dict[str, Any]:
    async with asyncio.timeout(100):
        while words not in (row := (await described(cluster))[node_id])["HoldsLogStart"]:
            await asyncio.sleep(0.02)
    return row


async def test_sn51_the_log_start_waits_for_a_slow_follower_and_then_moves(tmp_path: Path) -> None:
    files = MemoryFileSystem()
    patient = replace(REPLICATED, replica_restart_grace_ms=60_000)  # with a full disk it fetches only now and then
    async with snapshot_cluster(tmp_path, log_start=patient, files={3: files}) as cluster:
        await cluster.append(0, 5)
        leader = await cluster.leader()
        if leader.node_key.node_id == 3:
            leader.resign(leader.leader_and_epoch.epoch)
            await until(lambda: any(cluster.clients[node_id]._node.replica.is_leader for node_id in (1, 2)))
            leader = await cluster.leader()
        files.space_limit = files.used_bytes()
        before = cluster.nodes[3].log.log_end_offset
        for number in range(5, 45):
            await leader.append([b"record %d" % number])
        others = (1, 2)
        for node_id in others:
            await cluster.recorders[node_id].has_records(45)
        offsets = await offsets_by_count(cluster)
        for count in (30, 40):
            for node_id in others:
                take_snapshot(cluster.clients[node_id], cluster.loader(node_id), offsets[count])
        row = await _until_held(cluster, 3, " for ")
        (holder,) = row["LogStartHolders"]
        assert before <= holder["nextOffset"] < offsets[30]
        assert leader.log_start_offset == 0
        files.space_limit = None
        await until(lambda: all(cluster.clients[node_id].log_start_offset == offsets[30] for node_id in others))
        await cluster.recorders[3].has_records(45)
        assert cluster.recorders[3].records == numbered(45)
        assert cluster.loader(3).loaded == [], "the log start waited for it"


async def test_sn42_eager_waits_for_nobody_and_a_slow_listener_is_loaded_the_snapshot(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path, log_start=EAGER) as cluster:
        await cluster.append(0, 5)
        leader = await cluster.leader()
        slow = Loader("slow")
        leader.register(slow)
        await slow.has_records(5)
        slow.may_read.clear()
        await cluster.append(5, 6)  # the slow listener is reading this
        _, second = await two_snapshots(cluster, 6)
        await until(lambda: all(client.log_start_offset == second.offset for client in cluster.clients.values()))
        assert leader.latest_snapshot_id == second
        assert len(slow.records) == 5
        slow.may_read.set()
        await until(lambda: slow.records == numbered(36))
        assert slow.loaded == [second]
        assert slow.first_commit_offset == second.offset
        assert all(cluster.loader(node_id).loaded == [] for node_id in cluster.nodes), "those that keep up load nothing"


async def test_sn52_a_follower_whose_listener_stopped_says_so_when_it_is_asked(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 5)
        node_id = await a_follower(cluster)
        slow = Loader("slow")
        slow.may_read.clear()
        cluster.clients[node_id].register(slow)
        await two_snapshots(cluster, 5)
        async with grpc.aio.insecure_channel(str(cluster.nodes[node_id].identity.endpoint)) as channel:
            stub = log_pb2_grpc.LogServiceStub(channel)
            async with asyncio.timeout(100):
                while not (node := await stub.DescribeNode(log_pb2.DescribeNodeRequest())).log_start_holders:
                    await asyncio.sleep(0.02)
        assert [(held.listener, held.next_offset) for held in node.log_start_holders] == [("slow", 0)]
        assert cluster.clients[node_id].log_start_offset == 0
        slow.may_read.set()
        await slow.has_records(35)
        assert slow.loaded == []


async def test_sn44_after_a_restart_of_every_node_everything_is_there(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        first, second = await two_snapshots(cluster)
        await until(lambda: all(client.log_start_offset == first.offset for client in cluster.clients.values()))
        node_ids = list(cluster.nodes)
        await asyncio.gather(*(cluster.stop(node_id) for node_id in node_ids))
        for node_id in node_ids:
            await cluster.up(node_id)
        for node_id, client in cluster.clients.items():
            loader = cluster.loader(node_id)
            await loader.has_records(30)
            assert loader.records == numbered(30)
            assert loader.loaded == [second]
            assert client.log_start_offset == first.offset
            assert client.latest_snapshot_id == second
            assert cluster.nodes[node_id].log.recovering is None
        await cluster.append(30, 33)
        assert all(recorder.records == numbered(33) for recorder in cluster.recorders.values())


async def test_sn60_listeners_are_given_what_the_newest_snapshot_holds_before_there_is_a_leader(
    tmp_path: Path,
) -> None:
    """A snapshot holds only committed records."""
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 10)
        snapshot_id = cluster.snapshot_everywhere()
        node_ids = list(cluster.nodes)
        await asyncio.gather(*(cluster.stop(node_id) for node_id in node_ids))
        await cluster.up(1)
        await cluster.recorders[1].has_records(10)
        assert cluster.loader(1).loaded == [snapshot_id]
        assert len(cluster.nodes) == 1, "and so there is no leader"


async def test_a_damaged_snapshot_on_the_leader_is_deleted_told_of_and_the_one_before_is_offered(
    tmp_path: Path,
) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        first, second = await two_snapshots(cluster)
        leader = await cluster.leader()
        for node_id in cluster.nodes:
            directory = tmp_path / f"node-{node_id}" / "snapshots"
            path = max(directory.iterdir())
            data = bytearray(path.read_bytes())
            data[-5] ^= 0xFF
            overwrite(path, data)
        told: list[int] = []
        _on_damage(cluster, lambda node_id: told.append(node_id))
        await cluster.up(4)
        loader = cluster.loader(4)
        await loader.has_records(30)
        assert loader.records == numbered(30)
        assert loader.loaded == [first]
        assert second.offset > first.offset
        assert told == [leader.node_key.node_id]
        assert leader.latest_snapshot_id == first


def _on_damage(cluster: Cluster, tell: Callable[[int], None]) -> None:
    for node_id, node in cluster.nodes.items():
        node._on_snapshot_damaged = lambda node_id=node_id: tell(node_id)  # type: ignore[misc]
