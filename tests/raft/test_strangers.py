"""Real nodes whose voter set has directory ids, and unknown processes that send them gRPC requests as members would.

After each attack no process has ended, no log is shorter, nothing acknowledged is lost, no epoch was opened by it, and
writes are acknowledged within five seconds of its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Epoch, NodeId, Offset
from kraftbase.uuids import random_cluster_id, random_uuid
from kraftpb.v1 import common_pb2, quorum_pb2, quorum_pb2_grpc
from raft.core.config import QuorumConfig
from raft.core.types import ReplicaKey, StateDigest
from raft.core.voters import Voter, VoterSet
from raft.host import hosted_node
from raft.node import Node
from raft.rpc.codec import replica_key_to_proto
from raft.storage.batch import encode_batch, encode_body
from raft.storage.directory import DataDirectory
from tests.effort import all_cases
from tests.raft.nodes import CALM, QUICK, Cluster, free_port

VOTER_IDS = (1, 2, 3)
WRITES_AGAIN_SECONDS = 30
"""Half of the fetch timeout: a cluster that lost its leader to an attack is late, however idle the machine."""

VOTES = 2_150 if all_cases() else 300
"""Each could raise the epoch; all of them together, to the last one."""
JUMP = 1_000_000


class KnownCluster(Cluster):
    """Three nodes whose voter set has their directory ids, or not. Errors that would end a process are in `fatal`."""

    def __init__(self, base: Path, *, has_directory_ids: bool, config: QuorumConfig) -> None:
        super().__init__(base, len(VOTER_IDS))
        self.config = config
        self.fatal: list[BaseException] = []
        self.acknowledged: list[bytes] = []
        keys = {node_id: ReplicaKey(NodeId(node_id), random_uuid()) for node_id in VOTER_IDS}
        for node_id, key in keys.items():
            DataDirectory.format(
                PosixFileSystem(),
                str(base / f"node-{node_id}"),
                cluster_id=self.cluster_id,
                node_id=key.node_id,
                directory_id=key.directory_id,
            )
        if has_directory_ids:
            self.voters = VoterSet(Voter(keys[voter.key.node_id], voter.endpoint) for voter in self.voters.voters())

    async def start_one(self, node_id: int) -> None:
        await self.start(node_id, config=self.config, on_fatal=self.fatal.append)

    async def write(self, record: bytes) -> None:
        """Append until a leader acknowledges it, within the promised time."""
        async with asyncio.timeout(WRITES_AGAIN_SECONDS):
            while True:
                leader = next((client for client in self.clients.values() if _leads(self.nodes, client)), None)
                with contextlib.suppress(ApiError):
                    if leader is not None:
                        await leader.append([record])
                        self.acknowledged.append(record)
                        return
                await asyncio.sleep(0.02)  # there is no leader: wait for the election

    @property
    def epoch(self) -> int:
        return max(node.replica.epoch for node in self.nodes.values())


def _leads(nodes: dict[int, Node], client: object) -> bool:
    return any(node.replica.is_leader and getattr(client, "_node", None) is node for node in nodes.values())


@pytest.fixture
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[KnownCluster]:
    """A cluster that has acknowledged some writes; the end of the test checks the invariants of every attack."""
    cluster = KnownCluster(tmp_path, **{"has_directory_ids": True, "config": CALM} | getattr(request, "param", {}))
    try:
        for node_id in VOTER_IDS:
            await cluster.start_one(node_id)
        await cluster.leader()
        for number in range(20 if all_cases() else 6):
            await cluster.write(f"before {number}".encode())
        ends = {node_id: node.replica.high_watermark for node_id, node in cluster.nodes.items()}
        yield cluster
        await cluster.write(b"after")
        assert cluster.fatal == []
        for node_id, node in cluster.nodes.items():
            recorder = cluster.recorders[node_id]
            async with asyncio.timeout(100):
                while b"after" not in recorder.records:
                    recorder._changed.clear()
                    await recorder._changed.wait()
            assert node.replica.log_end_offset >= ends[node_id]
            assert set(cluster.acknowledged) <= set(recorder.records), "nothing acknowledged is lost"
            assert b"poison" not in recorder.records
    finally:
        await asyncio.gather(*(cluster.stop(node_id) for node_id in list(cluster.nodes)))


@contextlib.asynccontextmanager
async def stranger(cluster: KnownCluster, node_id: int) -> AsyncIterator[quorum_pb2_grpc.QuorumServiceAsyncStub]:
    """A client of that node."""
    voter = cluster.voters.get(NodeId(node_id))
    assert voter is not None
    async with grpc.aio.insecure_channel(str(voter.endpoint)) as channel:
        yield quorum_pb2_grpc.QuorumServiceStub(channel)


def names(node_id: int) -> Iterator[common_pb2.ReplicaKey]:
    """Names for an unknown process: no member's, and a voter's without its directory id or with another."""
    yield replica_key_to_proto(ReplicaKey(NodeId(8), random_uuid()))
    yield replica_key_to_proto(ReplicaKey(NodeId(node_id)))
    yield replica_key_to_proto(ReplicaKey(NodeId(node_id), random_uuid()))


async def test_who_says_that_it_leads_ends_no_process(cluster: KnownCluster) -> None:
    epoch, told = cluster.epoch, []
    for node_id in VOTER_IDS:
        async with stranger(cluster, node_id) as stub:
            for leader_id in VOTER_IDS:
                for name in names(leader_id):
                    for claimed in (epoch, epoch + 1, epoch + JUMP):
                        said: dict[str, Any] = {
                            "cluster_id": cluster.cluster_id,
                            "leader_id": name.node_id,
                            "leader_epoch": claimed,
                            "leader_directory_id": name.directory_id,
                        }
                        begin = await stub.BeginQuorumEpoch(quorum_pb2.BeginQuorumEpochRequest(**said))
                        end = await stub.EndQuorumEpoch(quorum_pb2.EndQuorumEpochRequest(**said))
                        told += [begin.error_code, end.error_code]
    assert set(told) == {ErrorCode.INVALID_REQUEST}
    assert cluster.epoch == epoch


@pytest.mark.parametrize("cluster", [{"has_directory_ids": False, "config": QUICK}], indirect=True)
async def test_without_directory_ids_too_whoever_says_that_it_leads_ends_no_process(cluster: KnownCluster) -> None:
    """Here a voter's id is enough to count as that voter: elections are disturbed until the other process stops."""
    for number in range(20 if all_cases() else 6):
        for node_id in VOTER_IDS:
            async with stranger(cluster, node_id) as stub:
                said: dict[str, Any] = {
                    "cluster_id": cluster.cluster_id,
                    "leader_id": (node_id + number) % 3 + 1,
                    "leader_epoch": cluster.epoch + number % 2,
                }
                await stub.BeginQuorumEpoch(quorum_pb2.BeginQuorumEpochRequest(**said))
                await stub.EndQuorumEpoch(quorum_pb2.EndQuorumEpochRequest(**said))
                vote = quorum_pb2.VoteRequest(
                    cluster_id=cluster.cluster_id,
                    replica_key=common_pb2.ReplicaKey(node_id=said["leader_id"]),
                    replica_epoch=cluster.epoch + 1,
                    last_offset=2**40,
                )
                await stub.Vote(vote)


