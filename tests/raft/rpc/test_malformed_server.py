"""Mangled bytes at a real server: each call is answered or refused by name, and the node continues."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import grpc
import grpc.aio
import pytest
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kraftbase.errors import ErrorCode
from kraftbase.types import Offset
from kraftpb.v1 import common_pb2, log_pb2, quorum_pb2
from raft.core.types import LeaderAndEpoch
from raft.rpc.errors import ERROR_KEY
from tests.effort import examples
from tests.raft.nodes import Cluster, running_cluster
from tests.raft.rpc.arbitrary_messages import change

KEY = common_pb2.ReplicaKey(node_id=2, directory_id=b"\1" * 16)
ENDPOINT = common_pb2.Endpoint(host="localhost", port=9)

UNARY: dict[str, list[Message]] = {
    "QuorumService/Vote": [
        quorum_pb2.VoteRequest(replica_key=KEY, replica_epoch=1, last_offset_epoch=1, last_offset=9),
        quorum_pb2.VoteRequest(cluster_id="x", voter_key=KEY, replica_key=KEY, replica_epoch=2, pre_vote=True),
    ],
    "QuorumService/BeginQuorumEpoch": [
        quorum_pb2.BeginQuorumEpochRequest(leader_id=2, leader_epoch=1, leader_endpoint=ENDPOINT)
    ],
    "QuorumService/EndQuorumEpoch": [
        quorum_pb2.EndQuorumEpochRequest(leader_id=2, leader_epoch=1, preferred_candidates=[KEY, KEY])
    ],
    "QuorumService/FetchSnapshot": [quorum_pb2.FetchSnapshotRequest(replica_key=KEY, current_leader_epoch=1)],
    "QuorumService/DescribeQuorum": [quorum_pb2.DescribeQuorumRequest(cluster_id="x")],
    "LogService/DescribeNode": [log_pb2.DescribeNodeRequest()],
}
FETCH = quorum_pb2.FetchRequest(
    correlation_id=1, replica_key=KEY, current_leader_epoch=1, last_fetched_epoch=1, max_bytes=100, high_watermark=0
)
WATCH = log_pb2.WatchRequest(start_offset=0, end_offset=1, cluster_id="x")

NAMED = {
    grpc.StatusCode.INVALID_ARGUMENT: ErrorCode.INVALID_REQUEST,
    grpc.StatusCode.OUT_OF_RANGE: ErrorCode.OFFSET_OUT_OF_RANGE,
    grpc.StatusCode.FAILED_PRECONDITION: ErrorCode.INCONSISTENT_CLUSTER_ID,
}


def _mangled(random: Random, valid: Message) -> bytes:
    data = valid.SerializeToString()
    for _ in range(random.randint(1, 3)):
        new = random.randbytes(random.randint(1, 8))
        data = change(data, random.getrandbits(32), new, random.choice(["cut", "set", "put", "repeat"]))
    return data


def _is_message(kind: type[Message], data: bytes) -> bool:
    try:
        kind.FromString(data)
    except DecodeError:
        return False
    return True


def _check_refusal(refusal: grpc.aio.AioRpcError, *, is_message: bool) -> None:
    """The error names the problem; a request that can be decoded is not refused for its form."""
    assert refusal.code() in NAMED, refusal
    assert (ERROR_KEY, str(int(NAMED[refusal.code()]))) in tuple(refusal.trailing_metadata())
    if not is_message:
        assert refusal.code() is grpc.StatusCode.INVALID_ARGUMENT


def _state(cluster: Cluster) -> tuple[LeaderAndEpoch, Offset, Offset]:
    client = cluster.clients[1]
    return client.leader_and_epoch, client.log_end_offset, client.high_watermark


async def _check_goes_on(cluster: Cluster) -> None:
    """It leads, perhaps in a later epoch, and has lost nothing."""
    client, recorder = cluster.clients[1], cluster.recorders[1]
    count = len(recorder.records) + 1
    await cluster.leader()
    await client.append([b"more"])
    await recorder.has_records(count)
    assert recorder.records[0] == b"first"


@pytest.mark.parametrize("method", UNARY)
async def test_mangled_requests_are_answered_or_refused_by_name(tmp_path: Path, method: str) -> None:
    random = Random(method)
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await (await cluster.leader()).append([b"first"])
        async with grpc.aio.insecure_channel(str(cluster.nodes[1].identity.endpoint)) as channel:
            call = channel.unary_unary(f"/kraftpb.v1.{method}")
            for _ in range(examples(800)):
                valid = random.choice(UNARY[method])
                data = _mangled(random, valid)
                is_message = _is_message(type(valid), data)
                before = _state(cluster)
                try:
                    await call(data, timeout=60)
                    assert is_message
                except grpc.aio.AioRpcError as refusal:
                    assert not is_message
                    _check_refusal(refusal, is_message=is_message)
                    assert _state(cluster) == before
        await _check_goes_on(cluster)


async def test_mangled_fetches_are_answered_or_refused_by_name(tmp_path: Path) -> None:
    random = Random("fetch")
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await (await cluster.leader()).append([b"first"])
        async with grpc.aio.insecure_channel(str(cluster.nodes[1].identity.endpoint)) as channel:
            for _ in range(60):
                call = channel.stream_stream("/kraftpb.v1.QuorumService/Fetch")(timeout=60)
                sent = [_mangled(random, FETCH) for _ in range(3)]
                are_messages = [_is_message(quorum_pb2.FetchRequest, data) for data in sent]
                try:
                    for data, is_message in zip(sent, are_messages, strict=True):
                        await call.write(data)
                        if not is_message:
                            await call.read()
                            raise AssertionError("bytes that are no message were answered")
                        if quorum_pb2.FetchRequest.FromString(data).max_wait_ms == 0:
                            await call.read()
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    assert not all(are_messages)
                    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
                call.cancel()
        await _check_goes_on(cluster)


async def test_mangled_watches_are_answered_or_refused_by_name(tmp_path: Path) -> None:
    random = Random("watch")
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await (await cluster.leader()).append([b"first"])
        async with grpc.aio.insecure_channel(str(cluster.nodes[1].identity.endpoint)) as channel:
            for _ in range(examples(400)):
                data = _mangled(random, WATCH)
                call = channel.unary_stream("/kraftpb.v1.LogService/Watch")(data, timeout=60)
                is_message = _is_message(log_pb2.WatchRequest, data)
                try:
                    await call.read()
                    assert is_message
                except grpc.aio.AioRpcError as refusal:
                    _check_refusal(refusal, is_message=is_message)
                call.cancel()
        await _check_goes_on(cluster)


async def test_health_is_watched_until_the_node_stops(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, voter_count=1) as cluster,
        grpc.aio.insecure_channel(str(cluster.nodes[1].identity.endpoint)) as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        said = [(await watch.read()).status]
        await cluster.stop(1)
        said.append((await watch.read()).status)
    assert said == [health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]


async def test_mangled_watches_of_health_are_answered_or_refused_by_name(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, voter_count=1) as cluster,
        grpc.aio.insecure_channel(str(cluster.nodes[1].identity.endpoint)) as channel,
    ):
        call = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"\xff", timeout=60)
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call.read()
    _check_refusal(refusal.value, is_message=False)
