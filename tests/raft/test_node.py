"""Nodes over real sockets and files: the core's actions are carried out, and failures are reported."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from kraftbase.errors import ApiError, ConfigurationError, DirectoryError, ErrorCode, NotLeaderError, StorageError
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Offset
from kraftpb.v1 import common_pb2, log_pb2, log_pb2_grpc, quorum_pb2, quorum_pb2_grpc
from raft.core.messages import DescribeQuorumRequest
from raft.core.types import StateDigest
from raft.observe import observe
from raft.rpc.errors import ERROR_KEY
from raft.storage.batch import batch_timestamp
from raft.storage.directory import DataDirectory
from tests.paths import ROOT
from tests.raft.nodes import Cluster, Recorder, running_cluster


async def test_records_appended_at_the_leader_reach_every_voter_and_observer(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=3, observer_count=2) as cluster:
        leader = await cluster.leader()
        offsets = [await leader.append([f"record {number}".encode()]) for number in range(20)]
        assert offsets == sorted(offsets)
        for recorder in cluster.recorders.values():
            await recorder.has_records(20)
            assert recorder.records == [f"record {number}".encode() for number in range(20)]


async def test_appends_made_together_are_all_committed_in_order(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        await asyncio.gather(*(leader.append([str(number).encode()]) for number in range(200)))
        recorder = cluster.recorders[leader.node_key.node_id]
        await recorder.has_records(200)
        assert recorder.records == [str(number).encode() for number in range(200)]


async def test_a_node_that_does_not_lead_refuses_appends_and_names_the_leader(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        follower = next(client for client in cluster.clients.values() if client is not leader)
        await cluster.recorders[follower.node_key.node_id].has_leader(leader.node_key.node_id)
        with pytest.raises(ApiError) as refusal:
            await follower.append([b"x"])
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert str(leader.node_key.node_id) in str(refusal.value)


@pytest.mark.parametrize(("end_offset", "length"), [(-1, 16), (0, 0), (0, 15), (0, 17)])
async def test_a_state_digest_that_no_other_node_would_take_is_refused(
    tmp_path: Path, end_offset: int, length: int
) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        leader = await cluster.leader()
        with pytest.raises(ValueError, match=f"{length} bytes at {end_offset}"):
            leader.report_state_digest(StateDigest(Offset(end_offset), b"x" * length))


async def test_rf102_a_leader_that_resigns_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        await leader.append([b"before"])
        leader.resign(leader.leader_and_epoch.epoch)
        successor = await cluster.leader()
        assert successor.leader_and_epoch.epoch > 1
        await successor.append([b"after"])
        for recorder in cluster.recorders.values():
            await recorder.has_records(2)
            assert recorder.records == [b"before", b"after"]


async def test_rf102_resigning_from_an_epoch_that_is_not_ones_own_is_refused_or_ignored(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        epoch = leader.leader_and_epoch.epoch
        follower = next(client for client in cluster.clients.values() if client is not leader)
        await cluster.recorders[follower.node_key.node_id].has_leader(leader.node_key.node_id)
        for bad in (-1, epoch + 1):
            with pytest.raises(ValueError, match="resign"):
                leader.resign(bad)
        with pytest.raises(ValueError, match="does not lead"):
            follower.resign(epoch)
        leader.resign(epoch - 1)
        assert leader.leader_and_epoch.leader_id == leader.node_key.node_id


async def test_a_node_that_was_down_catches_up_and_keeps_what_it_had(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        await leader.append([b"one"])
        absent = next(node_id for node_id, client in cluster.clients.items() if client is not leader)
        await cluster.recorders[absent].has_records(1)
        await cluster.stop(absent)
        await leader.append([b"two", b"three"])
        await cluster.start(absent)
        await cluster.recorders[absent].has_records(3)
        assert cluster.recorders[absent].records == [b"one", b"two", b"three"]


async def test_a_whole_cluster_that_stops_comes_back_with_everything(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await (await cluster.leader()).append([b"kept"])
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
        for node_id in (1, 2, 3):
            await cluster.start(node_id)
        while True:
            with suppress(NotLeaderError):  # on a busy machine the first leader may lose the others at once
                await (await cluster.leader()).append([b"and on"])
                break
        for recorder in cluster.recorders.values():
            await recorder.has_records(2)
            assert recorder.records[0] == b"kept"
            assert set(recorder.records[1:]) == {b"and on"}


async def test_rf04_a_single_voter_leads_at_once(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        leader = await cluster.leader()
        assert await leader.append([b"alone"]) == 1


async def test_a_full_disk_refuses_appends_and_works_again_when_there_is_room(tmp_path: Path) -> None:
    files = MemoryFileSystem()
    cluster = Cluster(tmp_path, voter_count=1)
    leader = await cluster.start(1, files=files)
    await cluster.recorders[1].has_leader(leader.node_key.node_id)
    try:
        await leader.append([b"fits"])
        end_offset = leader.log_end_offset
        files.space_limit = files.used_bytes()
        with pytest.raises(ApiError) as refusal:
            await leader.append([b"x" * 4_000_000])
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert leader.log_end_offset == end_offset
        files.space_limit = None
        await leader.append([b"x" * 4_000_000])
    finally:
        await cluster.stop(1)


FSYNC_FAILS = """
import asyncio, sys
from contextlib import suppress
from pathlib import Path
from kraftbase.files.memory import MemoryFileSystem
from tests.raft.nodes import Cluster

