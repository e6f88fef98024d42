"""How fast a replica fetches a snapshot from the leader, in the pieces that it requests.

The benchmark sends the node's FetchSnapshot requests, each after the previous piece is processed, as a replica does. It
measures twice: with the bytes discarded, which is the time of the leader and the connection; and with the bytes passed
to `IncomingSnapshot`, which checks and writes them and makes the file durable, as in a replica.

The leader reads the whole snapshot before it sends its first byte, once in the life of its process. This time is not
part of the transfer, and has a separate figure.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Epoch, NodeId
from kraftlog.admin.client.connection import connect
from kraftlog.local.cluster import LocalCluster
from kraftpb.v1 import quorum_pb2, quorum_pb2_grpc
from raft.core.messages import FetchSnapshotRequest
from raft.core.types import OffsetAndEpoch
from raft.rpc import codec
from snapshot.incoming import IncomingSnapshot

if TYPE_CHECKING:
    from kraftpb.v1.quorum_pb2_grpc import QuorumServiceAsyncStub

ROUNDS: Final = 3
TIMEOUT_SECONDS: Final = 60.0

Take = Callable[[bytes], Awaitable[None]]


class SnapshotFetcher:
    """Fetches one snapshot from one leader. It is not a replica, so the leader does not track it."""

    def __init__(
        self,
        stub: QuorumServiceAsyncStub,
        cluster_id: str,
        leader_epoch: Epoch,
        snapshot_id: OffsetAndEpoch,
        piece_bytes: int,
    ) -> None:
        self._stub = stub
        self._cluster_id = cluster_id
        self._leader_epoch = leader_epoch
        self._snapshot_id = snapshot_id
        self._piece_bytes = piece_bytes

    async def fetch(self, take: Take) -> tuple[int, int]:
        """Fetch the snapshot piece by piece; return the number of bytes and of pieces. Raises ApiError."""
        position = pieces = 0
        size: int | None = None
        while size is None or position < size:
            response = await self.ask(position, self._piece_bytes)
            await take(response.unaligned_records)
            position += len(response.unaligned_records)
            pieces += 1
            size = response.size
        return position, pieces

    async def ask(self, position: int, max_bytes: int) -> quorum_pb2.FetchSnapshotResponse:
        """Fetch one piece. Raises ApiError for an error in the response, or if it is empty."""
        request = FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_key=None,
            current_leader_epoch=self._leader_epoch,
            snapshot_id=self._snapshot_id,
            position=position,
            max_bytes=max_bytes,
        )
        response = await self._stub.FetchSnapshot(
            codec.fetch_snapshot_request_to_proto(request), timeout=TIMEOUT_SECONDS
        )
        code = codec.error_from_proto(response.error_code)
        if code is ErrorCode.NONE and not response.unaligned_records:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"the leader does not send the snapshot {self._snapshot_id} from byte {position} on")
        return response


async def measure_transfer(cluster: LocalCluster, leader: NodeId, snapshot_id: OffsetAndEpoch) -> dict[str, Any]:
    """Fetch the leader's snapshot several times each way, and return the medians."""
    node = await cluster.describe(leader)
    piece_bytes = cluster.directory.load_configs()[leader].quorum.fetch_snapshot_max_bytes
    async with connect(cluster.endpoint(leader)) as channel:
        fetcher = SnapshotFetcher(
            quorum_pb2_grpc.QuorumServiceStub(channel),
            cluster.cluster_id,
            Epoch(node.current_leader.leader_epoch),
            snapshot_id,
            piece_bytes,
        )
        started = time.monotonic()
        await fetcher.ask(0, 1)
        read_through_seconds = time.monotonic() - started
        discarding, receiving = [], []
        byte_count = pieces = 0
        for _ in range(ROUNDS):
            started = time.monotonic()
            byte_count, pieces = await fetcher.fetch(_discard)
            discarding.append(time.monotonic() - started)
            receiving.append(await _receive(cluster, fetcher, snapshot_id))
    return {
        "bytes": byte_count,
        "pieces": pieces,
        "piece_bytes": piece_bytes,
        "read_through_by_leader_seconds": round(read_through_seconds, 3),
        "discarded_mb_per_second": _mb_per_second(byte_count, discarding),
        "received_mb_per_second": _mb_per_second(byte_count, receiving),
    }


async def _discard(_: bytes) -> None:
    """Discards the bytes."""


async def _receive(cluster: LocalCluster, fetcher: SnapshotFetcher, snapshot_id: OffsetAndEpoch) -> float:
    """Return the seconds until the snapshot is checked and durable, on the disk that the nodes use."""
    with tempfile.TemporaryDirectory(dir=cluster.directory.path, prefix="received-") as directory:
        started = time.monotonic()
        with closing(
            IncomingSnapshot(PosixFileSystem(), str(Path(directory)), snapshot_id, cluster.cluster_id, "0")
        ) as incoming:

            async def take(data: bytes) -> None:
                await asyncio.to_thread(incoming.append, data)

            await fetcher.fetch(take)
            await asyncio.to_thread(incoming.freeze)
            return time.monotonic() - started


def _mb_per_second(byte_count: int, seconds: list[float]) -> float:
    return round(byte_count / 1e6 / statistics.median(seconds), 1)
