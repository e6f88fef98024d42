"""Serves the committed log of one node to its readers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Final

import grpc
import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftbase.types import NodeId, Offset
from kraftpb.v1 import log_pb2, log_pb2_grpc
from raft.commits import CommitFeed, Snapshots
from raft.core.messages import LogStartHolder
from raft.core.replica_view import ReplicaView
from raft.core.types import Batch, ReplicaKey
from raft.core.voters import VoterSet
from raft.rpc import codec
from raft.rpc.calls import answer_room
from raft.rpc.errors import abort
from raft.rpc.limits import ServiceLimits
from raft.rpc.reader_leases import ReaderLeases
from raft.rpc.sent_snapshot import SentSnapshot, SnapshotSender
from raft.storage.segmented_log import SegmentedLog

RESPONSE_BYTES_MAX: Final = 1024 * 1024
"""The size of one answer: about this many bytes, and at least one batch."""

CONTACT_SECONDS: Final = 1.0
"""How often a reader gets the time for which the node has been behind, when there is nothing else to send."""

PIECE_BYTES: Final = 256 * 1024
"""How many bytes of a snapshot one answer carries."""

MESSAGE_OVERHEAD_BYTES: Final = 1024
"""An upper bound of an answer's size without the records."""


class LogService(log_pb2_grpc.LogServiceServicer):
    """Streams committed batches as the encoded bytes that are in the log."""

    def __init__(
        self,
        *,
        log: SegmentedLog,
        feed: CommitFeed,
        snapshots: Snapshots,
        readers: ReaderLeases,
        replica: ReplicaView,
        cluster_id: str,
        key: ReplicaKey,
        voters: VoterSet,
        for_clients: Callable[[NodeId | None, Endpoint | None], Endpoint | None],
        applied_end_offset: Callable[[], Offset],
        listener_faults: Mapping[str, str],
        log_start_holders: Callable[[], tuple[LogStartHolder, ...]],
        on_fatal: Callable[[BaseException], None],
        behind_ms: Callable[[], int],
        limits: ServiceLimits | None = None,
    ) -> None:
        """`for_clients` returns the address at which clients reach a node, if replicas use another address.

        `applied_end_offset` returns the end of what this node's state machine has applied, `listener_faults` the failed
        listeners, `log_start_holders` the readers that hold the log's start back. `on_fatal` gets a failed read of the
        log. `behind_ms` returns for how long the node has not been level with a leader.
        """
        self._log = log
        self._feed = feed
        self._snapshots = SnapshotSender(snapshots, (limits or ServiceLimits()).snapshot_reads_max)
        self._readers = readers
        self._replica = replica
        self._cluster_id = cluster_id
        self._key = key
        self._voters = voters
        self._for_clients = for_clients
        self._applied_end_offset = applied_end_offset
        self._listener_faults = listener_faults
        self._log_start_holders = log_start_holders
        self._on_fatal = on_fatal
        self._behind_ms = behind_ms

    async def Watch(
        self,
        request: log_pb2.WatchRequest,
        context: grpc.aio.ServicerContext[log_pb2.WatchRequest, log_pb2.WatchResponse],
    ) -> AsyncIterator[log_pb2.WatchResponse]:
        """Committed batches from an offset on; gRPC's flow control adapts the stream to the reader's pace.

        A reader that accepts snapshots gets the newest one first if it is new, or behind the log's start (SN-60).
        """
        try:
            self._check_cluster(request)
            self._check_offset(request)
            async with aclosing(self._responses(request)) as responses:
                with suppress(StopAsyncIteration):
                    while True:  # nothing is kept of a response that is being sent
                        yield await anext(responses)
        except ApiError as error:
            await abort(context, error)

    def _check_cluster(self, request: log_pb2.WatchRequest | log_pb2.HoldLogStartRequest) -> None:
        if request.HasField("cluster_id") and request.cluster_id != self._cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this is cluster {self._cluster_id}, not {request.cluster_id[:64]}; check the address",
            )

    def _check_offset(self, request: log_pb2.WatchRequest) -> None:
        if request.start_offset < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"start offset {request.start_offset}; offsets start at 0")
        if request.start_offset < self._log.log_start_offset and not request.takes_snapshots:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {request.start_offset} was deleted; the log starts at {self._log.log_start_offset}: start"
                " there, or accept snapshots, as a listener that overrides handle_load_snapshot does",
            )

    async def _responses(self, request: log_pb2.WatchRequest) -> AsyncGenerator[log_pb2.WatchResponse]:
        is_new = request.is_new and request.takes_snapshots
        next_offset = UNKNOWN_OFFSET if is_new else Offset(request.start_offset)
        end_offset = Offset(request.end_offset) if request.HasField("end_offset") else None
        told: object = None
        while not self._feed.is_closed and (end_offset is None or next_offset < end_offset):
            version, committed = self._feed.version, self._feed.committed_end_offset
            if request.takes_snapshots and self._needs_snapshot(next_offset):
                async with self._snapshots.newest() as sent:
                    while sent is not None and not sent.is_done:
                        yield self._piece(sent)
                if sent is not None:
                    next_offset = sent.end_offset
                continue
            if next_offset == UNKNOWN_OFFSET and self._log.log_start_offset == 0:
                next_offset = Offset(request.start_offset)  # SN-61
            is_waiting_for_snapshot = request.takes_snapshots and next_offset < self._log.log_start_offset
            if next_offset >= committed or is_waiting_for_snapshot:
                state = (self._feed.leader, self._feed.leader_endpoint, committed)
                if state != told:
                    told = state
                    yield self._response(b"")
                await self._feed.wait(version, CONTACT_SECONDS)
                if self._feed.version == version:
                    yield self._response(b"")
                continue
            batches = list(self._read_batches(next_offset, committed))
            next_offset = batches[-1].end_offset
            told = (self._feed.leader, self._feed.leader_endpoint, next_offset)
            yield self._response(_taken(batches))

    def _needs_snapshot(self, next_offset: Offset) -> bool:
        """Whether a snapshot must be sent now; `next_offset` is -1 for a new reader (SN-60)."""
        is_behind = next_offset == UNKNOWN_OFFSET or next_offset < self._log.log_start_offset
        return is_behind and self._snapshots.has_any

    def _read_batches(self, start_offset: Offset, end_offset: Offset) -> tuple[Batch, ...]:
        size_bytes = answer_room(RESPONSE_BYTES_MAX) - MESSAGE_OVERHEAD_BYTES
        try:
            return self._log.read_batches(start_offset, size_bytes, end_offset)
        except ApiError:  # the offset was deleted, which is not a failure
            raise
        except BaseException as error:  # gRPC would report the error to the reader only
            self._on_fatal(error)
            raise

    def _piece(self, sent: SentSnapshot) -> log_pb2.WatchResponse:
        response = self._response(b"")
        response.snapshot_piece.CopyFrom(sent.next_piece(answer_room(PIECE_BYTES)))
        return response

    def _response(self, records: bytes) -> log_pb2.WatchResponse:
        return log_pb2.WatchResponse(
            records=records,
            high_watermark=self._feed.committed_end_offset,
            log_start_offset=self._log.log_start_offset,
            current_leader=codec.leader_to_proto(self._feed.leader, self._feed.leader_endpoint),
            leader_contact=self._leader_contact(),
        )

    def _leader_contact(self) -> log_pb2.LeaderContact:
        behind_max_ms = self._replica.config.readers_leave_after_ms
        return log_pb2.LeaderContact(behind_ms=self._behind_ms(), behind_max_ms=behind_max_ms)

    async def HoldLogStart(
        self,
        request: log_pb2.HoldLogStartRequest,
        context: grpc.aio.ServicerContext[log_pb2.HoldLogStartRequest, log_pb2.HoldLogStartResponse],
    ) -> log_pb2.HoldLogStartResponse:
        """Grant, renew or end a reader's lease; only the leader grants leases."""
        try:
            self._check_cluster(request)
            wanted_ms = request.lease_ms if self._replica.is_leader else min(request.lease_ms, 0)
            lease_ms = self._readers.hold(request.name, Offset(request.next_offset), wanted_ms)
        except ApiError as error:
            await abort(context, error)
            raise
        leader = codec.leader_to_proto(self._feed.leader, self._feed.leader_endpoint)
        return log_pb2.HoldLogStartResponse(lease_ms=lease_ms, current_leader=leader)

    async def DescribeNode(
        self,
        request: log_pb2.DescribeNodeRequest,
        context: grpc.aio.ServicerContext[log_pb2.DescribeNodeRequest, log_pb2.DescribeNodeResponse],
    ) -> log_pb2.DescribeNodeResponse:
        """Describe this node, and the voters that it knows."""
        replica = self._replica
        return log_pb2.DescribeNodeResponse(
            cluster_id=self._cluster_id,
            replica_key=codec.replica_key_to_proto(self._key),
            role=str(replica.role),
            is_voter=replica.is_voter,
            current_leader=codec.leader_to_proto(
                replica.leader_and_epoch,
                self._for_clients(replica.leader_and_epoch.leader_id, replica.leader_endpoint),
            ),
            high_watermark=replica.high_watermark,
            log_end_offset=replica.log_end_offset,
            log_start_offset=self._log.log_start_offset,
            applied_end_offset=self._applied_end_offset(),
            voters=[
                log_pb2.DescribeNodeResponse.ReplicaState(
                    replica_key=codec.replica_key_to_proto(voter.key),
                    endpoint=codec.endpoint_to_proto(
                        self._for_clients(voter.key.node_id, voter.endpoint) or voter.endpoint
                    ),
                )
                for voter in self._voters.voters()
            ],
            recovering=replica.is_recovering,
            listener_faults=[
                log_pb2.DescribeNodeResponse.ListenerFault(listener=name, error=error)
                for name, error in self._listener_faults.items()
            ],
            log_start_holders=map(codec.log_start_holder_to_proto, self._log_start_holders()),
            leader_contact=self._leader_contact(),
        )


def _taken(batches: list[Batch]) -> bytes:
    """Return the bytes of the batches and clear the list, because the reader may be slow."""
    data = b"".join(batch.data for batch in batches)
    batches.clear()
    return data
