"""Reads from any node: the first of the given addresses that answers, and then the same node for as long as it answers.
The first address is chosen at random, so that many clients with the same addresses spread over the nodes. If a node
does not apply the wanted offset in time, the next node is asked: the first may be cut off from the leader.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc
import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.channels import open_channel
from kraftlog.admin.client.operation_stream import ClientClosed, NotSent, given_up
from kraftlog.admin.client.retries import retrying
from kraftpb.v1 import admin_pb2, admin_pb2_grpc
from raft.rpc import codec
from raft.rpc.options import REQUEST_BYTES_MAX
from statemachine.words.limits import STATEMENT_SECONDS_MAX, STATEMENT_START_SECONDS_MAX

if TYPE_CHECKING:
    from kraftpb.v1.admin_pb2_grpc import AdminServiceAsyncStub

READ_SECONDS_MAX: Final = 5.0
"""How long one node may take before the next one is tried."""

QUERY_SECONDS_MAX: Final = READ_SECONDS_MAX + STATEMENT_START_SECONDS_MAX + STATEMENT_SECONDS_MAX
"""The same for an SQL statement: longer than a node lets one run, so that the node's own error arrives."""

WAIT_SHARE: Final = 0.9
"""The part of a read's time that the node may spend waiting for the wanted offset."""

_NEXT_NODE: Final = (
    grpc.StatusCode.CANCELLED,  # the node stops during the read; a read that is cancelled here is a CancelledError
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)

TOO_LARGE: Final = "larger than max"
"""The text of gRPC's RESOURCE_EXHAUSTED for a message that is too large; with another text, a node lacks a resource."""

READ_BYTES_MAX: Final = REQUEST_BYTES_MAX - 1024
"""How large a request may be, before the time that a node may wait is added."""

Request = TypeVar(
    "Request",
    admin_pb2.ListTopicsRequest,
    admin_pb2.DescribeTopicsRequest,
    admin_pb2.ListBrokersRequest,
    admin_pb2.DescribeConfigsRequest,
    admin_pb2.DescribeFeaturesRequest,
    admin_pb2.DescribeClientQuotasRequest,
    admin_pb2.DescribeAclsRequest,
    admin_pb2.ListPartitionReassignmentsRequest,
    admin_pb2.FindRemoteLogSegmentRequest,
    admin_pb2.ListRemoteLogSegmentsRequest,
    admin_pb2.QueryRequest,
)
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
    admin_pb2.QueryResponse,
)
Select = Callable[["AdminServiceAsyncStub"], Callable[..., Awaitable[Response]]]
"""Which call of a node to make. It takes the request, and its time limit in seconds as `timeout`."""


def query(stub: AdminServiceAsyncStub) -> Callable[..., Awaitable[admin_pb2.QueryResponse]]:
    """The call that runs a statement: all pieces of the answer joined."""

    async def ask(request: admin_pb2.QueryRequest, *, timeout: float) -> admin_pb2.QueryResponse:
        whole = admin_pb2.QueryResponse()
        async for piece in stub.Query(request, timeout=timeout):
            whole.MergeFrom(piece)
        return whole

    return ask


class NotApplied(ApiError):
    """The node that answered did not apply the wanted offset in time."""

    def __init__(self, code: ErrorCode, message: str, applied_end_offset: int = 0) -> None:
        super().__init__(code, message)
        self.applied_end_offset = applied_end_offset


