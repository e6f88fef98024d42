"""Named readers outside the nodes: the log's start waits for them while their lease lasts (KAFKA-14932)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
from structlog.testing import capture_logs

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftpb.v1 import log_pb2, log_pb2_grpc
from raft import reader_lease
from raft.known_nodes import KnownNodes
from raft.observe import observe
from raft.rpc.errors import ERROR_KEY
from raft.rpc.reader_leases import LEASE_MS_MAX, NAME_LENGTH_MAX, ReaderLeases
from tests.raft.nodes import free_port
from tests.raft.snapshot_nodes import Loader, SnapshotCluster, numbered, snapshot_cluster
from tests.raft.test_snapshot_cluster import described, two_snapshots
from tests.statemachine.waiting import until

# --- the leases of one node -------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000.0

    def __call__(self) -> float:
        return self.now_ms


def test_a_lease_lasts_until_its_end_and_each_request_begins_it_anew() -> None:
    clock = Clock()
    leases = ReaderLeases(2, clock)
    assert leases.hold("audit", Offset(-1), 300) == 300
    clock.now_ms += 299
    assert leases.positions() == [("audit", -1)]
    assert leases.hold("audit", Offset(7), 300) == 300
    clock.now_ms += 299
    assert leases.positions() == [("audit", 7)]
    clock.now_ms += 1
    assert leases.positions() == []


def test_a_lease_of_0_ms_ends_one_and_none_is_longer_than_the_bound() -> None:
    leases = ReaderLeases(2, Clock())
    assert leases.hold("audit", Offset(0), 10**12) == LEASE_MS_MAX
    assert leases.hold("audit", Offset(0), 0) == 0
    assert leases.hold("never held", Offset(0), 0) == 0
    assert leases.positions() == []


def test_only_so_many_readers_have_one_until_an_old_one_ends() -> None:
    clock = Clock()
    leases = ReaderLeases(2, clock)
    leases.hold("a", Offset(1), 100)
    leases.hold("b", Offset(2), 200)
    with pytest.raises(ApiError, match=r"service\.named\.readers\.max = 2") as refused:
        leases.hold("c", Offset(3), 100)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    leases.hold("a", Offset(4), 100)
    clock.now_ms += 100
    leases.hold("c", Offset(3), 100)
    assert leases.positions() == [("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    ("name", "next_offset", "lease_ms"),
    [("", 0, 1), ("a" * (NAME_LENGTH_MAX + 1), 0, 1), ("line\nbreak", 0, 1), ("a", -2, 1), ("a", 0, -1)],
)
def test_what_cannot_be_a_reader_is_refused_and_holds_nothing(name: str, next_offset: int, lease_ms: int) -> None:
    leases = ReaderLeases(2, Clock())
    with pytest.raises(ApiError) as refused:
        leases.hold(name, Offset(next_offset), lease_ms)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert leases.positions() == []


# --- real nodes -------------------------------------------------------------------------------------------------------


def addresses_of(cluster: SnapshotCluster) -> str:
    return ",".join(str(node.identity.endpoint) for node in cluster.nodes.values())


@contextlib.asynccontextmanager
async def stopped_reader(cluster: SnapshotCluster, name: str = "audit") -> AsyncIterator[Loader]:
    """A named reader that got some records and has stopped."""
    loader = Loader()
    loader.may_read.clear()
    following = asyncio.ensure_future(observe(addresses_of(cluster), loader, name=name, lease_ms=3_000))
    try:
        await until(lambda: loader.is_asked)
        await until(lambda: any(node.readers.positions() for node in cluster.nodes.values()))
        yield loader
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def holds(cluster: SnapshotCluster) -> str:
    """The holders of the leader's log start in `quorum describe`, as soon as there are any."""
    leader_id = (await cluster.leader()).node_key.node_id
    async with asyncio.timeout(100):
        while not (held := (await described(cluster))[leader_id]["HoldsLogStart"]):
            await asyncio.sleep(0.02)
    return str(held)


