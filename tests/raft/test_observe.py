"""Listeners outside a node: the contract of `raft.listener` over the Watch stream."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftpb.v1 import log_pb2, log_pb2_grpc
from raft.known_nodes import KnownNodes
from raft.listener import BatchReader, Listener
from raft.observe import observe
from raft.rpc import log_service, sent_snapshot
from raft.rpc.errors import ERROR_KEY
from raft.rpc.sent_snapshot import SnapshotSender
from tests.raft.snapshot_nodes import Loader, SnapshotCluster, numbered, snapshot_cluster
from tests.statemachine.waiting import until


@contextlib.contextmanager
def small_pieces(size_bytes: int = 100) -> Iterator[None]:
    """A snapshot takes many messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_service, "PIECE_BYTES", size_bytes)
        yield


@contextlib.asynccontextmanager
async def moved(base: Path, voter_count: int = 1) -> AsyncIterator[SnapshotCluster]:
    """A cluster with 30 records whose nodes' logs start above 0, and whose newest snapshot holds 20 of them."""
    async with snapshot_cluster(base, voter_count) as cluster:
        await cluster.append(0, 30)
        leader = await cluster.leader()
        ends = {count: offset for offset, count in cluster.loader(leader.node_key.node_id).counts.items()}
        for count in (10, 20):
            cluster.snapshot_everywhere(ends[count])
        await until(lambda: all(client.log_start_offset == ends[10] for client in cluster.clients.values()))
        yield cluster


def address_of(cluster: SnapshotCluster, node_id: int = 1) -> str:
    return str(cluster.nodes[node_id].identity.endpoint)


@contextlib.asynccontextmanager
async def following(observing: object) -> AsyncIterator[asyncio.Future[Offset]]:
    task = asyncio.ensure_future(observing)  # type: ignore[call-overload]
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Plain(Listener):
    """As README's: it cannot load snapshots."""

    def __init__(self) -> None:
        self.first_offset: Offset | None = None
        self.records: list[bytes] = []

    async def handle_commit(self, reader: BatchReader) -> None:
        with reader:
            if self.first_offset is None:
                self.first_offset = reader.base_offset
            for batch in reader:
                self.records.extend(batch.records)


async def test_a_listener_that_cannot_load_begins_where_the_log_starts(tmp_path: Path) -> None:
    async with moved(tmp_path) as cluster:
        listener = Plain()
        end_offset = cluster.clients[1].high_watermark
        assert await observe(address_of(cluster), listener, end_offset=end_offset) == end_offset
        assert listener.first_offset == cluster.clients[1].log_start_offset > 0
        assert listener.records == numbered(10, 30)


async def test_an_offset_that_is_asked_for_and_gone_is_an_error_for_who_cannot_load(tmp_path: Path) -> None:
    async with moved(tmp_path) as cluster:
        with pytest.raises(ApiError, match="handle_load_snapshot") as refused:
            await observe(address_of(cluster), Plain(), start_offset=Offset(0))
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("start_offset", [None, 0, 4])
async def test_sn60_a_listener_that_is_new_or_behind_the_start_is_given_the_newest_snapshot(
    tmp_path: Path, start_offset: int | None
) -> None:
    with small_pieces():
        async with moved(tmp_path) as cluster:
            loader = Loader()
            start = None if start_offset is None else Offset(start_offset)
            async with following(observe(address_of(cluster), loader, start_offset=start)):
                await loader.has_records(30)
                snapshot_id = cluster.clients[1].latest_snapshot_id
                assert snapshot_id is not None
                assert (loader.loaded, loader.first_commit_offset) == ([snapshot_id], snapshot_id.offset)
                assert loader.records == numbered(30)
                await cluster.append(30, 33)
                await loader.has_records(33)
                assert (loader.records, len(loader.loaded)) == (numbered(33), 1)


async def test_sn60_who_is_new_is_given_the_snapshot_though_the_log_has_everything(tmp_path: Path) -> None:
    async with snapshot_cluster(tmp_path, 1) as cluster:
        await cluster.append(0, 10)
        snapshot_id = cluster.snapshot_everywhere()
        await cluster.append(10, 12)
        end_offset = cluster.clients[1].high_watermark
        new, old = Loader(), Loader()
        await observe(address_of(cluster), new, end_offset=end_offset)
        await observe(address_of(cluster), old, start_offset=Offset(0), end_offset=end_offset)
        assert cluster.clients[1].log_start_offset == 0
        assert (new.loaded, old.loaded) == ([snapshot_id], [])
        assert new.records == old.records == numbered(12)