class NodeReader:
    """Connections to the nodes, and which one is read from."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = list(dict.fromkeys(endpoints))
        self._turn = random.randrange(max(1, len(self._endpoints)))  # noqa: S311 (spreads load)
        self._is_closed = False
        self._channels: dict[Endpoint, grpc.aio.Channel] = {}

    async def read(self, select: Select[Response], request: Request, timeout_ms: int) -> Response:
        """The answer to `request`.

        Raises ApiError: the node's own, NotApplied among them; BROKER_NOT_AVAILABLE if no node answers, or the
        reader is closed meanwhile; REQUEST_TIMED_OUT if a query takes too long; RECORD_LIST_TOO_LARGE if request or
        answer fits no message.
        """
        if request.ByteSize() > READ_BYTES_MAX:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the request has {request.ByteSize()} bytes, at most {READ_BYTES_MAX} can be sent: request less at"
                " a time",
            )
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        response: Response = await retrying((NotSent,), deadline)(self._read_from_any, select, request, deadline)
        return response

    async def wait_for(self, end_offset: int, timeout_ms: int) -> int:
        """Wait until a node has applied everything below `end_offset`; returns the end offset that it has applied.

        Raises ApiError: REQUEST_TIMED_OUT if it does not reach it in time, BROKER_NOT_AVAILABLE if no node answers. The
        wait repeats a small read with that offset, since a single read waits only seconds.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + timeout_ms / 1000
        late: NotApplied | None = None
        while True:
            request = admin_pb2.DescribeFeaturesRequest(
                consistency=admin_pb2.ReadConsistency(min_applied_end_offset=max(0, end_offset))
            )
            remaining_ms = max(1, int((deadline - now()) * 1000))
            try:
                return (await self.read(lambda stub: stub.DescribeFeatures, request, remaining_ms)).applied_end_offset
            except NotApplied as error:
                late = error
                if now() < deadline:
                    continue
            except NotSent:
                if late is None:
                    raise
            # The node's own error, or a timeout, would be about the last read, which had hardly any time.
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"after {timeout_ms} ms the applied end offset of the node is {late.applied_end_offset}, below"
                f" {end_offset}; wait longer or ask another node",
            )

    async def close(self) -> None:
        """Close the connections; reads in progress end with an error, and so do later ones."""
        self._is_closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        await asyncio.gather(*(channel.close() for channel in channels))

    async def _read_from_any(self, select: Select[Response], request: Request, deadline: float) -> Response:
        is_query = isinstance(request, admin_pb2.QueryRequest)
        refusal: ApiError | None = None
        late: NotApplied | None = None
        first_turn = self._turn
        for turn in range(first_turn, first_turn + len(self._endpoints)):
            endpoint = self._endpoints[turn % len(self._endpoints)]
            remaining_seconds = deadline - asyncio.get_running_loop().time()
            seconds = max(0.001, min(remaining_seconds, QUERY_SECONDS_MAX if is_query else READ_SECONDS_MAX))
            request.consistency.wait_ms = int(min(seconds, READ_SECONDS_MAX) * WAIT_SHARE * 1000)
            if self._is_closed:
                raise ClientClosed
            try:
                response = await select(self._stub(endpoint))(request, timeout=seconds)
            except asyncio.CancelledError:
                if given_up():
                    raise
                raise ClientClosed from None  # its connection was closed
            except grpc.aio.AioRpcError as error:
                if is_query and error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._turn = turn + 1  # a node that hangs looks the same: the next query goes elsewhere
                    raise _took_too_long(endpoint, seconds) from None
                if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and TOO_LARGE in (error.details() or ""):
                    raise ApiError(
                        ErrorCode.RECORD_LIST_TOO_LARGE,
                        f"the answer is too large for one message ({endpoint}: {error.details()}), on every node:"
                        " request less at a time",
                    ) from None
                if error.code() not in _NEXT_NODE:
                    raise ApiError(
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                        f"{endpoint} failed with {error.code().name}: {error.details()}; see that node's log",
                    ) from None
                if turn == first_turn:
                    # If it hangs, the next read must not start with this node again.
                    self._turn = turn + 1
            else:
                code = codec.error_from_proto(response.error_code)
                if code is ErrorCode.REQUEST_TIMED_OUT and _is_late(request, response):
                    error_of_late = NotApplied(code, response.error_message, response.applied_end_offset)
                    late = max(late or error_of_late, error_of_late, key=lambda one: one.applied_end_offset)
                    self._turn = turn + 1
                elif code is ErrorCode.KAFKA_STORAGE_ERROR:
                    # Its database cannot be read, or is fenced because it differs: only this node is affected.
                    refusal = ApiError(code, f"{endpoint}: {response.error_message}")
                else:
                    self._turn = turn
                    return _checked(response)
        failure = late or refusal
        if failure is not None:
            raise failure
        addresses = ", ".join(map(str, self._endpoints))
        raise NotSent(
            ErrorCode.BROKER_NOT_AVAILABLE, f"no node answers at {addresses}; start the nodes or check the addresses"
        )

    def _stub(self, endpoint: Endpoint) -> Any:
        if endpoint not in self._channels:
            self._channels[endpoint] = open_channel(endpoint)
        return admin_pb2_grpc.AdminServiceStub(self._channels[endpoint])


def _is_late(request: admin_pb2.QueryRequest | Any, response: Any) -> bool:
    """Whether the node has not applied the wanted offset; else the read itself took too long."""
    return bool(response.applied_end_offset < request.consistency.min_applied_end_offset)


def _took_too_long(endpoint: Endpoint, seconds: float) -> ApiError:
    """For a query: the next node would take as long, and delay other clients' reads."""
    return ApiError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{endpoint} has not answered the query in {seconds:.3g} s; ask for less, give it more time, or ask elsewhere",
    )


def _checked(response: Response) -> Response:
    code = codec.error_from_proto(response.error_code)
    if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        raise NotSent(code, response.error_message)
    if code is ErrorCode.REQUEST_TIMED_OUT:
        raise NotApplied(code, response.error_message, response.applied_end_offset)
    if code is not ErrorCode.NONE:
        raise ApiError(code, response.error_message)
    return response
