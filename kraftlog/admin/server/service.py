"""Serves AdminService: operations go to the controller, reads to the store of the answering node. Nothing in a request
is trusted: an invalid request is answered INVALID_REQUEST, and no operation breaks a stream.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import grpc.aio
import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import awaited
from kraftbase.types import Offset
from kraftlog.admin.server.operation_stream_server import LARGE_BATCHES_MAX, OperationStreamServer
from kraftlog.controller.controller import Controller
from kraftpb.v1 import admin_pb2, admin_pb2_grpc
from raft.rpc.calls import charge_call, hold_answer
from statemachine.apply.machine import MetadataMachine
from statemachine.query import metadata_queries, reads
from statemachine.store.store import MetadataStore
from statemachine.words.limits import STATEMENT_SECONDS_MAX

WAIT_MS_MAX: Final = 60_000
"""The longest that a read may wait for an offset."""

RESULTS_MAX: Final = 200_000
"""The maximum of unread results of all streams together: each stream has its share, beyond which it reads no
operations.
"""


class ReadRequest(Protocol):
    """The fields of every read request."""

    @property
    def consistency(self) -> admin_pb2.ReadConsistency:
        """The offset that must be applied before the request is answered."""
        ...


Response = TypeVar(
    "Response",
    admin_pb2.ListTopicsResponse,
    admin_pb2.DescribeTopicsResponse,
    admin_pb2.ListBrokersResponse,
    admin_pb2.DescribeConfigsResponse,
    admin_pb2.DescribeFeaturesResponse,
    admin_pb2.DescribeClientQuotasResponse,
    admin_pb2.DescribeAclsResponse,
    admin_pb2.ListPartitionReassignmentsResponse,
    admin_pb2.FindRemoteLogSegmentResponse,
    admin_pb2.ListRemoteLogSegmentsResponse,
)
RpcContext = grpc.aio.ServicerContext[object, object]

logger = structlog.get_logger(__name__)


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """The admin service of one node."""

    def __init__(self, controller: Controller, store: MetadataStore, machine: MetadataMachine) -> None:
        self._controller = controller
        self._store = store
        self._machine = machine
        self._operation_streams = 0
        self._large_batches = asyncio.Semaphore(LARGE_BATCHES_MAX)

    async def Execute(
        self, request_iterator: AsyncIterator[admin_pb2.OperationBatch], context: RpcContext
    ) -> AsyncIterator[admin_pb2.OperationResultBatch]:
        """Operations in, results out as they come, until the client has no more and all are answered."""
        self._operation_streams += 1
        operations = OperationStreamServer(
            self._controller, lambda: RESULTS_MAX // self._operation_streams, self._large_batches
        )
        reading = asyncio.create_task(operations.read(request_iterator))
        by_peer = True
        try:
            while results := await operations.take():
                yield admin_pb2.OperationResultBatch(results=results)
            await reading
        except ApiError:
            by_peer = False
            raise
        finally:
            operations.ended(by_peer=by_peer)
            self._operation_streams -= 1
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def ListTopics(
        self, request: admin_pb2.ListTopicsRequest, context: RpcContext
    ) -> admin_pb2.ListTopicsResponse:
        """See `reads.list_topics`."""
        return await self._answer(request, admin_pb2.ListTopicsResponse, reads.list_topics)

    async def DescribeTopics(
        self, request: admin_pb2.DescribeTopicsRequest, context: RpcContext
    ) -> admin_pb2.DescribeTopicsResponse:
        """See `reads.describe_topics`."""
        return await self._answer(request, admin_pb2.DescribeTopicsResponse, reads.describe_topics)

    async def ListBrokers(
        self, request: admin_pb2.ListBrokersRequest, context: RpcContext
    ) -> admin_pb2.ListBrokersResponse:
        """See `reads.list_brokers`."""
        return await self._answer(request, admin_pb2.ListBrokersResponse, reads.list_brokers)

    async def DescribeConfigs(
        self, request: admin_pb2.DescribeConfigsRequest, context: RpcContext
    ) -> admin_pb2.DescribeConfigsResponse:
        """See `reads.describe_resource_configs`."""
        return await self._answer(request, admin_pb2.DescribeConfigsResponse, reads.describe_resource_configs)

    async def DescribeFeatures(
        self, request: admin_pb2.DescribeFeaturesRequest, context: RpcContext
    ) -> admin_pb2.DescribeFeaturesResponse:
        """See `reads.describe_features`."""
        return await self._answer(request, admin_pb2.DescribeFeaturesResponse, reads.describe_features)

    async def DescribeClientQuotas(
        self, request: admin_pb2.DescribeClientQuotasRequest, context: RpcContext
    ) -> admin_pb2.DescribeClientQuotasResponse:
        """See `reads.describe_client_quotas`."""
        return await self._answer(request, admin_pb2.DescribeClientQuotasResponse, reads.describe_client_quotas)

    async def DescribeAcls(
        self, request: admin_pb2.DescribeAclsRequest, context: RpcContext
    ) -> admin_pb2.DescribeAclsResponse:
        """See `reads.describe_acls`."""
        return await self._answer(request, admin_pb2.DescribeAclsResponse, reads.describe_acls)

    async def ListPartitionReassignments(
        self, request: admin_pb2.ListPartitionReassignmentsRequest, context: RpcContext
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        """See `reads.list_partition_reassignments`."""
        return await self._answer(
            request, admin_pb2.ListPartitionReassignmentsResponse, reads.list_partition_reassignments
        )

    async def FindRemoteLogSegment(
        self, request: admin_pb2.FindRemoteLogSegmentRequest, context: RpcContext
    ) -> admin_pb2.FindRemoteLogSegmentResponse:
        """See `reads.find_remote_log_segment`."""
        return await self._answer(request, admin_pb2.FindRemoteLogSegmentResponse, reads.find_remote_log_segment)

    async def ListRemoteLogSegments(
        self, request: admin_pb2.ListRemoteLogSegmentsRequest, context: RpcContext
    ) -> admin_pb2.ListRemoteLogSegmentsResponse:
        """See `reads.list_remote_log_segments`."""
        return await self._answer(request, admin_pb2.ListRemoteLogSegmentsResponse, reads.list_remote_log_segments)

    async def Query(
        self, request: admin_pb2.QueryRequest, context: RpcContext
    ) -> AsyncIterator[admin_pb2.QueryResponse]:
        """One read-only SQL statement; rows are sent in pieces. The query ends when its caller leaves, since other
        callers wait.
        """
        try:
            await self._wait(request.consistency)
            pieces = await self._store.run_statement(request.sql, STATEMENT_SECONDS_MAX)
            hold_answer(sum(piece.ByteSize() for piece in pieces))
            self._machine.refuse_if_fenced()
        except ApiError as error:
            pieces = [admin_pb2.QueryResponse(error_code=error.code, error_message=error.args[0])]
        pieces.reverse()
        while pieces:
            yield pieces.pop()

    async def _answer(
        self, request: ReadRequest, kind: type[Response], read: Callable[[sqlite3.Connection, Any], Response]
    ) -> Response:
        def read_with_offset(connection: sqlite3.Connection) -> tuple[Response, float]:
            started = time.thread_time()
            response = read(connection, request)
            response.applied_end_offset = metadata_queries.applied_end_offset(connection)
            return response, time.thread_time() - started

        try:
            await self._wait(request.consistency)
            response, seconds = await self._store.query(read_with_offset)
            charge_call(seconds)
            self._machine.refuse_if_fenced()  # the store may have been fenced while the query waited for its turn
            return response
        except ApiError as error:
            code, message = error.code, error.args[0]
        except sqlite3.Error as error:
            logger.error("a query failed", reason=str(error))
            code, message = ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata database cannot be read: {error}"
        return kind(error_code=code, error_message=message, applied_end_offset=self._machine.applied_end_offset)

    async def _wait(self, consistency: admin_pb2.ReadConsistency) -> None:
        if not 0 <= consistency.wait_ms <= WAIT_MS_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"wait_ms is {consistency.wait_ms}; it must be between 0 and {WAIT_MS_MAX}"
            )
        wanted, wait_ms = Offset(consistency.min_applied_end_offset), consistency.wait_ms
        await awaited(partial(self._machine.wait_applied, wanted, wait_ms))