async def test_sn62_a_listener_that_is_not_behind_the_start_is_given_no_snapshot(tmp_path: Path) -> None:
    async with moved(tmp_path) as cluster:
        loader = Loader()
        start = cluster.clients[1].log_start_offset
        async with following(observe(address_of(cluster), loader, start_offset=start)):
            await loader.has_records(20)
            assert (loader.loaded, loader.records) == ([], numbered(10, 30))


async def test_a_listener_that_falls_behind_the_start_in_the_middle_is_given_a_snapshot(tmp_path: Path) -> None:
    """Its node sends it little ahead, so most of its unread records are deleted when it continues."""
    async with snapshot_cluster(tmp_path, 1) as cluster:
        client = await cluster.leader()
        big = [b"%d" % number * 100_000 for number in range(10, 50)]
        await client.append([b"first"])
        loader = Loader()
        loader.may_read.clear()
        async with following(observe(address_of(cluster), loader)):
            await until(lambda: loader.is_asked)
            for record in big:
                await client.append([record])
            await cluster.loader(1).has_records(41)
            ends = {count: offset for offset, count in cluster.loader(1).counts.items()}
            for count in (40, 41):
                cluster.snapshot_everywhere(ends[count])
            await until(lambda: client.log_start_offset == ends[40])
            loader.may_read.set()
            await loader.has_records(41)
            assert loader.loaded == [client.latest_snapshot_id]
            assert loader.records == [b"first", *big]


# --- nodes that fail --------------------------------------------------------------------------------------------------


class Between(log_pb2_grpc.LogServiceServicer):
    """Forwards calls to a node, and changes the answers by `spoil`."""

    def __init__(self, behind: str, spoil: Callable[[log_pb2.WatchResponse], log_pb2.WatchResponse | None]) -> None:
        self._behind = behind
        self._spoil = spoil
        self.requests: list[log_pb2.WatchRequest] = []

    async def DescribeNode(self, request: log_pb2.DescribeNodeRequest, context: Any) -> log_pb2.DescribeNodeResponse:
        async with grpc.aio.insecure_channel(self._behind) as channel:
            return await log_pb2_grpc.LogServiceStub(channel).DescribeNode(request)

    async def Watch(self, request: log_pb2.WatchRequest, context: Any) -> AsyncIterator[log_pb2.WatchResponse]:
        self.requests.append(request)
        async with grpc.aio.insecure_channel(self._behind) as channel:
            async for message in log_pb2_grpc.LogServiceStub(channel).Watch(request):
                spoilt = self._spoil(message)
                if spoilt is None:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
                else:
                    yield spoilt


class Before(Between):
    """A node of the version before: it knows nothing of snapshots on this stream."""

    async def Watch(self, request: log_pb2.WatchRequest, context: Any) -> AsyncIterator[log_pb2.WatchResponse]:
        self.requests.append(request)
        known = log_pb2.WatchRequest()
        known.CopyFrom(request)
        known.ClearField("takes_snapshots")
        known.ClearField("is_new")
        async with grpc.aio.insecure_channel(self._behind) as channel:
            try:
                async for message in log_pb2_grpc.LogServiceStub(channel).Watch(known):
                    yield message
            except grpc.aio.AioRpcError as error:
                await context.abort(
                    error.code(), error.details() or "", trailing_metadata=tuple(error.trailing_metadata())
                )


@contextlib.asynccontextmanager
async def serving(servicer: Between) -> AsyncIterator[str]:
    server = grpc.aio.server()
    log_pb2_grpc.add_LogServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def unspoilt(message: log_pb2.WatchResponse) -> log_pb2.WatchResponse:
    return message


def garbled(message: log_pb2.WatchResponse) -> log_pb2.WatchResponse:
    data = bytearray(message.snapshot_piece.data)
    data[-1] ^= 1
    message.snapshot_piece.data = bytes(data)
    return message


def without_its_second_piece(message: log_pb2.WatchResponse) -> log_pb2.WatchResponse:
    if message.snapshot_piece.position:
        message.snapshot_piece.position += 1
    return message


def of_another_point(message: log_pb2.WatchResponse) -> log_pb2.WatchResponse:
    message.snapshot_piece.snapshot_id.end_offset = 2**40
    return message


