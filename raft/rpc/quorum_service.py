"""Serves the quorum RPCs of one replica."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, TypeVar

import grpc
import grpc.aio

from kraftbase.checks import check
from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK, UNKNOWN_OFFSET
from kraftbase.types import Epoch, NodeId, Offset
from kraftpb.v1 import quorum_pb2, quorum_pb2_grpc
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
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch
from raft.rpc import codec
from raft.rpc.calls import answer_room

Message = TypeVar("Message")
Answer = TypeVar("Answer", bound=Response)
RpcContext: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class Answering(Protocol):
    """The part of a node that the service needs."""

    async def answer(self, request: Request) -> tuple[Response, bytes]:
        """The replica's answer, and the encoded batches or the snapshot's bytes that go with it."""
        ...

    @property
    def leader(self) -> tuple[LeaderAndEpoch, Endpoint | None]:
        """The leader, for answers that the replica does not give itself."""
        ...


class QuorumService(quorum_pb2_grpc.QuorumServiceServicer):
    """Decodes a request, passes it to the replica, and encodes the answer. INVALID_REQUEST if it cannot be decoded."""

    def __init__(
        self,
        node: Answering,
        cluster_id: str,
        for_clients: Callable[[NodeId | None, Endpoint | None], Endpoint | None] = lambda node_id, endpoint: endpoint,
    ) -> None:
        """`for_clients` returns the address at which clients reach a node, if replicas use another address."""
        self._for_clients = for_clients
        self._node = node
        self._cluster_id = cluster_id

    async def Vote(self, message: quorum_pb2.VoteRequest, context: RpcContext) -> quorum_pb2.VoteResponse:
        """Vote (52)."""
        response, _ = await self._answer(message, codec.vote_request_from_proto, VoteResponse)
        return codec.vote_response_to_proto(response)

    async def BeginQuorumEpoch(
        self, message: quorum_pb2.BeginQuorumEpochRequest, context: RpcContext
    ) -> quorum_pb2.BeginQuorumEpochResponse:
        """BeginQuorumEpoch (53)."""
        decode = codec.begin_quorum_epoch_request_from_proto
        response, _ = await self._answer(message, decode, BeginQuorumEpochResponse)
        return codec.begin_quorum_epoch_response_to_proto(response)

    async def EndQuorumEpoch(
        self, message: quorum_pb2.EndQuorumEpochRequest, context: RpcContext
    ) -> quorum_pb2.EndQuorumEpochResponse:
        """EndQuorumEpoch (54)."""
        decode = codec.end_quorum_epoch_request_from_proto
        response, _ = await self._answer(message, decode, EndQuorumEpochResponse)
        return codec.end_quorum_epoch_response_to_proto(response)

    async def Fetch(
        self, request_iterator: AsyncIterator[quorum_pb2.FetchRequest], context: RpcContext
    ) -> AsyncIterator[quorum_pb2.FetchResponse]:
        """Fetch (1): answers one request after the other until the replica ends the stream."""
        async for message in request_iterator:
            message.max_bytes = answer_room(message.max_bytes)
            yield await self._fetched(message)  # no reference to the response is kept while it is sent

    async def _fetched(self, message: quorum_pb2.FetchRequest) -> quorum_pb2.FetchResponse:
        response, records = await self._answer(
            message,
            codec.fetch_request_from_proto,
            FetchResponse,
            high_watermark=UNKNOWN_HIGH_WATERMARK,
            log_start_offset=UNKNOWN_OFFSET,
        )
        return codec.fetch_response_to_proto(message.correlation_id, response, records)

    async def FetchSnapshot(
        self, message: quorum_pb2.FetchSnapshotRequest, context: RpcContext
    ) -> quorum_pb2.FetchSnapshotResponse:
        """FetchSnapshot (59)."""
        wanted = OffsetAndEpoch(epoch=Epoch(message.snapshot_id.epoch), offset=Offset(message.snapshot_id.end_offset))
        decode = codec.fetch_snapshot_request_from_proto
        response, data = await self._answer(message, decode, FetchSnapshotResponse, snapshot_id=wanted)
        return codec.fetch_snapshot_response_to_proto(response, data)

    async def DescribeQuorum(
        self, message: quorum_pb2.DescribeQuorumRequest, context: RpcContext
    ) -> quorum_pb2.DescribeQuorumResponse:
        """DescribeQuorum (55)."""
        decode = codec.describe_quorum_request_from_proto
        response, _ = await self._answer(message, decode, DescribeQuorumResponse, high_watermark=UNKNOWN_HIGH_WATERMARK)
        endpoint = self._for_clients(response.leader.leader_id, response.leader_endpoint)
        response = replace(response, leader_endpoint=endpoint)
        epoch_of_clock_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000
        return codec.describe_quorum_response_to_proto(
            response, cluster_id=self._cluster_id, epoch_of_clock_ms=epoch_of_clock_ms
        )

    async def _answer(
        self, message: Message, decode: Callable[[Message], Request], kind: type[Answer], **unknown: object
    ) -> tuple[Answer, bytes]:
        """The replica's answer, or INVALID_REQUEST with the fields in `unknown` if the message cannot be decoded."""
        make: Callable[..., Answer] = kind
        try:
            request = decode(message)
        except ApiError as error:
            leader, endpoint = self._node.leader
            return make(error=error.code, leader=leader, leader_endpoint=endpoint, **unknown), b""
        response, records = await self._node.answer(request)
        check(isinstance(response, kind), "an answer has its request's kind", response=response)
        return response, records  # type: ignore[return-value]
