"""Serves SnapshotService: take a snapshot, list the node's, read one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import grpc.aio

from kraftbase.errors import ApiError, CorruptSnapshot, ErrorCode, StorageError
from kraftbase.runtime import awaited
from kraftbase.types import Epoch, NodeId, Offset
from kraftpb.v1 import snapshot_pb2, snapshot_pb2_grpc
from kraftpb.v1.common_pb2 import EpochEndOffset
from raft.core.types import OffsetAndEpoch
from raft.rpc.errors import abort
from raft.rpc.limits import ServiceLimits, over_limit
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from statemachine.apply.machine import MetadataMachine
from statemachine.store.snapshot_generator import SnapshotGenerator
from statemachine.store.snapshot_worker import TakenSnapshot

CHUNK_BYTES: Final = 256 * 1024
"""How much of a snapshot one message carries."""

RpcContext = grpc.aio.ServicerContext[Any, Any]


class SnapshotServicer(snapshot_pb2_grpc.SnapshotServiceServicer):
    """The snapshots of one node."""

    def __init__(
        self,
        node_id: NodeId,
        snapshots: SnapshotStore,
        generator: SnapshotGenerator,
        machine: MetadataMachine,
        limits: ServiceLimits | None = None,
    ) -> None:
        self._node_id = node_id
        self._snapshots = snapshots
        self._generator = generator
        self._machine = machine
        self._limits = limits or ServiceLimits()
        self._reads = 0

    async def CreateSnapshot(
        self, request: snapshot_pb2.CreateSnapshotRequest, context: RpcContext
    ) -> snapshot_pb2.CreateSnapshotResponse:
        """Take a snapshot of everything applied and acknowledged here, and answer when it is durable."""
        try:
            await awaited(partial(self._machine.wait_applied, Offset(0), 0))
            taken = await _taken(self._generator)
            described = await asyncio.to_thread(self._describe, taken.snapshot_id)
        except ApiError as error:
            await abort(context, error)
            raise
        except StorageError as error:
            await abort(context, _told(error))
            raise
        return snapshot_pb2.CreateSnapshotResponse(node_id=self._node_id, snapshot=described, is_new=taken.is_new)

    async def ListSnapshots(
        self, request: snapshot_pb2.ListSnapshotsRequest, context: RpcContext
    ) -> snapshot_pb2.ListSnapshotsResponse:
        """List the snapshots that have a readable header."""
        try:
            found = await asyncio.to_thread(self._describe_all)
        except StorageError as error:
            await abort(context, _told(error))
            raise
        return snapshot_pb2.ListSnapshotsResponse(node_id=self._node_id, snapshots=found)

    async def ReadSnapshot(
        self, request: snapshot_pb2.ReadSnapshotRequest, context: RpcContext
    ) -> AsyncIterator[snapshot_pb2.ReadSnapshotResponse]:
        """Send the bytes of a whole snapshot."""
        try:
            async with self._opened(request) as reader:
                point = _point_to_proto(reader.snapshot_id)
                for position in range(0, reader.size_bytes, CHUNK_BYTES):
                    data = reader.read_at(position, CHUNK_BYTES)  # it was just read, and is in the page cache
                    yield snapshot_pb2.ReadSnapshotResponse(
                        snapshot_id=point, size_bytes=reader.size_bytes, position=position, data=data
                    )
        except ApiError as error:
            await abort(context, error)
        except StorageError as error:
            await abort(context, _told(error))

    @asynccontextmanager
    async def _opened(self, request: snapshot_pb2.ReadSnapshotRequest) -> AsyncIterator[SnapshotReader]:
        """Open a snapshot and verify that it is whole.

        It is closed, and no longer counts as being read, at the end of the `async with` block. If the caller leaves
        while the snapshot is being opened, that happens when the opening has ended.
        """
        if self._reads >= self._limits.snapshot_reads_max:
            raise over_limit("snapshot_reads_max", self._limits.snapshot_reads_max)
        self._reads += 1
        opening = asyncio.ensure_future(asyncio.to_thread(self._open_verified, request))
        try:
            yield await asyncio.shield(opening)
        finally:
            opening.add_done_callback(self._close)

    def _close(self, opening: asyncio.Future[SnapshotReader]) -> None:
        self._reads -= 1
        if not opening.cancelled() and opening.exception() is None:
            opening.result().close()

    def _open_verified(self, request: snapshot_pb2.ReadSnapshotRequest) -> SnapshotReader:
        wanted = self._wanted(request)
        try:
            reader = self._snapshots.open(wanted)
        except StorageError:
            if wanted not in self._snapshots.ids():  # deleted at this moment
                raise _not_found(wanted) from None
            raise
        try:
            reader.verify()
        except BaseException:
            reader.close()
            raise
        return reader

    def _wanted(self, request: snapshot_pb2.ReadSnapshotRequest) -> OffsetAndEpoch:
        if not request.HasField("snapshot_id"):
            latest = self._snapshots.latest()
            if latest is None:
                raise ApiError(ErrorCode.SNAPSHOT_NOT_FOUND, "this node has no snapshot yet; have it take one")
            return latest
        point = request.snapshot_id
        if point.epoch < 0 or point.end_offset < 0:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"snapshot {point.end_offset}-{point.epoch} cannot exist; neither number is negative",
            )
        wanted = OffsetAndEpoch(epoch=Epoch(point.epoch), offset=Offset(point.end_offset))
        if wanted not in self._snapshots.ids():
            raise _not_found(wanted)
        return wanted

    def _describe_all(self) -> list[snapshot_pb2.Snapshot]:
        described = []
        for snapshot_id in self._snapshots.ids():
            try:
                described.append(self._describe(snapshot_id))
            except StorageError:  # damaged, or deleted since
                continue
        return described

    def _describe(self, snapshot_id: OffsetAndEpoch) -> snapshot_pb2.Snapshot:
        with self._snapshots.open(snapshot_id) as reader:
            return snapshot_pb2.Snapshot(
                snapshot_id=_point_to_proto(snapshot_id),
                size_bytes=reader.size_bytes,
                last_contained_log_timestamp=reader.header.last_contained_log_timestamp_ms,
                path=reader.path,
            )


def _told(error: StorageError) -> ApiError:
    code = ErrorCode.CORRUPT_MESSAGE if isinstance(error, CorruptSnapshot) else ErrorCode.KAFKA_STORAGE_ERROR
    return ApiError(code, str(error))


def _point_to_proto(point: OffsetAndEpoch) -> EpochEndOffset:
    return EpochEndOffset(epoch=point.epoch, end_offset=point.offset)


def _not_found(wanted: OffsetAndEpoch) -> ApiError:
    return ApiError(
        ErrorCode.SNAPSHOT_NOT_FOUND,
        f"this node has no snapshot with end offset {wanted.offset} and epoch {wanted.epoch}; list its snapshots",
    )


async def _taken(generator: SnapshotGenerator) -> TakenSnapshot:
    """A snapshot of at least everything applied now. Raises StorageError if it cannot be taken."""
    answer: asyncio.Future[TakenSnapshot] = asyncio.get_running_loop().create_future()

    def on_taken(taken: TakenSnapshot | None, error: BaseException | None) -> None:
        if answer.done():
            return  # the caller has left
        if taken is not None:
            answer.set_result(taken)
        else:
            answer.set_exception(error or StorageError("the snapshot could not be taken"))

    generator.take(on_taken)
    return await answer
