"""Serves the quorum RPCs of one replica."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

import grpc
import grpc.aio

from kraftpb.v1 import quorum_pb2, quorum_pb2_grpc
from raft.core.errors import ErrorCode, ProtocolError
from raft.core.messages import (
    BeginQuorumEpochResponse,
    DescribeQuorumResponse,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    Request,
    Response,
    VoteResponse,
)
from raft.core.types import UNKNOWN_HIGH_WATERMARK, Endpoint, Epoch, LeaderAndEpoch, Offset, OffsetAndEpoch
from raft.rpc import codec

ResponseT = TypeVar("ResponseT", bound=Response)


class Answering(Protocol):
    """What the service needs of a node."""

    async def answer(self, request: Request) -> tuple[Response, bytes]:
        """The replica's answer and the encoded batches that go with it."""
        ...

    @property
    def leader(self) -> tuple[LeaderAndEpoch, Endpoint | None]:
        """Who leads, for answers that the replica is not asked for."""
        ...


class QuorumService(quorum_pb2_grpc.QuorumServiceServicer):
    """Decodes, asks the replica, encodes. A request that cannot be decoded is answered INVALID_REQUEST."""

    def __init__(self, node: Answering, cluster_id: str) -> None:
        self._node = node
        self._cluster_id = cluster_id

    async def Vote(
        self, message: quorum_pb2.VoteRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> quorum_pb2.VoteResponse:
        """Vote (52)."""
        try:
            response, _ = await self._ask(lambda: codec.vote_request_from_proto(message), VoteResponse)
        except ProtocolError as error:
            leader, endpoint = self._node.leader
            response = VoteResponse(error=error.code, leader=leader, leader_endpoint=endpoint)
        return codec.vote_response_to_proto(response)

    async def BeginQuorumEpoch(
        self, message: quorum_pb2.BeginQuorumEpochRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> quorum_pb2.BeginQuorumEpochResponse:
        """BeginQuorumEpoch (53)."""
        try:
            response, _ = await self._ask(
                lambda: codec.begin_quorum_epoch_request_from_proto(message), BeginQuorumEpochResponse
            )
        except ProtocolError as error:
            leader, endpoint = self._node.leader
            response = BeginQuorumEpochResponse(error=error.code, leader=leader, leader_endpoint=endpoint)
        return codec.begin_quorum_epoch_response_to_proto(response)

    async def EndQuorumEpoch(
        self, message: quorum_pb2.EndQuorumEpochRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> quorum_pb2.EndQuorumEpochResponse:
        """EndQuorumEpoch (54)."""
        try:
            response, _ = await self._ask(
                lambda: codec.end_quorum_epoch_request_from_proto(message), EndQuorumEpochResponse
            )
        except ProtocolError as error:
            leader, endpoint = self._node.leader
            response = EndQuorumEpochResponse(error=error.code, leader=leader, leader_endpoint=endpoint)
        return codec.end_quorum_epoch_response_to_proto(response)

    async def Fetch(
        self,
        request_iterator: AsyncIterator[quorum_pb2.FetchRequest],
        context: grpc.aio.ServicerContext[quorum_pb2.FetchRequest, quorum_pb2.FetchResponse],
    ) -> AsyncIterator[quorum_pb2.FetchResponse]:
        """Fetch (1): answers one request after the other until the replica ends the stream."""
        async for message in request_iterator:
            yield await self._fetch(message)

    async def _fetch(self, message: quorum_pb2.FetchRequest) -> quorum_pb2.FetchResponse:
        try:
            response, records = await self._ask(lambda: codec.fetch_request_from_proto(message), FetchResponse)
        except ProtocolError as error:
            leader, endpoint = self._node.leader
            records = b""
            response = FetchResponse(
                error=error.code,
                leader=leader,
                leader_endpoint=endpoint,
                high_watermark=UNKNOWN_HIGH_WATERMARK,
                log_start_offset=Offset(-1),
            )
        return codec.fetch_response_to_proto(message.correlation_id, response, records)

    async def FetchSnapshot(
        self, message: quorum_pb2.FetchSnapshotRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> quorum_pb2.FetchSnapshotResponse:
        """FetchSnapshot (59)."""
        try:
            response, _ = await self._ask(
                lambda: codec.fetch_snapshot_request_from_proto(message), FetchSnapshotResponse
            )
        except ProtocolError as error:
            leader, endpoint = self._node.leader
            wanted = OffsetAndEpoch(
                epoch=Epoch(message.snapshot_id.epoch), offset=Offset(message.snapshot_id.end_offset)
            )
            response = FetchSnapshotResponse(
                error=error.code, leader=leader, leader_endpoint=endpoint, snapshot_id=wanted
            )
        return codec.fetch_snapshot_response_to_proto(response)

    async def DescribeQuorum(
        self, message: quorum_pb2.DescribeQuorumRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> quorum_pb2.DescribeQuorumResponse:
        """DescribeQuorum (55)."""
        response, _ = await self._ask(lambda: codec.describe_quorum_request_from_proto(message), DescribeQuorumResponse)
        epoch_of_clock_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000
        return codec.describe_quorum_response_to_proto(
            response, cluster_id=self._cluster_id, epoch_of_clock_ms=epoch_of_clock_ms
        )

    async def _ask(self, decode: Callable[[], Request], kind: type[ResponseT]) -> tuple[ResponseT, bytes]:
        response, records = await self._node.answer(decode())
        if not isinstance(response, kind):
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the replica answered with {type(response).__name__}")
        return response, records
