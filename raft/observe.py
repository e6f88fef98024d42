"""Follow the committed log of a cluster from any program: `await observe("host:port", MyListener())`.

An observer here is a reader, not a replica: it keeps no log and does not count, except that the log's start waits for
it if it has a name (`observe`). It reads from any node that it was given or has learned of. When that node fails, is
silent, or is behind while another node is level, it continues with the other node, from the next offset of its
listener. When its listener is new or behind the log's start, the node sends the newest snapshot first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, CorruptSnapshot, ErrorCode
from kraftbase.logs import LibraryLogger
from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftbase.types import Offset
from kraftpb.v1 import log_pb2, log_pb2_grpc
from raft.core.types import Batch, LeaderAndEpoch
from raft.known_nodes import KnownNodes
from raft.listener import BatchReader, Listener, LoadSnapshotReader, can_load_snapshots
from raft.reader_contact import LeaveNode, ReaderContact
from raft.reader_lease import reader_lease
from raft.received_snapshot import SnapshotReceiver
from raft.rpc import codec
from raft.rpc.channels import channel_to
from raft.rpc.errors import ERROR_KEY
from raft.storage.batch import decode_batches
from snapshot.reader import SnapshotReader

RETRY_SECONDS_MIN: Final = 0.05
RETRY_SECONDS_MAX: Final = 2.0
DESCRIBE_TIMEOUT_SECONDS: Final = 2.0

LEASE_MS: Final = 30_000
"""How long the log's start waits for a named reader that no longer sends anything."""

_FOR_ANOTHER_NODE: Final = frozenset(
    {ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR}
)
"""On these errors, the node cannot serve the request now; another node may."""

logger = LibraryLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watched:
    """The content of one message of a watch stream."""

    batches: tuple[Batch, ...]
    high_watermark: Offset
    leader: LeaderAndEpoch
    snapshot: SnapshotReader | None = None
    """The snapshot replaces everything before its end; it is closed when the next message is requested."""


def parse_endpoint(text: str) -> Endpoint:
    """Return the endpoint that `host:port` or `[v6]:port` names; raises ValueError if the text is not an address."""
    host, separator, port = text.strip().rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not an address; give host:port, such as localhost:9092")
    return Endpoint(host.strip("[]"), int(port))


async def observe(
    addresses: str | Iterable[Endpoint],
    listener: Listener,
    *,
    start_offset: Offset | None = None,
    end_offset: Offset | None = None,
    cluster_id: str | None = None,
    name: str | None = None,
    lease_ms: int = LEASE_MS,
) -> Offset:
    """Feed `listener` every committed batch from the one that holds `start_offset`, by the contract in `raft.listener`.

    Without a `start_offset` the listener is new: it begins with the newest snapshot, if one exists and it can load it,
    else where the log starts. A snapshot is kept in a temporary directory while it is loaded.

    With a `name` the reader counts as a listener of the leader: the log's start waits for it, for at most
    `metadata.start.offset.lag.time.max.ms`, and `quorum describe` shows it. The reader holds a lease, which is renewed
    all the time; it expires after `lease_ms` when this program, or its event loop, stops. Of two readers with one name,
    the last to renew counts.

    `addresses` names one node or more: `"host:port,host:port"` or endpoints. Returns the offset after the last record
    read once everything below `end_offset` was read; without an `end_offset` it runs until it is cancelled. Raises
    ApiError OFFSET_OUT_OF_RANGE if the offset was deleted and the listener cannot load snapshots, or no node sends them
    because all are of an older version; INCONSISTENT_CLUSTER_ID if all addresses are of other clusters than
    `cluster_id`; INVALID_REQUEST for an invalid name; StorageError if there is no room for a snapshot. Nodes that
    cannot be reached are retried without end.
    """
    if isinstance(addresses, str):
        addresses = [parse_endpoint(address) for address in addresses.split(",")]
    addresses = list(addresses)
    next_offset = UNKNOWN_OFFSET if start_offset is None else start_offset
    announced: LeaderAndEpoch | None = None
    stream = watch(
        addresses,
        start_offset=start_offset,
        end_offset=end_offset,
        cluster_id=cluster_id,
        takes_snapshots=can_load_snapshots(listener),
    )
    lease: AbstractAsyncContextManager[None] = nullcontext()
    if name is not None:
        lease = reader_lease(addresses, name, lease_ms, lambda: next_offset, cluster_id)
    try:
        async with lease, aclosing(stream):
            async for watched in stream:
                if watched.snapshot is not None:
                    next_offset = await _load(listener, watched.snapshot)
                if watched.batches:
                    next_offset = await _deliver(listener, watched.batches)
                if watched.leader != announced and (announced is None or watched.leader.epoch >= announced.epoch):
                    announced = watched.leader
                    await listener.handle_leader_change(announced)
    finally:
        await listener.begin_shutdown()
    return max(next_offset, Offset(0))


async def _load(listener: Listener, snapshot: SnapshotReader) -> Offset:
    closed = asyncio.Event()
    reader = LoadSnapshotReader(snapshot, closed.set)
    await listener.handle_load_snapshot(reader)
    await closed.wait()
    return reader.end_offset


async def _deliver(listener: Listener, batches: tuple[Batch, ...]) -> Offset:
    closed = asyncio.Event()
    reader = BatchReader(batches, closed.set)
    await listener.handle_commit(reader)
    await closed.wait()
    return reader.end_offset