async def test_votes_of_strangers_use_up_no_epochs(cluster: KnownCluster) -> None:
    epoch = cluster.epoch
    for node_id in VOTER_IDS:
        async with stranger(cluster, node_id) as stub:
            for number in range(VOTES // len(VOTER_IDS)):
                candidates = list(names(number % 3 + 1))
                request = quorum_pb2.VoteRequest(
                    cluster_id=cluster.cluster_id,
                    replica_key=candidates[number % len(candidates)],
                    replica_epoch=min(2**31 - 2, cluster.epoch + (JUMP if number % 2 else 1)),
                    last_offset_epoch=epoch,
                    last_offset=2**40,
                    pre_vote=number % 4 == 0,
                )
                response = await stub.Vote(request)
                assert not response.vote_granted
    assert cluster.epoch == epoch


@pytest.mark.parametrize("cluster", [{"config": QUICK}], indirect=True)
async def test_made_up_fetches_make_a_lone_leader_acknowledge_nothing(cluster: KnownCluster) -> None:
    leader = await cluster.leader()
    leader_id = leader.node_key.node_id
    others = [node_id for node_id in VOTER_IDS if node_id != leader_id]
    for node_id in others:
        await cluster.stop(node_id)
    appending = asyncio.ensure_future(leader.append([b"alone"]))
    node = cluster.nodes[leader_id]
    own = random_uuid().bytes
    async with stranger(cluster, leader_id) as stub:

        async def fetches() -> AsyncIterator[quorum_pb2.FetchRequest]:
            while not appending.done():
                for node_id in others:
                    for directory_id in (b"", own):
                        yield quorum_pb2.FetchRequest(
                            cluster_id=cluster.cluster_id,
                            replica_key=common_pb2.ReplicaKey(node_id=node_id, directory_id=directory_id),
                            current_leader_epoch=node.replica.epoch,
                            fetch_offset=node.replica.log_end_offset,
                            last_fetched_epoch=node.replica.epoch,
                            max_wait_ms=0,
                            max_bytes=1,
                            high_watermark=0,
                        )

        answers = [answer.error_code async for answer in stub.Fetch(fetches())]
    assert ErrorCode.NONE in answers, "it led, and answered them as observers"
    with pytest.raises(ApiError) as failure:
        await appending
    assert failure.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER, "it resigned: they make no quorum"
    for node_id in others:
        await cluster.start_one(node_id)


class Impostor(quorum_pb2_grpc.QuorumServiceServicer):
    """Claims to lead, and has a record and a snapshot for every replica."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.asked: list[quorum_pb2.FetchRequest] = []

    async def Fetch(
        self, request_iterator: AsyncIterator[quorum_pb2.FetchRequest], context: object
    ) -> AsyncIterator[quorum_pb2.FetchResponse]:
        async for request in request_iterator:
            self.asked.append(request)
            epoch = request.current_leader_epoch
            poison = encode_batch(Offset(request.fetch_offset), Epoch(epoch), encode_body([b"poison"]), 1, 1)
            yield quorum_pb2.FetchResponse(
                correlation_id=request.correlation_id,
                current_leader=common_pb2.CurrentLeader(leader_id=8, leader_epoch=epoch),
                high_watermark=request.fetch_offset + 1,
                records=poison.data,
            )


async def test_nobody_asks_a_leader_that_is_no_voter_for_records(cluster: KnownCluster) -> None:
    impostor = Impostor(Endpoint("127.0.0.1", free_port()))
    server = grpc.aio.server()
    quorum_pb2_grpc.add_QuorumServiceServicer_to_server(impostor, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(str(impostor.endpoint))
    await server.start()
    try:
        endpoint = common_pb2.Endpoint(host=impostor.endpoint.host, port=impostor.endpoint.port)
        leader = await cluster.leader()
        for claimed in (8, int(leader.node_key.node_id)):  # itself, and the voter that leads, at its own address
            for node_id in VOTER_IDS:
                async with stranger(cluster, node_id) as stub:
                    await stub.BeginQuorumEpoch(
                        quorum_pb2.BeginQuorumEpochRequest(
                            cluster_id=cluster.cluster_id,
                            leader_id=claimed,
                            leader_epoch=cluster.epoch + 1,
                            leader_endpoint=endpoint,
                        )
                    )
        await cluster.write(b"meanwhile")  # the nodes have fetched, and had time to connect to it
        assert impostor.asked == []
    finally:
        await server.stop(None)


async def test_made_up_digests_fence_nobody(cluster: KnownCluster) -> None:
    leader = await cluster.leader()
    for client in cluster.clients.values():
        client.report_state_digest(StateDigest(Offset(5), b"\1" * 16))
    node = cluster.nodes[leader.node_key.node_id]
    async with stranger(cluster, leader.node_key.node_id) as stub:
        for node_id in VOTER_IDS:
            for name in names(node_id):
                request = quorum_pb2.FetchRequest(
                    cluster_id=cluster.cluster_id,
                    replica_key=name,
                    current_leader_epoch=node.replica.epoch,
                    fetch_offset=node.replica.log_end_offset,
                    last_fetched_epoch=node.replica.epoch,
                    state_digest=quorum_pb2.StateDigest(end_offset=5, digest=b"\2" * 16),
                )
                call = stub.Fetch(iter([request]))
                answer: Any = await call.read()
                assert answer.error_code == ErrorCode.NONE
    assert node.replica.is_leader
    assert not any(node.replica.is_fenced for node in cluster.nodes.values())
    assert not any(
        progress.has_diverged for progress in node.replica.followers if cluster.voters.is_voter(progress.key)
    )


@pytest.mark.parametrize("cluster_id", [None, "another"])
async def test_a_node_of_another_cluster_is_no_peer(cluster: KnownCluster, cluster_id: str | None) -> None:
    """It has a voter's identity, even its directory id, and is of another cluster, or does not send a cluster id."""
    epoch = cluster.epoch
    for node_id in VOTER_IDS:
        key = replica_key_to_proto(cluster.voters.voters()[node_id % 3].key)
        async with stranger(cluster, node_id) as stub:
            vote = quorum_pb2.VoteRequest(
                cluster_id=cluster_id, replica_key=key, replica_epoch=epoch + 1, last_offset=2**40
            )
            assert (await stub.Vote(vote)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
            begin = quorum_pb2.BeginQuorumEpochRequest(
                cluster_id=cluster_id,
                leader_id=key.node_id,
                leader_directory_id=key.directory_id,
                leader_epoch=epoch + 1,
            )
            assert (await stub.BeginQuorumEpoch(begin)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
            snapshot = quorum_pb2.FetchSnapshotRequest(cluster_id=cluster_id, replica_key=key, max_bytes=1)
            assert (await stub.FetchSnapshot(snapshot)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert cluster.epoch == epoch


@pytest.mark.parametrize("is_of_another_cluster", [False, True])
async def test_a_node_with_a_copied_configuration_disturbs_nobody(
    cluster: KnownCluster, tmp_path: Path, is_of_another_cluster: bool
) -> None:
    """Node 2's configuration starts another node, in a directory of its own, while node 2 runs."""
    epoch = cluster.epoch
    path = str(tmp_path / "copied")
    cluster_id = random_cluster_id() if is_of_another_cluster else cluster.cluster_id
    DataDirectory.format(PosixFileSystem(), path, cluster_id=cluster_id, node_id=NodeId(2))
    with contextlib.closing(DataDirectory.open(PosixFileSystem(), path)) as directory:
        fatal: list[BaseException] = []
        async with hosted_node(
            directory,
            endpoint=Endpoint("127.0.0.1", free_port()),
            voters=cluster.voters,
            config=CALM,
            on_fatal=fatal.append,
        ) as copied:
            assert not copied.replica.is_voter
            for number in range(100):
                await cluster.write(f"beside {number}".encode())
            assert fatal == []
    assert cluster.epoch == epoch