async def test_the_log_start_waits_for_a_named_reader_and_quorum_describe_shows_it(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 5)
        async with stopped_reader(cluster) as loader:
            first, _ = await two_snapshots(cluster, 5)
            assert (await holds(cluster)).startswith("reader audit at -1 for ")
            assert {client.log_start_offset for client in cluster.clients.values()} == {0}
            loader.may_read.set()
            await until(lambda: all(client.log_start_offset == first.offset for client in cluster.clients.values()))
            await loader.has_records(35)
            assert (loader.records, loader.loaded) == (numbered(35), [])


async def test_the_lease_ends_with_the_reader(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 5)
        async with stopped_reader(cluster):
            first, _ = await two_snapshots(cluster, 5)
            await holds(cluster)
        assert [node.readers.positions() for node in cluster.nodes.values()] == [[], [], []]
        await until(lambda: all(client.log_start_offset == first.offset for client in cluster.clients.values()))


async def test_a_lease_ends_by_itself_if_its_reader_goes_away_without_a_word(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path, 1) as cluster:
        await cluster.append(0, 5)
        async with grpc.aio.insecure_channel(addresses_of(cluster)) as channel:
            stub = log_pb2_grpc.LogServiceStub(channel)
            asked = log_pb2.HoldLogStartRequest(name="gone", next_offset=0, lease_ms=1_500)
            assert (await stub.HoldLogStart(asked)).lease_ms == 1_500
        first, _ = await two_snapshots(cluster, 5)
        assert (await holds(cluster)).startswith("reader gone at 0 for ")
        await until(lambda: cluster.clients[1].log_start_offset == first.offset)


async def test_a_new_leader_waits_for_the_reader_too(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 5)
        async with stopped_reader(cluster) as loader:
            await cluster.stop((await cluster.leader()).node_key.node_id)
            await cluster.leader()
            await until(lambda: any(node.readers.positions() for node in cluster.nodes.values()))
            first, _ = await two_snapshots(cluster, 5)
            assert (await holds(cluster)).startswith("reader audit at -1 for ")
            loader.may_read.set()
            await loader.has_records(35)
            assert loader.loaded == []
            await until(lambda: all(client.log_start_offset == first.offset for client in cluster.clients.values()))


async def test_only_the_leader_gives_a_lease_and_others_name_it(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        leader_id = (await cluster.leader()).node_key.node_id
        other = next(node for node_id, node in cluster.nodes.items() if node_id != leader_id)
        await cluster.recorders[other.identity.key.node_id].has_leader(leader_id)
        async with grpc.aio.insecure_channel(str(other.identity.endpoint)) as channel:
            stub = log_pb2_grpc.LogServiceStub(channel)
            answer = await stub.HoldLogStart(log_pb2.HoldLogStartRequest(name="audit", lease_ms=1_000))
            assert (answer.lease_ms, answer.current_leader.leader_id) == (0, leader_id)
            assert answer.current_leader.leader_endpoint.port == cluster.nodes[leader_id].identity.endpoint.port
            assert other.readers.positions() == []
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.HoldLogStart(log_pb2.HoldLogStartRequest(name="audit", cluster_id="AAAAAAAAAAAAAAAAAAAAAQ"))
            assert (ERROR_KEY, str(int(ErrorCode.INCONSISTENT_CLUSTER_ID))) in tuple(refused.value.trailing_metadata())


async def test_a_name_that_cannot_be_one_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="cannot be a reader's name"):
        await observe("localhost:1", Loader(), name="")


async def test_that_no_node_answers_is_told_once_whatever_each_of_them_fails_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Endpoint] = []
    next_node = KnownNodes.next

    def noted(self: KnownNodes) -> Endpoint:
        asked.append(next_node(self))
        return asked[-1]

    monkeypatch.setattr(KnownNodes, "next", noted)
    monkeypatch.setattr(reader_lease, "RETRY_SECONDS", 0)
    nodes = [Endpoint("127.0.0.1", free_port()), Endpoint("127.0.0.1", free_port())]
    with capture_logs() as logs:
        async with reader_lease.reader_lease(nodes, "audit", 3_000, lambda: Offset(0), None):
            await until(lambda: len(asked) >= 6)
    assert set(asked) == set(nodes)
    assert [line["event"] for line in logs] == ["log start does not wait for this reader"]
