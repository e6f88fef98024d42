"""The service that takes, lists and serves snapshots, over a real connection."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

from kraftbase.errors import CorruptSnapshot, ErrorCode, StorageError
from kraftbase.runtime import AsyncioRuntime, awaited
from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.admin.server.snapshot_service import CHUNK_BYTES, SnapshotServicer
from kraftpb.v1 import snapshot_pb2, snapshot_pb2_grpc
from kraftpb.v1.common_pb2 import EpochEndOffset
from raft.core.types import OffsetAndEpoch, StateDigest
from raft.rpc.errors import ERROR_KEY
from raft.rpc.limits import ServiceLimits
from snapshot.format import SnapshotHeader
from snapshot.reader import SnapshotReader, SnapshotSummary
from snapshot.store import SnapshotStore
from statemachine.store.metadata_tables import StoreUnavailable
from statemachine.store.snapshot_generator import SnapshotConfig, SnapshotGenerator
from statemachine.store.snapshot_process import SnapshotProcess
from statemachine.store.store import MetadataStore
from tests.raft.nodes import free_port
from tests.snapshot.builders import overwrite
from tests.statemachine.apply.test_machine import running
from tests.statemachine.builders import CLUSTER_ID, batch, no_op
from tests.statemachine.machines import deliver
from tests.statemachine.snapshots import posix_snapshots
from tests.statemachine.waiting import until

LARGE_BYTES = 24 * 1024 * 1024
"""More than any connection takes in before its reader asks for it."""

EXPECTED = StateDigest(Offset(1_000), bytes(16))
OWN = StateDigest(Offset(1_000), bytes([7]) * 16)

Read = grpc.aio.UnaryStreamCall[snapshot_pb2.ReadSnapshotRequest, snapshot_pb2.ReadSnapshotResponse]


@dataclass
class Served:
    """A node's snapshots behind their service."""

    stub: snapshot_pb2_grpc.SnapshotServiceAsyncStub
    servicer: SnapshotServicer
    snapshots: SnapshotStore
    store: MetadataStore
    stack: AsyncExitStack

    def write(self, end_offset: int, size_bytes: int = 10, epoch: int = 1) -> OffsetAndEpoch:
        """A whole snapshot with this many bytes."""
        point = OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(end_offset))
        writer = self.snapshots.create(point, SnapshotHeader(end_offset * 10, CLUSTER_ID))
        assert writer is not None
        with writer:
            for position in range(0, size_bytes, 1024 * 1024):
                writer.append(os.urandom(min(1024 * 1024, size_bytes - position)), 1)
            writer.freeze()
        return point

    def path(self, point: OffsetAndEpoch) -> Path:
        return Path(self.snapshots.path_of(point))

    def damage(self, point: OffsetAndEpoch, position: int) -> None:
        data = bytearray(self.path(point).read_bytes())
        data[position] ^= 1
        overwrite(self.path(point), data)

    def read(self, point: OffsetAndEpoch | None) -> Read:
        request = snapshot_pb2.ReadSnapshotRequest()
        if point is not None:
            request.snapshot_id.CopyFrom(EpochEndOffset(epoch=point.epoch, end_offset=point.offset))
        return self.stub.ReadSnapshot(request)

    def open_files(self) -> list[str]:
        """The snapshots that this process has open."""
        found = []
        for descriptor in Path("/proc/self/fd").iterdir():
            try:
                target = str(descriptor.readlink())
            except FileNotFoundError:  # that of this listing
                continue
            if target.startswith(self.snapshots.directory):
                found.append(target)
        return found

    async def nothing_is_read(self) -> None:
        await until(lambda: self.servicer._reads == 0 and self.open_files() == [])


@asynccontextmanager
async def serving(base: Path) -> AsyncIterator[Served]:
    async with AsyncExitStack() as stack:
        store = stack.enter_context(closing(MetadataStore.open(base / "metadata.db", CLUSTER_ID)))
        machine = await stack.enter_async_context(running(store))
        snapshots = posix_snapshots(base / "snapshots")
        runtime = AsyncioRuntime()
        take_snapshot = SnapshotProcess(store.path, snapshots.directory, runtime)
        generator = SnapshotGenerator(store, take_snapshot, SnapshotConfig(10**9, 0), runtime)
        stack.push_async_callback(awaited, lambda on_done: generator.close(partial(on_done, None)))
        servicer = SnapshotServicer(NodeId(3), snapshots, generator, machine)
        server = grpc.aio.server()
        snapshot_pb2_grpc.add_SnapshotServiceServicer_to_server(servicer, server)
        address = f"127.0.0.1:{free_port()}"
        server.add_insecure_port(address)
        await server.start()
        stack.push_async_callback(server.stop, None)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        yield Served(snapshot_pb2_grpc.SnapshotServiceStub(channel), servicer, snapshots, store, stack)


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    async with serving(tmp_path) as served:
        yield served
        await served.nothing_is_read()
    assert complaints == []


