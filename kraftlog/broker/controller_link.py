"""The connections from a broker to the controller, on an event loop: one for the broker itself, one for a channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import OnDone
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.connection import describe_quorum
from kraftlog.broker.awaited_answers import AwaitedAnswers, call_back
from kraftlog.broker.controller_channel import failed
from kraftlog.broker.shell.ports import Answer, OnAnswer, OnResult
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from kraftpb.v1.quorum_pb2 import DescribeQuorumResponse
from raft.rpc import codec


class ControllerLink:
    """`ControllerPort` over an admin client. The caller must close the link; the client's owner closes the client."""

    def __init__(self, client: AdminClient, on_fatal: Callable[[BaseException], None]) -> None:
        """`on_fatal` is called with an exception that only a bug in the client can raise."""
        self._client = client
        self._answers = AwaitedAnswers(on_fatal)

    async def close(self) -> None:
        """Drop all unanswered requests, without calling back."""
        await self._answers.close()

    def ask(self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False) -> None:
        """Have the controller carry out an operation. The client's timeout applies if it is less than `timeout_ms`."""
        timeout_ms = min(timeout_ms, self._client.timeout_ms)
        self._answers.begin(_executed(self._client, operation, timeout_ms, retry_unknown), on_result)

    def find_cluster(self, on_found: OnAnswer[str]) -> None:
        """Ask for the id of the cluster."""
        self._answers.begin(self._client.cluster_id(), on_found)


class ChannelLink:
    """`ChannelPort` over an admin client, which its owner closes. A bug ends one request, not the broker."""

    def __init__(
        self, client: AdminClient, endpoints: Sequence[Endpoint], on_fatal: Callable[[BaseException], None]
    ) -> None:
        """`endpoints` are nodes of the cluster; `on_fatal` is called with the exception that a callback raises."""
        self._client = client
        self._endpoints = endpoints
        self._answers = AwaitedAnswers(on_fatal)

    def ask(self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False) -> None:
        """Have the controller carry out an operation."""
        self._answers.begin(_or_failed(_executed(self._client, operation, timeout_ms, retry_unknown)), on_result)

    def describe_quorum(self, timeout_ms: int, on_described: OnAnswer[DescribeQuorumResponse]) -> None:
        """Ask the leader for the state of the quorum."""
        self._answers.begin(_or_failed(self._described(timeout_ms)), on_described)

    async def _described(self, timeout_ms: int) -> DescribeQuorumResponse:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await describe_quorum(self._endpoints)
        except TimeoutError:
            said = f"the controller has not answered within {timeout_ms} ms"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, said) from None

    def close(self, on_closed: OnDone) -> None:
        """Drop all unanswered requests."""
        call_back(self._answers.close(), on_closed)


async def _executed(client: AdminClient, operation: Operation, timeout_ms: int, retry_unknown: bool) -> OperationResult:
    result = await client.execute(operation, timeout_ms=timeout_ms, retry_unknown=retry_unknown)
    if result.error_code:
        raise ApiError(codec.error_from_proto(result.error_code), result.error_message)
    return result


async def _or_failed(asking: Coroutine[Any, Any, Answer]) -> Answer:
    """Return the answer. Raises ApiError; for any other error, UNKNOWN_SERVER_ERROR."""
    try:
        return await asking
    except ApiError:
        raise
    except Exception as error:
        raise failed(error) from error