async def watch(
    endpoints: Iterable[Endpoint],
    *,
    start_offset: Offset | None = None,
    end_offset: Offset | None = None,
    cluster_id: str | None = None,
    takes_snapshots: bool = False,
    in_order: bool = False,
) -> AsyncGenerator[Watched, None]:
    """Committed batches and leaders, from whichever node answers; `observe` has the contract.

    `in_order`: the first address is tried first, not one chosen at random.

    Bounded by gRPC's flow control: at most one message is read ahead of the caller. Close it to remove the files of a
    snapshot.
    """
    nodes = KnownNodes(endpoints, in_order=in_order)
    contact = ReaderContact(nodes)
    cursor = _Cursor(start_offset, takes_snapshots)
    retry_seconds = RETRY_SECONDS_MIN
    while end_offset is None or cursor.next_offset is None or cursor.next_offset < end_offset:
        endpoint = nodes.next()
        try:
            async with channel_to(endpoint) as channel:
                stub = log_pb2_grpc.LogServiceStub(channel)
                node = await stub.DescribeNode(log_pb2.DescribeNodeRequest(), timeout=DESCRIBE_TIMEOUT_SECONDS)
                cluster_id = cluster_id or node.cluster_id  # another cluster may listen there after a restart
                if not nodes.learn(endpoint, node, cluster_id):
                    raise LeaveNode(f"it belongs to another cluster, {node.cluster_id}")
                await contact.check(node.leader_contact, endpoint, cluster_id)
                stream = stub.Watch(cursor.request(node, end_offset, cluster_id))
                with SnapshotReceiver(cluster_id) as receiver:
                    async for message in contact.messages(stream, endpoint, cluster_id):
                        retry_seconds = RETRY_SECONDS_MIN
                        watched = await cursor.take(message, receiver)
                        if watched is not None:
                            yield watched
        except grpc.aio.AioRpcError as error:
            cursor.raise_if_refused(error, nodes.count)
            logger.debug(
                "cannot follow the log on this node, trying another", node=str(endpoint), reason=error.details()
            )
        except LeaveNode as reason:
            logger.info("reader follows another node", left=str(endpoint), reason=str(reason))
            continue
        except CorruptSnapshot as error:
            logger.warning("a node sent no whole snapshot, trying the next one", node=str(endpoint), reason=str(error))
        else:
            continue
        await asyncio.sleep(retry_seconds * (1 + random.random()))  # noqa: S311 (jitter)
        retry_seconds = min(2 * retry_seconds, RETRY_SECONDS_MAX)


class _Cursor:
    """The position of a reader: its next request."""

    def __init__(self, start_offset: Offset | None, takes_snapshots: bool) -> None:
        self.next_offset = start_offset
        """None: the reader is new."""
        self._takes_snapshots = takes_snapshots
        self._refused_count = 0
        """How many nodes in a row answered that the offset was deleted, though the reader accepts snapshots."""

    def request(
        self, node: log_pb2.DescribeNodeResponse, end_offset: Offset | None, cluster_id: str
    ) -> log_pb2.WatchRequest:
        """The request to `node`. A new reader that accepts no snapshots begins where that node's log starts."""
        start_offset = self.next_offset
        if start_offset is None:
            start_offset = Offset(0) if self._takes_snapshots else Offset(node.log_start_offset)
        return log_pb2.WatchRequest(
            cluster_id=cluster_id,
            start_offset=start_offset,
            end_offset=end_offset,
            takes_snapshots=self._takes_snapshots,
            is_new=self.next_offset is None,
        )

    async def take(self, message: log_pb2.WatchResponse, receiver: SnapshotReceiver) -> Watched | None:
        """The content of the message; None for a piece of a snapshot that is not the last one.

        Raises ApiError CORRUPT_MESSAGE, or CorruptSnapshot, for data that was not requested.
        """
        self._refused_count = 0
        leader, _ = codec.leader_from_proto(message.current_leader)
        high_watermark = Offset(message.high_watermark)
        if message.HasField("snapshot_piece"):
            snapshot = await receiver.take(message.snapshot_piece)
            if snapshot is None:
                return None
            if snapshot.snapshot_id.offset <= (self.next_offset or 0):
                snapshot.close()
                raise CorruptSnapshot(f"{snapshot.snapshot_id} ends before offset {self.next_offset}, the next one")
            self.next_offset = snapshot.snapshot_id.offset
            return Watched((), high_watermark, leader, snapshot)
        batches = decode_batches(message.records) if message.records else ()
        if batches:
            self._check(batches[0])
            self.next_offset = batches[-1].end_offset
        return Watched(batches, high_watermark, leader)

    def _check(self, first: Batch) -> None:
        if self.next_offset is not None and not first.base_offset <= self.next_offset < first.end_offset:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"asked for offset {self.next_offset} and got {first.base_offset}; the node that answers is broken",
            )

    def raise_if_refused(self, error: grpc.aio.AioRpcError, node_count: int) -> None:
        """Raise the ApiError that a node has answered with, unless another node may have the offset."""
        for key, value in error.trailing_metadata() or ():
            if key == ERROR_KEY and isinstance(value, str):
                code = codec.error_from_proto(int(value))
                if code not in _FOR_ANOTHER_NODE and not (
                    code is ErrorCode.OFFSET_OUT_OF_RANGE and self._may_get(node_count)
                ):
                    raise ApiError(code, error.details() or "") from None

    def _may_get(self, node_count: int) -> bool:
        """Whether another node may have the offset that this one does not have.

        A new reader that accepts no snapshots requests the log's start, which may just have moved. A node that sends no
        snapshots is of an older version; another node may send them.
        """
        if not self._takes_snapshots:
            return self.next_offset is None
        self._refused_count += 1
        return self._refused_count < node_count
