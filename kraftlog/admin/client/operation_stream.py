"""A client's stream of operations to one node. All pending operations are sent as one message (natural batching).

For each operation that gets no answer the stream knows whether it was sent: after NotSent it may be retried, after
OutcomeUnknown it may have been carried out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import grpc
import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftpb.v1 import admin_pb2, admin_pb2_grpc
from raft.rpc.call_end import CallEnd
from raft.rpc.errors import ERROR_KEY
from raft.rpc.options import MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX

CONNECT_TIMEOUT_SECONDS: Final = 2.0
STALL_SECONDS: Final = 3.0
"""A node with pending answers that gives none for this long may hang: new operations use another stream."""

ANSWER_GRACE_SECONDS: Final = 0.5
"""How much longer than the node the client waits, so that the node's own answer arrives."""

MESSAGE_BYTES_SOFT_MAX: Final = REQUEST_BYTES_MAX // 2
"""A batch holds about this much, and at least one operation."""

OPERATION_BYTES_MAX: Final = MESSAGE_BYTES_MAX - 1024
PIECE_BYTES: Final = REQUEST_BYTES_MAX - 1024
"""A larger batch is sent in pieces of this size."""

PENDING_MAX: Final = 100_000

Call = grpc.aio.StreamStreamCall[admin_pb2.OperationBatch, admin_pb2.OperationResultBatch]


class OutcomeUnknown(ApiError):
    """The operation was sent, and it is unknown whether it is or will be carried out. Check before trying again."""


class NotSent(ApiError):
    """The operation was certainly not carried out: there was no node to send it to."""


