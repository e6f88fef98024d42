"""A node whose log was damaged while it was down: fetched again from other voters, refused without any."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from kraftbase.errors import CorruptLog, StorageError
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, NodeId, Offset
from kraftpb.v1 import log_pb2, log_pb2_grpc
from raft.core.types import OffsetAndEpoch
from raft.storage.recovering_file import RECOVERING_NAME
from raft.storage.segmented_log import LogConfig
from tests.raft.nodes import Cluster, running_cluster
from tests.statemachine.waiting import until

RECORDS = [b"record %d" % number for number in range(20)]


async def append_all(cluster: Cluster) -> None:
    client = await cluster.leader()
    for record in RECORDS:
        await client.append([record])


def flip_a_byte(cluster: Cluster, node_id: int) -> Path:
    """Flip a byte of a record in the middle of the log; return the log's directory."""
    directory = cluster.base / f"node-{node_id}" / "log"
    (segment,) = directory.glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(RECORDS[5])] ^= 0xFF
    segment.write_bytes(data)
    return directory


async def test_a_damaged_voter_fetches_its_log_again_and_takes_part(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await append_all(cluster)
        for recorder in cluster.recorders.values():
            await recorder.has_records(len(RECORDS))
        leader_id = (await cluster.leader()).node_key.node_id
        damaged = next(node_id for node_id in cluster.nodes if node_id != leader_id)
        await cluster.stop(damaged)
        directory = flip_a_byte(cluster, damaged)
        await cluster.start(damaged)
        await cluster.recorders[damaged].has_records(len(RECORDS))
        assert cluster.recorders[damaged].records == RECORDS
        # Now its vote is needed: the third voter stops, and the other two must commit together.
        third = next(node_id for node_id in cluster.nodes if node_id not in (leader_id, damaged))
        await cluster.stop(third)
        client = await cluster.leader()
        await client.append([b"one more"])
        await cluster.recorders[damaged].has_records(len(RECORDS) + 1)
        assert not cluster.nodes[damaged].replica.is_recovering
        assert not (directory / RECOVERING_NAME).exists()
        await cluster.start(third)


async def test_a_damaged_sole_voter_does_not_start_and_changes_nothing(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await append_all(cluster)
        await cluster.stop(1)
        directory = flip_a_byte(cluster, 1)
        before = {path: path.read_bytes() for path in directory.iterdir()}
        with pytest.raises(CorruptLog, match="no other voter"):
            await cluster.start(NodeId(1))
        assert {path: path.read_bytes() for path in directory.iterdir()} == before
        del cluster._stacks[1]


async def test_a_node_that_cannot_read_its_log_for_who_follows_it_does_not_go_on(tmp_path: Path) -> None:
    fatal: list[BaseException] = []
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await append_all(cluster)
        await cluster.stop(1)
        await cluster.start(1, on_fatal=fatal.append)  # its earlier writes are no longer in memory
        await cluster.recorders[1].has_records(len(RECORDS))
        flip_a_byte(cluster, 1)
        async with grpc.aio.insecure_channel(str(cluster.nodes[1].identity.endpoint)) as channel:
            watch = log_pb2_grpc.LogServiceStub(channel).Watch(log_pb2.WatchRequest(start_offset=0), timeout=60)
            with pytest.raises(grpc.aio.AioRpcError, match="CorruptLog"):
                await watch.read()
    assert [type(error) for error in fatal] == [CorruptLog]


@contextlib.asynccontextmanager
async def one_stopped_follower(base: Path) -> AsyncIterator[tuple[Cluster, int, Path]]:
    """Three voters with records, of which one is down: its id and its data directory."""
    async with running_cluster(base) as cluster:
        await append_all(cluster)
        for recorder in cluster.recorders.values():
            await recorder.has_records(len(RECORDS))
        leader_id = (await cluster.leader()).node_key.node_id
        stopped = next(node_id for node_id in cluster.nodes if node_id != leader_id)
        await cluster.stop(stopped)
        yield cluster, stopped, cluster.base / f"node-{stopped}"


async def test_a_voter_whose_log_is_gone_recovers_though_nobody_knows_how_far_it_went(tmp_path: Path) -> None:
    async with one_stopped_follower(tmp_path) as (cluster, stopped, directory):
        for path in (directory / "log").iterdir():
            path.unlink()
        await cluster.start(stopped)
        recovering = cluster.nodes[stopped].log.recovering
        assert recovering is not None, "an empty log must not vote: it has acknowledged records"
        assert recovering.known_until_offset is None
        await cluster.recorders[stopped].has_records(len(RECORDS))
        assert cluster.recorders[stopped].records == RECORDS
        await until(lambda: not cluster.nodes[stopped].replica.is_recovering)


@pytest.mark.parametrize("damage", ["a byte", "all of it"])
async def test_a_damaged_log_without_a_quorum_state_does_not_start_and_changes_nothing(
    tmp_path: Path, damage: str
) -> None:
    """It may have voted in an epoch that it no longer knows."""
    async with one_stopped_follower(tmp_path) as (cluster, stopped, directory):
        if damage == "a byte":
            flip_a_byte(cluster, stopped)
        else:
            for path in (directory / "log").iterdir():
                path.unlink()
        for path in directory.glob("quorum-state-*"):
            path.unlink()
        before = {path: path.read_bytes() for path in (directory / "log").iterdir()}
        applied = OffsetAndEpoch(epoch=Epoch(1), offset=Offset(0 if damage == "a byte" else 5))
        with pytest.raises(StorageError, match="no quorum state"):
            await cluster.start(stopped, applied=applied)
        assert {path: path.read_bytes() for path in (directory / "log").iterdir()} == before
        await cluster._stacks.pop(stopped).aclose()


async def test_a_recovering_voter_that_has_no_room_for_what_it_lost_has_not_got_it_back(tmp_path: Path) -> None:
    files = MemoryFileSystem()
    tight = LogConfig(preallocate_bytes=1, reserve_bytes=0)
    cluster = Cluster(tmp_path, voter_count=3)
    async with contextlib.AsyncExitStack() as stack:
        for node_id in (1, 2, 3):
            await cluster.start(node_id, files=files if node_id == 3 else None, log_config=tight)
            stack.push_async_callback(cluster.stop, node_id)
        client = await cluster.leader()
        await client.append([b"x" * 50_000])
        await cluster.recorders[3].has_records(1)
        await cluster.stop(3)
        (segment,) = (name for name in files.list_directory(f"{tmp_path}/node-3/log") if name.endswith(".log"))
        files.damage(f"{tmp_path}/node-3/log/{segment}", 0, b"\xff" * 40)
        files.space_limit = files.used_bytes() + 1_000  # no room for the copy of the damaged segment
        await cluster.start(3, files=files, log_config=tight)
        replica = cluster.nodes[3].replica
        await until(lambda: replica.is_recovering and replica.has_fetched)
        assert replica.is_recovering
        files.space_limit = None
        await until(lambda: not replica.is_recovering)
        await cluster.recorders[3].has_records(1)