def code_of(error: grpc.aio.AioRpcError) -> ErrorCode:
    return ErrorCode(int(dict(error.trailing_metadata())[ERROR_KEY]))


async def whole(call: Read) -> list[snapshot_pb2.ReadSnapshotResponse]:
    async with asyncio.timeout(100):
        return [response async for response in call]


async def refused(call: Read, code: ErrorCode, reason: str) -> None:
    """It is refused, and nothing was sent."""
    got = []
    with pytest.raises(grpc.aio.AioRpcError, match=reason) as error:
        async with asyncio.timeout(100):
            async for response in call:
                got.append(response)  # noqa: PERF401 (what came before the error counts)
    assert (code_of(error.value), got) == (code, [])


async def next_of(call: Read) -> snapshot_pb2.ReadSnapshotResponse:
    async with asyncio.timeout(100):
        response = await call.read()
    assert isinstance(response, snapshot_pb2.ReadSnapshotResponse)
    return response


class HeldVerify:
    """Holds every read of a whole snapshot until the test releases it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.goes_on = threading.Event()
        verify = SnapshotReader.verify

        def held(reader: SnapshotReader) -> SnapshotSummary:
            self.begun += 1
            assert self.goes_on.wait(20)
            return verify(reader)

        monkeypatch.setattr(SnapshotReader, "verify", held)


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size_bytes", [10, CHUNK_BYTES, 3 * CHUNK_BYTES + 1])
async def test_sn10_what_is_sent_are_the_bytes_of_the_file_in_order(served: Served, size_bytes: int) -> None:
    point = served.write(7, size_bytes, epoch=2)
    size = served.path(point).stat().st_size
    position = 0
    data = b""
    for response in await whole(served.read(point)):
        assert response.snapshot_id == EpochEndOffset(epoch=2, end_offset=7)
        assert (response.size_bytes, response.position) == (size, position)
        assert 0 < len(response.data) <= CHUNK_BYTES
        position += len(response.data)
        data += response.data
    assert data == served.path(point).read_bytes()


async def test_without_an_id_it_is_the_newest(served: Served) -> None:
    await refused(served.read(None), ErrorCode.SNAPSHOT_NOT_FOUND, "no snapshot yet")
    for end_offset in (5, 12, 7):
        served.write(end_offset)
    (response,) = await whole(served.read(None))
    assert response.snapshot_id.end_offset == 12


@pytest.mark.parametrize(("end_offset", "epoch"), [(8, 1), (7, 2)])
async def test_sn11_one_that_is_not_there_is_not_found(served: Served, end_offset: int, epoch: int) -> None:
    served.write(7)
    missing = OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(end_offset))
    await refused(
        served.read(missing),
        ErrorCode.SNAPSHOT_NOT_FOUND,
        f"no snapshot with end offset {end_offset} and epoch {epoch}",
    )


@pytest.mark.parametrize(("end_offset", "epoch"), [(-1, 0), (0, -1)])
async def test_an_id_that_cannot_be_is_refused(served: Served, end_offset: int, epoch: int) -> None:
    point = OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(end_offset))
    await refused(served.read(point), ErrorCode.INVALID_REQUEST, "neither number is negative")


async def test_an_id_of_zeros_could_be(served: Served) -> None:
    point = OffsetAndEpoch(epoch=Epoch(0), offset=Offset(0))
    await refused(served.read(point), ErrorCode.SNAPSHOT_NOT_FOUND, "end offset 0 and epoch 0")


@pytest.mark.parametrize("position", [40, 2 * CHUNK_BYTES, -1], ids=["header", "middle", "end"])
async def test_of_a_damaged_one_nothing_is_sent(served: Served, position: int) -> None:
    point = served.write(7, 4 * CHUNK_BYTES)
    served.damage(point, position)
    await refused(served.read(point), ErrorCode.CORRUPT_MESSAGE, "damaged|header")
    await served.nothing_is_read()


async def test_one_that_is_deleted_this_moment_is_not_found(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    point = served.write(7)
    opened = served.snapshots.open

    def delete_then_open(snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        served.snapshots.delete(snapshot_id)
        return opened(snapshot_id)

    monkeypatch.setattr(served.snapshots, "open", delete_then_open)
    await refused(served.read(point), ErrorCode.SNAPSHOT_NOT_FOUND, "end offset 7")


async def test_one_that_cannot_be_read_is_an_error_of_the_disk(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    point = served.write(7)

    def broken(_: OffsetAndEpoch) -> SnapshotReader:
        raise StorageError("the disk is broken")

    monkeypatch.setattr(served.snapshots, "open", broken)
    await refused(served.read(point), ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken")


async def test_sn42_one_that_is_deleted_while_it_is_read_is_read_to_its_end(served: Served) -> None:
    point = served.write(7, LARGE_BYTES)
    expected = served.path(point).read_bytes()
    call = served.read(point)
    data = (await next_of(call)).data
    served.snapshots.delete(point)
    served.snapshots.remove_deleted()
    while len(data) < len(expected):
        data += (await next_of(call)).data
    assert data == expected
    assert await call.read() is grpc.aio.EOF


# --- how many ---------------------------------------------------------------------------------------------------------


async def test_so_many_may_be_read_and_no_more(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    point = served.write(7)
    held = HeldVerify(monkeypatch)
    reads = [asyncio.create_task(whole(served.read(point))) for _ in range(16)]
    await until(lambda: served.servicer._reads == 16)
    await refused(served.read(point), ErrorCode.THROTTLING_QUOTA_EXCEEDED, "service.snapshot.reads.max = 16")
    assert served.servicer._reads == 16  # a refused caller does not count
    held.goes_on.set()
    for read in reads:
        assert await read
    await served.nothing_is_read()
    assert await whole(served.read(point))


async def test_a_reader_that_leaves_in_the_middle_makes_room_for_another(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.servicer, "_limits", ServiceLimits(snapshot_reads_max=2))
    point = served.write(7, LARGE_BYTES)
    calls = [served.read(point) for _ in range(2)]
    for call in calls:
        await next_of(call)
    assert served.open_files() == [str(served.path(point))] * 2
    await refused(served.read(point), ErrorCode.THROTTLING_QUOTA_EXCEEDED, "try again later")
    calls[0].cancel()
    await until(lambda: served.servicer._reads == 1)
    await until(lambda: len(served.open_files()) == 1)
    third = served.read(point)
    await next_of(third)
    assert served.servicer._reads == 2
    for call in (calls[1], third):
        call.cancel()
    await served.nothing_is_read()


async def test_a_reader_that_leaves_while_it_is_read_through_counts_until_the_file_is_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise callers that come and go could occupy any number of threads."""
    point = served.write(7)
    held = HeldVerify(monkeypatch)
    call = served.read(point)
    reading = asyncio.create_task(whole(call))
    await until(lambda: held.begun == 1)
    call.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await asyncio.sleep(0.1)  # the server learns of it
    assert (served.servicer._reads, len(served.open_files())) == (1, 1)
    held.goes_on.set()
    await served.nothing_is_read()