class ClientClosed(NotSent):
    """The client was closed before the operation was sent, or the read answered. It is not retried."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, "this client was closed; use another one")


def given_up() -> bool:
    """After a CancelledError: whether the caller's own task is cancelled, and not the task that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class OperationStream:
    """An open stream. Use it on one event loop; close it."""

    def __init__(self, endpoint: Endpoint, channel: grpc.aio.Channel, call: Call, client_id: str) -> None:
        self.endpoint = endpoint
        self._client_id = client_id
        self._channel = channel
        self._call = call
        self._call_end = CallEnd(call)
        self._next_id = 0
        self._unsent: deque[admin_pb2.Operation] = deque()
        self._pending: dict[int, asyncio.Future[admin_pb2.OperationResult]] = {}
        self._sent: set[int] = set()
        self._is_retired = False
        self._refusal: NotSent | None = None
        """The node has no room for this stream, and has read nothing from it."""
        self._quiet_since = 0.0
        """Since when, by the clock of the event loop, answers are pending and none has arrived."""
        self._is_hung = False
        """An operation timed out without any answer from the node, and no message has arrived since."""
        self._something_to_send = asyncio.Event()
        self._sending = asyncio.create_task(self._send())
        self._receiving = asyncio.create_task(self._receive())

    @classmethod
    async def open(cls, endpoint: Endpoint, channel: grpc.aio.Channel, client_id: str = "") -> OperationStream:
        """Connect over `channel`, which the stream closes at the end; raises NotSent if that fails.

        Operations that name no client count against the mutation quota of `client_id`.
        """
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        call: Call = stub.Execute()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await call.wait_for_connection()
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            call.cancel()
            await channel.close()
            raise _refusal(endpoint, error) or NotSent(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"the leader was at {endpoint}, where no node answers; a new leader needs a majority of the voters:"
                " start the stopped ones",
            ) from None
        except BaseException:
            call.cancel()
            await channel.close()
            raise
        return cls(endpoint, channel, call, client_id)

    @property
    def is_open(self) -> bool:
        """Whether operations can be sent, as far as is known."""
        is_over = self._is_retired or self._receiving.done() or self._sending.done()
        return not is_over and not self._is_stalled

    @property
    def _is_stalled(self) -> bool:
        return self._is_hung or (
            bool(self._pending) and asyncio.get_running_loop().time() - self._quiet_since > STALL_SECONDS
        )

    @property
    def is_finished(self) -> bool:
        """Whether no further answer will arrive on the stream."""
        return self._receiving.done()

    def when_finished(self, callback: Callable[[OperationStream], None]) -> None:
        """Call `callback` when no further answer will arrive on the stream."""
        self._receiving.add_done_callback(lambda _: callback(self))

    async def execute(self, operation: admin_pb2.Operation, timeout_ms: int) -> admin_pb2.OperationResult:
        """The node's answer to `operation`, an error included. The node has `timeout_ms` for it.

        Raises OutcomeUnknown or NotSent if the stream breaks or no answer arrives in time, ApiError
        RECORD_LIST_TOO_LARGE if it fits no message, THROTTLING_QUOTA_EXCEEDED if too many are pending.
        """
        if not self.is_open:
            raise NotSent(ErrorCode.LEADER_NOT_AVAILABLE, f"the connection to {self.endpoint} is closed or stalled")
        if operation.ByteSize() > OPERATION_BYTES_MAX:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the operation has {operation.ByteSize()} bytes, at most {OPERATION_BYTES_MAX} can be sent: divide it",
            )
        if len(self._pending) >= PENDING_MAX:
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{PENDING_MAX} operations are pending; wait for some of them"
            )
        if not self._pending:
            self._quiet_since = asyncio.get_running_loop().time()
        self._next_id += 1
        correlation_id = self._next_id
        numbered = admin_pb2.Operation()
        numbered.CopyFrom(operation)
        numbered.correlation_id = correlation_id
        numbered.timeout_ms = timeout_ms
        numbered.client_id = operation.client_id or self._client_id
        answer: asyncio.Future[admin_pb2.OperationResult] = asyncio.get_running_loop().create_future()
        self._pending[correlation_id] = answer
        self._unsent.append(numbered)
        self._something_to_send.set()
        try:
            async with asyncio.timeout(timeout_ms / 1000 + ANSWER_GRACE_SECONDS):
                return await answer
        except TimeoutError:
            self._is_hung = True
            raise self._no_answer(correlation_id, "there was no answer in time") from None
        finally:
            self._pending.pop(correlation_id, None)
            self._sent.discard(correlation_id)
            self._end_if_idle()

    def retire(self) -> None:
        """Stop sending. Unsent operations get NotSent; sent ones are answered or time out, then the stream ends."""
        self._is_retired = True  # not cancelled: gRPC would end the whole call with the write in progress
        self._something_to_send.set()
        for operation in self._unsent:
            answer = self._pending.get(operation.correlation_id)
            if answer is not None and not answer.done():
                answer.set_exception(self._no_answer(operation.correlation_id, "the node hangs or does not lead"))
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        """End a retired stream that no caller needs: a hung node would never end it."""
        if self._is_retired and not self._pending:
            self._receiving.cancel()

    async def close(self) -> None:
        """End the stream now; every caller that waits gets NotSent or OutcomeUnknown."""
        for task in (self._sending, self._receiving):
            task.cancel()
        await asyncio.gather(self._sending, self._receiving, return_exceptions=True)

    async def _send(self) -> None:
        try:
            while not self._is_retired:
                await self._something_to_send.wait()
                if self._is_retired:
                    break
                batch = self._take_unsent()
                for message in _messages(batch):
                    await self._call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the receiver gets it too, and fails the callers that wait
        finally:
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._call.done_writing()

    def _take_unsent(self) -> list[admin_pb2.Operation]:
        batch: list[admin_pb2.Operation] = []
        size_bytes = 0
        while self._unsent and size_bytes < MESSAGE_BYTES_SOFT_MAX:
            size_bytes += self._unsent[0].ByteSize()
            if batch and size_bytes > MESSAGE_BYTES_SOFT_MAX:
                break
            operation = self._unsent.popleft()
            if operation.correlation_id in self._pending:  # else its caller gave up
                # From here on it may arrive, whatever the write returns.
                self._sent.add(operation.correlation_id)
                batch.append(operation)
        if not self._unsent:
            self._something_to_send.clear()
        return batch

    async def _receive(self) -> None:
        reason = "the connection was closed"
        try:
            async for message in self._call:
                self._quiet_since = asyncio.get_running_loop().time()
                self._is_hung = False
                for result in message.results:
                    answer = self._pending.get(result.correlation_id)
                    if answer is not None and not answer.done():
                        answer.set_result(result)
            reason = "the node ended the connection"
        except grpc.aio.AioRpcError as seen:
            error = self._call_end.error(seen)
            reason = "the connection broke"
            self._refusal = _refusal(self.endpoint, error)
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                reason += f" with {error.code().name}: {error.details()}"
        finally:
            self._sending.cancel()
            self._call.cancel()
            for correlation_id, answer in self._pending.items():
                if not answer.done():
                    answer.set_exception(self._no_answer(correlation_id, reason))
            await self._channel.close()

    def _no_answer(self, correlation_id: int, reason: str) -> ApiError:
        if self._refusal is not None:
            return NotSent(self._refusal.code, self._refusal.args[0])
        if correlation_id in self._sent:
            return OutcomeUnknown(
                ErrorCode.REQUEST_TIMED_OUT,
                f"sent to {self.endpoint}, but {reason}; it may or may not be carried out: check before trying again",
            )
        return NotSent(ErrorCode.LEADER_NOT_AVAILABLE, f"not sent to {self.endpoint}: {reason}")


def _messages(operations: Sequence[admin_pb2.Operation]) -> Iterator[admin_pb2.OperationBatch]:
    """The messages that carry `operations`: none, one, or pieces."""
    if not operations:
        return
    batch = admin_pb2.OperationBatch(operations=operations)
    if batch.ByteSize() <= PIECE_BYTES:
        yield batch
        return
    data = batch.SerializeToString()
    for start in range(0, len(data), PIECE_BYTES):
        end = start + PIECE_BYTES
        yield admin_pb2.OperationBatch(piece=data[start:end], is_last_piece=end >= len(data))


def _refusal(endpoint: Endpoint, error: BaseException) -> NotSent | None:
    """The error of a node that has no room for one more stream; None if something else happened."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return None
    named = (ERROR_KEY, str(int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)))
    if named not in tuple(error.trailing_metadata() or ()):
        return None
    return NotSent(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{endpoint} says: {error.details()}")
