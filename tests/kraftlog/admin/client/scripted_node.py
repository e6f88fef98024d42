"""A server that answers operations as a test scripts it: for what a healthy cluster does only now and then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftlog.admin.server.operation_stream_server import joined
from kraftpb.v1 import admin_pb2, admin_pb2_grpc, common_pb2, log_pb2, log_pb2_grpc
from raft.rpc.options import SERVER_OPTIONS

Answer = admin_pb2.OperationResult | None
"""None: no answer."""
HANG_UP = object()
"""The stream breaks."""


def executed(end_offset: int = 1) -> admin_pb2.OperationResult:
    return admin_pb2.OperationResult(end_offset=end_offset)


def refused(
    code: ErrorCode, end_offset: int = -1, leader: Endpoint | None = None, message: str = "as the test says"
) -> admin_pb2.OperationResult:
    current = common_pb2.CurrentLeader(leader_id=-1)
    if leader is not None:
        current = common_pb2.CurrentLeader(
            leader_id=9, leader_epoch=1, leader_endpoint=common_pb2.Endpoint(host=leader.host, port=leader.port)
        )
    return admin_pb2.OperationResult(
        error_code=code, error_message=message, end_offset=end_offset, current_leader=current
    )


class ScriptedNode(admin_pb2_grpc.AdminServiceServicer, log_pb2_grpc.LogServiceServicer):
    """Answers each operation with the next of `script`, and after its end with the last one again."""

    def __init__(self) -> None:
        self.script: list[object] = [executed()]
        self.received: list[admin_pb2.Operation] = []
        self.messages = 0
        self.reads = 0
        self.listing: admin_pb2.ListTopicsResponse | None = None
        """Its answer to ListTopics; None: no topics, as of the offset in the request."""
        self.leader: Endpoint | None = None
        self.leader_epoch = 1
        self.cluster_id = ""
        self.node_id = 0
        """Its own id; a leader that it names has 1."""
        self.endpoint = Endpoint("", 0)
        self.hold: asyncio.Event | None = None
        """Before the first answer of each message, wait for this."""
        self.hold_reads: asyncio.Event | None = None
        """Before the answer to a read, wait for this."""
        self.reads = 0
        self.cancels_reads = False
        """Like a node that stops during a call."""
        self.on_receive: Callable[[], None] = lambda: None

    async def Execute(
        self,
        request_iterator: AsyncIterator[admin_pb2.OperationBatch],
        context: grpc.aio.ServicerContext[object, object],
    ) -> AsyncIterator[admin_pb2.OperationResultBatch]:
        async for message in request_iterator:
            batch = await joined(message, request_iterator) if message.piece else message
            self.messages += 1
            self.received.extend(batch.operations)
            self.on_receive()
            if self.hold is not None:
                await self.hold.wait()
            results = []
            for operation in batch.operations:
                answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                if answer is HANG_UP:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "the node fell over")
                if isinstance(answer, admin_pb2.OperationResult):
                    result = admin_pb2.OperationResult()
                    result.CopyFrom(answer)
                    result.correlation_id = operation.correlation_id
                    results.append(result)
            if results:
                yield admin_pb2.OperationResultBatch(results=results)

    async def ListTopics(
        self, request: admin_pb2.ListTopicsRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> admin_pb2.ListTopicsResponse:
        await self._read(context)
        if self.listing is not None:
            return self.listing
        return admin_pb2.ListTopicsResponse(applied_end_offset=request.consistency.min_applied_end_offset)

    async def Query(
        self, request: admin_pb2.QueryRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> AsyncIterator[admin_pb2.QueryResponse]:
        await self._read(context)
        yield admin_pb2.QueryResponse(columns=["node_id"])

    async def _read(self, context: grpc.aio.ServicerContext[object, object]) -> None:
        self.reads += 1
        if self.cancels_reads:
            await context.abort(grpc.StatusCode.CANCELLED, "CANCELLED")
        if self.hold_reads is not None:
            await self.hold_reads.wait()

    async def DescribeNode(
        self, request: log_pb2.DescribeNodeRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> log_pb2.DescribeNodeResponse:
        current = common_pb2.CurrentLeader(leader_id=-1)
        if self.leader is not None:
            current = common_pb2.CurrentLeader(
                leader_id=1,
                leader_epoch=self.leader_epoch,
                leader_endpoint=common_pb2.Endpoint(host=self.leader.host, port=self.leader.port),
            )
        return log_pb2.DescribeNodeResponse(
            cluster_id=self.cluster_id,
            replica_key=common_pb2.ReplicaKey(node_id=self.node_id),
            current_leader=current,
        )


@contextlib.asynccontextmanager
async def scripted_nodes(count: int = 1) -> AsyncIterator[Sequence[ScriptedNode]]:
    """Some nodes on loopback, of which each names the first one as the leader."""
    nodes = [ScriptedNode() for _ in range(count)]  # type: ignore[abstract]
    async with contextlib.AsyncExitStack() as stack:
        for node in nodes:
            server = grpc.aio.server(options=SERVER_OPTIONS)
            admin_pb2_grpc.add_AdminServiceServicer_to_server(node, server)
            log_pb2_grpc.add_LogServiceServicer_to_server(node, server)
            node.endpoint = Endpoint("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
            await server.start()
            stack.push_async_callback(server.stop, None)
        for node in nodes:
            node.leader = nodes[0].endpoint
        yield nodes
