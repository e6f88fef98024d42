"""Sends operations to the leader over one stream: finds it, follows it when it changes, and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.channels import open_channel
from kraftlog.admin.client.leader_finder import LeaderFinder
from kraftlog.admin.client.operation_stream import ClientClosed, NotSent, OperationStream, OutcomeUnknown, given_up
from kraftlog.admin.client.retries import retrying
from kraftpb.v1 import admin_pb2
from raft.rpc import codec
from statemachine.words.limits import NOTHING_WRITTEN, OPERATION_TIMEOUT_MS_MAX

_NOT_CARRIED_OUT: Final = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""Answers after which the operation may have been carried out, unless they state that nothing was written."""


class OperationSender:
    """The sender of one client. For one event loop; close it."""

    def __init__(self, bootstrap: Sequence[Endpoint], client_id: str) -> None:
        self._client_id = client_id
        self._finder = LeaderFinder(bootstrap)
        self._stream: OperationStream | None = None
        self._retired: set[OperationStream] = set()
        self._last_failure: NotSent | None = None
        """Why the last search for the leader failed."""
        self._connecting: asyncio.Task[OperationStream] | None = None
        self._is_closed = False
        self.on_disconnected: Callable[[], None] = lambda: None
        """Called when the stream in use has ended, and this side did not end it."""

    async def close(self) -> None:
        """Close every stream; pending operations, and all later ones, end with an error."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        streams = [*self._retired, *([self._stream] if self._stream is not None else [])]
        self._retired.clear()
        self._stream = None
        await asyncio.gather(*(stream.close() for stream in streams))

    async def cluster_id(self, timeout_ms: int) -> str:
        """The id of the leader's cluster. Raises NotSent if no leader is found."""
        await self._leader_stream(asyncio.get_running_loop().time() + timeout_ms / 1000)
        return self._finder.cluster_id

    async def execute(
        self, operation: admin_pb2.Operation, timeout_ms: int, *, retry: bool, retry_unknown: bool
    ) -> admin_pb2.OperationResult:
        """Send `operation` to the leader, which carries it out: see `AdminClient.execute`."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        if not retry:
            return await self._attempt(operation, deadline)
        kinds = (NotSent, OutcomeUnknown) if retry_unknown else (NotSent,)
        try:
            return _known(await self._attempt(operation, deadline))  # the usual case, without the retry's machinery
        except ClientClosed:
            raise
        except kinds:
            pass
        try:
            return await retrying(kinds, deadline)(self._attempt_again, operation, deadline)
        except ClientClosed:
            raise
        except kinds as error:
            raise _gave_up(error, timeout_ms) from None

    async def _attempt_again(self, operation: admin_pb2.Operation, deadline: float) -> admin_pb2.OperationResult:
        return _known(await self._attempt(operation, deadline))

    async def _attempt(self, operation: admin_pb2.Operation, deadline: float) -> admin_pb2.OperationResult:
        stream = await self._leader_stream(deadline)
        remaining_ms = int((deadline - asyncio.get_running_loop().time()) * 1000)
        result = await stream.execute(operation, max(1, min(remaining_ms, OPERATION_TIMEOUT_MS_MAX)))
        if result.error_code == ErrorCode.NOT_CONTROLLER:
            self._follow(stream, result)
        return result

    async def _leader_stream(self, deadline: float) -> OperationStream:
        """The open stream, or a new one. Raises NotSent. Callers that arrive during a search share it."""
        if self._is_closed:
            raise ClientClosed
        if self._stream is not None and self._stream.is_open:
            return self._stream
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(_retrieve)
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(self._connecting)
        except TimeoutError:
            raise self._last_failure or NotSent(ErrorCode.LEADER_NOT_AVAILABLE, "no leader was found in time") from None
        except asyncio.CancelledError:
            if given_up():
                raise
            raise ClientClosed from None  # the search was cancelled

    async def _connect(self) -> OperationStream:
        self._retire_stream()
        try:
            endpoint = await self._finder.find()
            self._stream = await OperationStream.open(endpoint, open_channel(endpoint), self._client_id)
            self._stream.when_finished(self._finished)
        except NotSent as error:
            self._last_failure = error
            raise
        self._last_failure = None
        return self._stream

    def _follow(self, stream: OperationStream, result: admin_pb2.OperationResult) -> None:
        """Follow the hint of a node that does not lead. If the node names itself it will soon lead: keep the stream."""
        leader = result.current_leader
        if codec.endpoint_to_proto(stream.endpoint) == leader.leader_endpoint:
            return
        self._finder.learn(leader)
        if stream is self._stream:
            self._retire_stream()

    def _finished(self, stream: OperationStream) -> None:
        if stream is self._stream and not self._is_closed:
            self.on_disconnected()

    def _retire_stream(self) -> None:
        self._retired = {stream for stream in self._retired if not stream.is_finished}
        if self._stream is not None:
            self._stream.retire()
            self._retired.add(self._stream)
            self._stream = None


def _retrieve(search: asyncio.Task[OperationStream]) -> None:
    """If the caller that waited for the search was cancelled, a failure of the search needs no warning."""
    if not search.cancelled():
        search.exception()


def _known(result: admin_pb2.OperationResult) -> admin_pb2.OperationResult:
    """`result`, unless the operation was refused for now (NotSent) or its outcome is open."""
    code = codec.error_from_proto(result.error_code)
    if code not in _NOT_CARRIED_OUT:
        return result
    if result.end_offset == NOTHING_WRITTEN:
        raise NotSent(code, result.error_message)
    raise OutcomeUnknown(code, result.error_message)


def _gave_up(error: ApiError, timeout_ms: int) -> ApiError:
    return type(error)(error.code, f"{error.args[0]} (gave up after {timeout_ms} ms)")