def cut_off(message: log_pb2.WatchResponse) -> log_pb2.WatchResponse | None:
    return None if message.snapshot_piece.position else message


@pytest.mark.parametrize("spoil", [garbled, without_its_second_piece, of_another_point, cut_off])
async def test_a_snapshot_that_does_not_come_whole_is_not_loaded_and_another_node_sends_one(
    tmp_path: Path, spoil: Callable[[log_pb2.WatchResponse], log_pb2.WatchResponse | None]
) -> None:
    with small_pieces():
        async with moved(tmp_path) as cluster:
            between = Between(address_of(cluster), spoil)
            async with serving(between) as address:
                loader = Loader()
                async with following(observe(address, loader)):  # which returns the address of the real node
                    await loader.has_records(30)
                    assert len(between.requests) == 1
                    assert loader.loaded == [cluster.clients[1].latest_snapshot_id]
                    assert loader.records == numbered(30)


async def test_the_temporary_files_go_when_a_snapshot_is_loaded_and_when_it_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with small_pieces():
        async with moved(tmp_path) as cluster, serving(Between(address_of(cluster), garbled)) as address:
            loader = Loader()
            loader.may_read.clear()
            async with following(observe(address, loader)):
                await until(lambda: loader.is_asked)
                assert len(list(temporary.iterdir())) == 1, "that of the node which spoils it was deleted"
            assert list(temporary.iterdir()) == []


# --- versions ---------------------------------------------------------------------------------------------------------


async def test_of_old_and_new_nodes_a_new_one_is_found_that_sends_snapshots(tmp_path: Path) -> None:
    async with moved(tmp_path) as cluster:
        before = Before(address_of(cluster), unspoilt)
        async with serving(before) as address:
            loader = Loader()
            async with following(observe(address, loader)):
                await loader.has_records(30)
                assert len(before.requests) == 1
                assert loader.loaded == [cluster.clients[1].latest_snapshot_id]


async def test_if_all_nodes_are_old_the_offset_is_gone_for_who_is_behind_and_all_others_go_on(tmp_path: Path) -> None:
    async with moved(tmp_path) as cluster:
        before = Before(address_of(cluster), unspoilt)
        async with serving(before) as address:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(KnownNodes, "learn", lambda *_: True)
                with pytest.raises(ApiError) as refused:
                    await observe(address, Loader())
                assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
                plain, loader = Plain(), Loader()
                end_offset = cluster.clients[1].high_watermark
                await observe(address, plain, end_offset=end_offset)
                await observe(address, loader, start_offset=Offset(15), end_offset=end_offset)
        assert plain.records == numbered(10, 30)
        assert loader.loaded == []


async def test_an_old_reader_is_told_that_the_offset_is_gone(tmp_path: Path) -> None:
    async with moved(tmp_path) as cluster, grpc.aio.insecure_channel(address_of(cluster)) as channel:
        call = log_pb2_grpc.LogServiceStub(channel).Watch(log_pb2.WatchRequest(start_offset=0), timeout=60)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE
        assert (ERROR_KEY, str(int(ErrorCode.OFFSET_OUT_OF_RANGE))) in tuple(refused.value.trailing_metadata())


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_only_so_many_snapshots_are_sent_at_a_time_and_who_does_not_read_gives_the_place_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that stops holds a place for a bounded time; then the next one gets it."""
    monkeypatch.setattr(sent_snapshot, "PIECE_SECONDS_MAX", 0.5)
    async with snapshot_cluster(tmp_path, 1) as cluster:
        client = await cluster.leader()
        for number in range(10, 50):
            await client.append([b"%d" % number * 200_000])
        await cluster.loader(1).has_records(40)
        cluster.snapshot_everywhere()
        service = SnapshotSender(cluster.nodes[1].snapshots, 1)
        async with service.newest() as stuck:
            assert stuck is not None
            stuck.next_piece(1000)
            with pytest.raises(ApiError, match=r"service\.snapshot\.reads\.max = 1"):
                async with service.newest():
                    pass
            await until(lambda: service._count == 0)
            async with service.newest() as following_one:
                assert following_one is not None
                assert following_one.next_piece(1000).position == 0
            with pytest.raises(ApiError, match="REQUEST_TIMED_OUT"):
                stuck.next_piece(1000)
        await until(lambda: service._count == 0)