async def test_a_damaged_one_whose_reader_has_left_is_closed_too(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = served.write(7, 1_000)
    served.damage(point, -1)
    held = HeldVerify(monkeypatch)
    call = served.read(point)
    reading = asyncio.create_task(whole(call))
    await until(lambda: held.begun == 1)
    call.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    held.goes_on.set()
    await served.nothing_is_read()


async def test_a_connection_that_is_lost_closes_what_it_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        point = served.write(7, LARGE_BYTES)
        call = served.read(point)
        await next_of(call)
        assert served.open_files()
        del call
    await served.nothing_is_read()


# --- taking -----------------------------------------------------------------------------------------------------------


async def test_who_asks_gets_one_of_what_is_applied_and_the_same_if_nothing_was_since(served: Served) -> None:
    served.store.apply([batch(0, [no_op(), no_op()])])
    answer = await served.stub.CreateSnapshot(snapshot_pb2.CreateSnapshotRequest())
    (point,) = served.snapshots.ids()
    assert (answer.node_id, answer.is_new) == (3, True)
    assert answer.snapshot == snapshot_pb2.Snapshot(
        snapshot_id=EpochEndOffset(epoch=1, end_offset=2),
        size_bytes=served.path(point).stat().st_size,
        last_contained_log_timestamp=1,
        path=str(served.path(point)),
    )
    again = await served.stub.CreateSnapshot(snapshot_pb2.CreateSnapshotRequest())
    assert (again.snapshot, again.is_new) == (answer.snapshot, False)
    assert b"".join([response.data for response in await whole(served.read(None))]) == served.path(point).read_bytes()


async def test_if_none_can_be_taken_it_says_why(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="nothing is applied") as error:
        await served.stub.CreateSnapshot(snapshot_pb2.CreateSnapshotRequest())
    assert code_of(error.value) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_of_a_state_that_must_not_be_believed_none_is_taken(served: Served) -> None:
    served.store.apply([batch(0, [no_op()])])
    served.servicer._machine.fence(EXPECTED, OWN)
    with pytest.raises(grpc.aio.AioRpcError, match="differs from the quorum's") as error:
        await served.stub.CreateSnapshot(snapshot_pb2.CreateSnapshotRequest())
    assert code_of(error.value) is ErrorCode.KAFKA_STORAGE_ERROR
    assert served.snapshots.ids() == ()


# --- listing ----------------------------------------------------------------------------------------------------------


async def ends(served: Served) -> list[tuple[int, int]]:
    answer = await served.stub.ListSnapshots(snapshot_pb2.ListSnapshotsRequest())
    assert answer.node_id == 3
    for each in answer.snapshots:
        assert Path(each.path).stat().st_size == each.size_bytes
        assert each.last_contained_log_timestamp == each.snapshot_id.end_offset * 10
    return [(each.snapshot_id.end_offset, each.snapshot_id.epoch) for each in answer.snapshots]


async def test_those_that_have_a_header_are_listed_the_oldest_first(served: Served) -> None:
    assert await ends(served) == []
    for end_offset, epoch in ((12, 2), (5, 1), (7, 1)):
        served.write(end_offset, epoch=epoch)
    assert await ends(served) == [(5, 1), (7, 1), (12, 2)]
    damaged = OffsetAndEpoch(epoch=Epoch(1), offset=Offset(7))
    served.damage(damaged, 40)
    with pytest.raises(CorruptSnapshot):
        served.snapshots.open(damaged)
    assert await ends(served) == [(5, 1), (12, 2)]
    served.snapshots.delete(damaged)
    unfinished = served.snapshots.create(damaged, SnapshotHeader(1, CLUSTER_ID))
    assert unfinished is not None
    with unfinished:
        assert await ends(served) == [(5, 1), (12, 2)]


async def test_one_that_is_deleted_meanwhile_is_left_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [served.write(end_offset) for end_offset in (5, 7)]
    ids = served.snapshots.ids()
    served.snapshots.delete(points[0])
    monkeypatch.setattr(served.snapshots, "ids", lambda: ids)
    assert await ends(served) == [(7, 1)]


async def test_if_they_cannot_be_listed_it_says_why(served: Served) -> None:
    Path(served.snapshots.directory).rmdir()
    with pytest.raises(grpc.aio.AioRpcError, match="snapshots") as error:
        await served.stub.ListSnapshots(snapshot_pb2.ListSnapshotsRequest())
    assert code_of(error.value) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_none_is_taken_without_what_was_acknowledged(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreUnavailable("no room")

    machine = served.servicer._machine
    served.store.apply([batch(0, [no_op()])])
    machine._applied_end_offset = served.store.applied_end_offset
    machine.set_commit_callback(lambda end_offset: True)
    with monkeypatch.context() as patched:
        patched.setattr(served.store, "commit", full)
        patched.setattr("statemachine.apply.run_writer.UNAVAILABLE_PAUSE_MS", 1)
        delivering = asyncio.create_task(deliver(machine, batch(1, [no_op()])))
        await until(lambda: machine.unavailable_reason is not None)
        with pytest.raises(grpc.aio.AioRpcError, match="has acknowledged: no room") as error:
            await served.stub.CreateSnapshot(snapshot_pb2.CreateSnapshotRequest())
        assert code_of(error.value) is ErrorCode.KAFKA_STORAGE_ERROR
    await delivering
    answer = await served.stub.CreateSnapshot(snapshot_pb2.CreateSnapshotRequest())
    assert answer.snapshot.snapshot_id.end_offset == 2
