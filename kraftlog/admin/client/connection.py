"""Calls to a cluster from outside: the address of any node is enough, the leader is found from there.

Reads that only the leader answers go to the leader named by the node that knows the highest epoch. All nodes are asked,
since a node that is cut off knows no leader, or an old one. This is repeated for a bounded time, with jitter
(tenacity). A connection error is raised as ApiError with Kafka's name for it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import grpc
import grpc.aio
import tenacity

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.leader_finder import LeaderFinder
from kraftlog.admin.client.operation_stream import NotSent
from kraftlog.admin.client.time_limit import allowed_call_seconds, allowed_seconds
from kraftpb.v1 import log_pb2, log_pb2_grpc, quorum_pb2, quorum_pb2_grpc
from raft.rpc import codec
from raft.rpc.channels import channel_to
from raft.rpc.errors import ERROR_KEY
from raft.rpc.options import CHANNEL_OPTIONS

CALL_TIMEOUT_SECONDS: Final = 2.0

LEADER_TIMEOUT_SECONDS: Final = 5.0
"""How long to search for a leader that describes the quorum."""

LOCAL_CHANNEL_OPTIONS: Final = (*CHANNEL_OPTIONS, ("grpc.max_reconnect_backoff_ms", 200))
"""For clients outside the cluster: they reconnect soon to a node that is just restarting."""

Response = TypeVar("Response")

_ERROR_NUMBER: Final = re.compile(r"[0-9]{1,5}")
_NO_LEADER_YET: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)


@asynccontextmanager
async def connect(endpoint: Endpoint) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a node, closed after the block. A failed call within it raises ApiError."""
    async with channel_to(endpoint, LOCAL_CHANNEL_OPTIONS) as channel:
        try:
            yield channel
        except grpc.aio.AioRpcError as error:
            raise connection_error(endpoint, error) from None


def connection_error(endpoint: Endpoint, error: grpc.aio.AioRpcError) -> ApiError:
    """The ApiError for a failed call: Kafka's error if the node names one, else the error of gRPC."""
    named = _named_error(error)
    if named is not None:
        return ApiError(named, f"{endpoint} says: {error.details()}")
    if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT, f"{endpoint} did not answer in time; check that it runs and is not overloaded"
        )
    if error.code() == grpc.StatusCode.UNAVAILABLE:
        return ApiError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"no node can be reached at {endpoint}; start the node or check the address"
        )
    if error.code() == grpc.StatusCode.CANCELLED:  # a call that is cancelled here is a CancelledError
        return ApiError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"{endpoint} stopped during the call; try again, or ask another node"
        )
    if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return ApiError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{endpoint} has no room: {error.details()}; try again later"
        )
    return ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"{endpoint} failed with {error.code().name}: {error.details()}; see that node's log",
    )


def _named_error(error: grpc.aio.AioRpcError) -> ErrorCode | None:
    """Kafka's error with which the call ended, None if it has none."""
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_KEY and isinstance(value, str) and _ERROR_NUMBER.fullmatch(value):
            return codec.error_from_proto(int(value))
    return None


async def describe_node(
    endpoint: Endpoint, *, timeout_seconds: float | None = None, wait_for_ready: bool = False
) -> log_pb2.DescribeNodeResponse:
    """The node's description of itself. With `wait_for_ready`, wait for a node to listen. Without `timeout_seconds` the
    call has the usual limit.
    """
    if timeout_seconds is None:
        timeout_seconds = allowed_call_seconds(CALL_TIMEOUT_SECONDS)
    async with connect(endpoint) as channel:
        stub = log_pb2_grpc.LogServiceStub(channel)
        return await stub.DescribeNode(
            log_pb2.DescribeNodeRequest(), timeout=timeout_seconds, wait_for_ready=wait_for_ready
        )


async def describe_any(endpoints: Sequence[Endpoint]) -> log_pb2.DescribeNodeResponse:
    """The description of the first node that answers."""
    return await _first(endpoints, describe_node)


async def first_that_answers(endpoints: Sequence[Endpoint]) -> Endpoint:
    """The first of the nodes that answers. Raises ApiError: BROKER_NOT_AVAILABLE if none does."""

    async def ask(endpoint: Endpoint) -> Endpoint:
        await describe_node(endpoint)
        return endpoint

    return await _first(endpoints, ask)


async def describe_quorum(endpoints: Sequence[Endpoint]) -> quorum_pb2.DescribeQuorumResponse:
    """The leader's description of the quorum, whichever nodes `endpoints` names.

    Raises ApiError: BROKER_NOT_AVAILABLE if no node answers, LEADER_NOT_AVAILABLE if there is no leader in time.
    """
    finder = LeaderFinder(endpoints)
    async for attempt in tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(_may_find_leader_later),
        wait=tenacity.wait_random(0.05, 0.2),
        stop=tenacity.stop_after_delay(allowed_seconds(LEADER_TIMEOUT_SECONDS)),
        reraise=True,
    ):
        with attempt:
            return await _describe_from_leader(finder)
    raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "no node leads; check that a majority of the voters runs")


def _may_find_leader_later(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.code in _NO_LEADER_YET


async def _describe_from_leader(finder: LeaderFinder) -> quorum_pb2.DescribeQuorumResponse:
    return await quorum_as_seen_by(await find_leader(finder))


async def quorum_as_seen_by(leader: Endpoint) -> quorum_pb2.DescribeQuorumResponse:
    """The quorum as the node there, the leader, describes it. Raises ApiError if it does not lead or answer."""
    try:
        async with connect(leader) as channel:
            stub = quorum_pb2_grpc.QuorumServiceStub(channel)
            response = await stub.DescribeQuorum(
                quorum_pb2.DescribeQuorumRequest(), timeout=allowed_call_seconds(CALL_TIMEOUT_SECONDS)
            )
    except ApiError as error:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"the leader is out of reach: {error.args[0]}") from None
    code = codec.error_from_proto(response.error_code)
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{leader} no longer leads; try again")
    return response


async def find_leader(finder: LeaderFinder) -> Endpoint:
    """The leader's address, from the node that knows the highest epoch.

    Raises ApiError: LEADER_NOT_AVAILABLE if none is known, else why no node answers.
    """
    try:
        return await finder.find()
    except NotSent as error:
        if error.code is not ErrorCode.LEADER_NOT_AVAILABLE:
            await describe_any(finder.bootstrap)  # raises the reason, such as that the only node has no room
        raise


async def _first(endpoints: Sequence[Endpoint], ask: Callable[[Endpoint], Awaitable[Response]]) -> Response:
    errors = []
    for endpoint in endpoints:
        try:
            return await ask(endpoint)
        except ApiError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    addresses = ", ".join(map(str, endpoints))
    raise ApiError(
        ErrorCode.BROKER_NOT_AVAILABLE, f"none of {addresses} answers; start the nodes or check the addresses"
    )
