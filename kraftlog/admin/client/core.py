"""The base of every call of the admin client: changes go to the leader, reads to any node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.node_reader import NodeReader, Request, Response, Select
from kraftlog.admin.client.operation_sender import OperationSender
from kraftpb.v1 import admin_pb2
from raft.rpc import codec

TIMEOUT_MS_DEFAULT: Final = 30_000


class ClientCore:
    """A client of one cluster, for one event loop, independent of the kinds of requests."""

    def __init__(
        self, bootstrap: Sequence[Endpoint], *, timeout_ms: int = TIMEOUT_MS_DEFAULT, client_id: str = ""
    ) -> None:
        """`bootstrap` names at least one node; `timeout_ms` is how long each call may take, retries included.

        The changes count against the mutation quota of `client_id` (CT-20).
        """
        if timeout_ms <= 0:
            raise ValueError(f"timeout_ms is {timeout_ms}; it must be above 0")
        self._timeout_ms = timeout_ms
        self._sender = OperationSender(bootstrap, client_id)
        self._reader = NodeReader(bootstrap)
        self._last_end_offset = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; pending calls, and all later ones, end with an error."""
        await self._sender.close()
        await self._reader.close()

    def when_disconnected(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the stream to the leader ends and this client did not end it."""
        self._sender.on_disconnected = callback

    @property
    def timeout_ms(self) -> int:
        """How long each call may take, retries included."""
        return self._timeout_ms

    async def change(self, operation: admin_pb2.Operation, timeout_ms: int | None = None) -> admin_pb2.OperationResult:
        """As `execute`, and raise ApiError if the operation was refused as a whole; its parts may still have errors."""
        result = await self.execute(operation, timeout_ms=self._at_most(timeout_ms))
        if result.error_code:
            raise ApiError(codec.error_from_proto(result.error_code), result.error_message)
        return result

    async def execute(
        self,
        operation: admin_pb2.Operation,
        *,
        retry: bool = True,
        retry_unknown: bool = False,
        timeout_ms: int | None = None,
    ) -> admin_pb2.OperationResult:
        """Have the leader carry out `operation` and return its answer, which may hold errors of its parts.

        With `retry`, an operation that was certainly not carried out is retried until the timeout; `retry_unknown` is
        for operations that are safe to repeat. Without `retry`, the answer to the only attempt is returned unchanged.
        Raises NotSent if no node could be reached, OutcomeUnknown if the operation may have been carried out.
        """
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        result = await self._sender.execute(operation, timeout_ms, retry=retry, retry_unknown=retry_unknown)
        if result.error_code == ErrorCode.NONE:
            self._last_end_offset = max(self._last_end_offset, _offset_to_see(operation, result))
        return result

    async def cluster_id(self) -> str:
        """The id of the cluster that this client talks to. Raises NotSent if its leader is not found."""
        return await self._sender.cluster_id(self._timeout_ms)

    @property
    def last_end_offset(self) -> int:
        """The end offset that this client's acknowledged operations depend on, or that it waited for; 0: none yet."""
        return self._last_end_offset

    async def wait_for(self, end_offset: int, *, at: Endpoint | None = None, timeout_ms: int | None = None) -> int:
        """Wait until a node has applied everything below `end_offset`; returns the end offset that it has applied.

        The node is the one `at`, or the one that answers this client's reads; later reads are at least that recent. The
        offset is an answered operation's `state_end_offset`, or its `end_offset` for what it wrote itself (-1, nothing,
        is no wait), or another client's `last_end_offset`. Raises ApiError: REQUEST_TIMED_OUT if the node does not
        reach it in time, BROKER_NOT_AVAILABLE if it does not answer.
        """
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        reader = self._reader if at is None else NodeReader([at])
        try:
            applied_end_offset = await reader.wait_for(end_offset, timeout_ms)
        finally:
            if reader is not self._reader:
                await reader.close()
        self._last_end_offset = max(self._last_end_offset, end_offset)
        return applied_end_offset

    async def read(self, select: Select[Response], request: Request, *, min_applied_end_offset: int = 0) -> Response:
        """A node's answer to `request`, a call that `select` picks. Raises ApiError."""
        request.consistency.CopyFrom(self._consistency(min_applied_end_offset))
        return await self._reader.read(select, request, self._timeout_ms)

    async def applied_end_offset(self, *, timeout_ms: int | None = None) -> int:
        """The end offset that the node which answers reads has applied. Raises ApiError.

        It may take `timeout_ms` if that is less than the client's.
        """
        request = admin_pb2.DescribeFeaturesRequest(consistency=self._consistency(0))
        remaining_ms = self._at_most(timeout_ms)
        response = await self._reader.read(lambda stub: stub.DescribeFeatures, request, remaining_ms)
        return response.applied_end_offset

    def _at_most(self, timeout_ms: int | None) -> int:
        """How long a call with this timeout may take; None: as long as any call of this client."""
        return self._timeout_ms if timeout_ms is None else min(timeout_ms, self._timeout_ms)

    def _consistency(self, min_applied_end_offset: int) -> admin_pb2.ReadConsistency:
        return admin_pb2.ReadConsistency(min_applied_end_offset=max(min_applied_end_offset, self._last_end_offset))


def _offset_to_see(operation: admin_pb2.Operation, result: admin_pb2.OperationResult) -> int:
    """The end offset that a node must have applied to show what was acknowledged.

    A heartbeat counts only what it changed. It reports the applied offset of the broker's node: if the next heartbeat
    had to wait until that node has reached the leader's offset of the last one, a broker whose node lags would send no
    heartbeat and be fenced.
    """
    is_heartbeat = operation.HasField("broker_heartbeat")
    return result.end_offset if is_heartbeat else max(result.end_offset, result.state_end_offset)