async def main():
    files = MemoryFileSystem()
    cluster = Cluster(Path("/unused"), voter_count=1)
    leader = await cluster.start(1, files=files)
    await cluster.recorders[1].has_leader(leader.node_key.node_id)
    files.failing_syncs.add("/unused/node-1/log/" + "0" * 20 + ".log")
    await leader.append([b"never acknowledged"])
    print("acknowledged")

asyncio.run(main())
"""


FSYNC_FAILS_WHEN_A_SEGMENT_IS_FULL = """
import asyncio
from contextlib import suppress
from pathlib import Path
from kraftbase.files.memory import MemoryFileSystem
from raft.storage.segmented_log import LogConfig
from tests.raft.nodes import Cluster

async def main():
    files = MemoryFileSystem()
    cluster = Cluster(Path("/unused"), voter_count=1)
    leader = await cluster.start(1, files=files, log_config=LogConfig(segment_bytes=4096))
    await cluster.recorders[1].has_leader(leader.node_key.node_id)
    await leader.append([b"x" * 3500])
    files.failing_syncs.update(f"/unused/node-1/log/{base_offset:020d}.log" for base_offset in range(2))
    await leader.append([b"x" * 3500])
    print("acknowledged")

asyncio.run(main())
"""


@pytest.mark.parametrize("program", [FSYNC_FAILS, FSYNC_FAILS_WHEN_A_SEGMENT_IS_FULL])
def test_a_failed_fsync_ends_the_process_at_once_without_an_acknowledgement(program: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert result.returncode == 70
    assert "acknowledged" not in result.stdout.splitlines()
    assert "FlushFailed" in result.stdout + result.stderr


async def test_a_log_whose_quorum_state_is_lost_refuses_the_start(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await (await cluster.leader()).append([b"kept"])
        await cluster.stop(1)
        for copy in (tmp_path / "node-1").glob("quorum-state*"):
            copy.unlink()
        with pytest.raises(StorageError, match="may have voted"):
            await cluster.start(1)


async def test_a_port_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        twin = Cluster(tmp_path / "other", voter_count=1)
        twin.voters = cluster.voters
        with pytest.raises(ConfigurationError, match="port is in use"):
            await twin.start(1)


async def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1):
        with pytest.raises(DirectoryError, match="in use"):
            DataDirectory.open(PosixFileSystem(), str(tmp_path / "node-1"))


async def test_a_node_that_was_stopped_says_so_instead_of_never_answering(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        leader = await cluster.leader()
        node = cluster.nodes[1]
        await cluster.stop(1)
        for stopped in (leader.append([b"x"]), node.answer(DescribeQuorumRequest())):
            with pytest.raises(ApiError, match="stopped"):
                await stopped


async def test_timestamps_do_not_go_back_over_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await (await cluster.leader()).append([b"before"])
        before = batch_timestamp(cluster.nodes[1].log.read_batches(Offset(1), 1)[0])
        await cluster.stop(1)
        monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
        await cluster.start(1)
        offset = await (await cluster.leader()).append([b"after"])
        assert batch_timestamp(cluster.nodes[1].log.read_batches(Offset(offset), 1)[0]) >= before


async def test_health_is_served(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        address = str(cluster.nodes[1].identity.endpoint)
        async with grpc.aio.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", "kraftpb.v1.QuorumService", "kraftpb.v1.LogService"):
                response = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
                assert response.status == health_pb2.HealthCheckResponse.SERVING


async def test_malformed_requests_are_invalid_and_change_nothing(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        leader = await cluster.leader()
        before = (leader.leader_and_epoch, leader.log_end_offset, leader.high_watermark)
        broken_key = common_pb2.ReplicaKey(node_id=1, directory_id=b"short")
        broken_endpoint = common_pb2.Endpoint(host="", port=99999)
        async with grpc.aio.insecure_channel(str(cluster.nodes[1].identity.endpoint)) as channel:
            stub = quorum_pb2_grpc.QuorumServiceStub(channel)
            answers = [
                await stub.Vote(quorum_pb2.VoteRequest(replica_key=broken_key), timeout=60),
                await stub.Vote(
                    quorum_pb2.VoteRequest(cluster_id=cluster.cluster_id, replica_epoch=9, last_offset=-1), timeout=5
                ),
                await stub.BeginQuorumEpoch(
                    quorum_pb2.BeginQuorumEpochRequest(leader_epoch=9, leader_endpoint=broken_endpoint), timeout=5
                ),
                await stub.EndQuorumEpoch(
                    quorum_pb2.EndQuorumEpochRequest(leader_epoch=9, preferred_candidates=[broken_key]), timeout=5
                ),
                await stub.FetchSnapshot(quorum_pb2.FetchSnapshotRequest(replica_key=broken_key), timeout=60),
            ]
            fetch = stub.Fetch(timeout=60)
            for request in (
                quorum_pb2.FetchRequest(correlation_id=1, replica_key=broken_key),
                quorum_pb2.FetchRequest(
                    correlation_id=2, cluster_id=cluster.cluster_id, fetch_offset=-1, current_leader_epoch=1
                ),
            ):
                await fetch.write(request)
                answer = await fetch.read()
                assert answer.correlation_id == request.correlation_id
                answers.append(answer)
            fetch.cancel()
        assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST] * len(answers)
        assert (leader.leader_and_epoch, leader.log_end_offset, leader.high_watermark) == before


async def test_anybody_can_follow_the_log_from_any_nodes_address(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=3) as cluster:
        leader = await cluster.leader()
        for client in cluster.clients.values():
            recorder = Recorder()
            following = asyncio.ensure_future(
                observe(str(cluster.nodes[client.node_key.node_id].identity.endpoint), recorder)
            )
            count = len(cluster.recorders[leader.node_key.node_id].records) + 1
            await leader.append([b"seen"])
            await recorder.has_records(count)
            await recorder.has_leader(leader.node_key.node_id)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def test_an_observer_goes_on_at_another_node_when_its_own_stops(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=3) as cluster:
        leader = await cluster.leader()
        first = next(node_id for node_id, client in cluster.clients.items() if client is not leader)
        recorder = Recorder()
        following = asyncio.ensure_future(observe(str(cluster.nodes[first].identity.endpoint), recorder))
        await leader.append([b"one"])
        await recorder.has_records(1)
        await cluster.stop(first)
        await leader.append([b"two"])
        await recorder.has_records(2)
        assert recorder.records == [b"one", b"two"]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_observing_up_to_an_offset_ends_there(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        leader = await cluster.leader()
        end_offset = Offset(await leader.append([b"a", b"b"]) + 1)
        await leader.append([b"c"])
        recorder = Recorder()
        address = str(cluster.nodes[1].identity.endpoint)
        assert await observe(address, recorder, end_offset=end_offset) >= end_offset
        assert recorder.records[:2] == [b"a", b"b"]


async def test_watching_with_another_clusters_id_is_refused_by_name(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await cluster.leader()
        address = str(cluster.nodes[1].identity.endpoint)
        with pytest.raises(ApiError) as refusal:
            await observe(address, Recorder(), cluster_id="AAAAAAAAAAAAAAAAAAAAAQ")
        assert refusal.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        async with grpc.aio.insecure_channel(address) as channel:
            call = log_pb2_grpc.LogServiceStub(channel).Watch(log_pb2.WatchRequest(start_offset=-1), timeout=60)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call.read()
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


METHODS = [
    "/kraftpb.v1.QuorumService/Vote",
    "/kraftpb.v1.QuorumService/BeginQuorumEpoch",
    "/kraftpb.v1.QuorumService/EndQuorumEpoch",
    "/kraftpb.v1.QuorumService/FetchSnapshot",
    "/kraftpb.v1.QuorumService/DescribeQuorum",
    "/kraftpb.v1.LogService/DescribeNode",
]


async def test_bytes_that_are_no_message_are_an_invalid_request_and_change_nothing(tmp_path: Path) -> None:
    garbage = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        leader = await cluster.leader()
        before = (leader.leader_and_epoch, leader.log_end_offset)
        async with grpc.aio.insecure_channel(str(cluster.nodes[1].identity.endpoint)) as channel:
            calls = [channel.unary_unary(method)(garbage, timeout=60) for method in METHODS]
            watch = channel.unary_stream("/kraftpb.v1.LogService/Watch")(garbage, timeout=60)
            fetch = channel.stream_stream("/kraftpb.v1.QuorumService/Fetch")(timeout=60)
            await fetch.write(garbage)
            for attempt in (*calls, watch.read(), fetch.read()):
                with pytest.raises(grpc.aio.AioRpcError) as refusal:
                    await attempt
                assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert (ERROR_KEY, str(int(ErrorCode.INVALID_REQUEST))) in tuple(refusal.value.trailing_metadata())
        assert (leader.leader_and_epoch, leader.log_end_offset) == before
        await leader.append([b"goes on"])


async def test_reflection_names_every_service(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        async with grpc.aio.insecure_channel(str(cluster.nodes[1].identity.endpoint)) as channel:
            call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(timeout=60)
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            answer = await call.read()
            call.cancel()
        names = {service.name for service in answer.list_services_response.service}
        assert {"kraftpb.v1.QuorumService", "kraftpb.v1.LogService", "grpc.health.v1.Health"} <= names
