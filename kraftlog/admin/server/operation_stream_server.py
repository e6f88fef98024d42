"""One client's operations on their way to the controller, and the results on their way back.

While a client does not read its answers, its operations are not read. Results that are ready together are sent as one
message. A batch larger than a request may be arrives in pieces. Only a few streams at a time may have pieces joined and
handled: the others are not read during that time, so gRPC keeps no more of each than its window.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from google.protobuf.message import DecodeError

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.controller import Controller
from kraftpb.v1 import admin_pb2
from raft.rpc.options import MESSAGE_BYTES_MAX
from statemachine.words.limits import NOTHING_WRITTEN

OPERATIONS_AT_A_TIME: Final = 1_000
UNREAD_RESULTS_MAX: Final = 2_000
UNREAD_RESULTS_MIN: Final = 50
"""With more unread answers than this, no further operations are read from that stream: the maximum when it is the only
stream, and the minimum with many.
"""

UNREAD_BYTES_MAX: Final = 256 * 1024
"""The same for the bytes of the answers."""

RESULT_BYTES_SOFT_MAX: Final = 1024 * 1024
"""An answer message holds about this much, and at least one result."""

RESULT_BYTES_MAX: Final = MESSAGE_BYTES_MAX - RESULT_BYTES_SOFT_MAX - 1024
"""A larger result is not sent: behind others, it would fit no message."""


LARGE_BATCHES_MAX: Final = 4
"""How many batches in pieces are received and handled at a time, of all streams together."""

LARGE_BATCH_SECONDS_MAX: Final = 30.0
"""How long such a batch may take. A stream that takes longer ends: others may wait for its place."""


_numbers = itertools.count(1)


class OperationStreamServer:
    """See the module."""

    def __init__(
        self,
        controller: Controller,
        room: Callable[[], int] = lambda: UNREAD_RESULTS_MAX,
        large_batches: asyncio.Semaphore | None = None,
    ) -> None:
        """`room` returns how many answers may be unread; `large_batches` has the places of all streams."""
        self._controller = controller
        self._number = next(_numbers)
        self._room = room
        self._large_batches = large_batches or asyncio.Semaphore(LARGE_BATCHES_MAX)
        self._unread_bytes = 0
        self._results: deque[admin_pb2.OperationResult] = deque()
        self._unanswered = 0
        self._is_read = False
        self._result_came = asyncio.Event()
        self._results_went = asyncio.Event()
        self._all_taken = asyncio.Event()
        """Set when the last operations read are passed to the controller."""

    async def read(self, batches: AsyncIterator[admin_pb2.OperationBatch]) -> None:
        """Pass the operations of `batches` to the controller, no faster than the results are read.

        Raises ApiError: REQUEST_TIMED_OUT if a batch in pieces takes too long, RECORD_LIST_TOO_LARGE if it is larger
        than a message, INVALID_REQUEST if its pieces are not a batch.
        """
        try:
            async for batch in batches:
                held = [batch]
                del batch  # while waiting for the next batch, which may take hours, and while this one waits for room
                if not held[0].piece and not held[0].is_last_piece:
                    await self._take_all(held)
                    continue
                async with self._large_batches, _in_time():
                    held.append(await joined(held.pop(), batches))
                    await self._take_all(held)
        except BaseException:
            self._unanswered = (
                0  # some operations will never be answered: end the stream with the error, and wait for none
            )
            raise
        finally:
            self._is_read = True
            self._result_came.set()

    async def _take_all(self, held: list[admin_pb2.OperationBatch]) -> None:
        """Remove the batch from `held`, and pass its operations on."""
        batch, start = held.pop(), 0
        while start < len(batch.operations):
            if not self._has_room:
                # The decoded batch may be thirty times as large, and the client may never read its answers.
                data = batch.SerializeToString()
                del batch
                await self._wait_for_room()
                batch = admin_pb2.OperationBatch.FromString(data)
            some = batch.operations[start : start + min(OPERATIONS_AT_A_TIME, self._unread_max)]
            start += len(some)
            self._unanswered += len(some)
            await self._submit(some)

    async def take(self) -> list[admin_pb2.OperationResult]:
        """The results that are ready, at least one; empty when all operations are answered, or `read` has failed."""
        while not self._results and not (self._is_read and self._unanswered <= 0):
            self._result_came.clear()
            await self._result_came.wait()
        taken: list[admin_pb2.OperationResult] = []
        size_bytes = 0
        while self._results and size_bytes < RESULT_BYTES_SOFT_MAX:
            result = self._results.popleft()
            self._unread_bytes -= result.ByteSize()
            result = _sendable(result)
            size_bytes += result.ByteSize()
            taken.append(result)
        self._results_went.set()
        return taken

    def ended(self, *, by_peer: bool) -> None:
        """Note that the stream has ended: closed or broken at the client's side, or ended by this node."""
        self._controller.dead_brokers.stream_ended(self._number, by_peer=by_peer)

    async def _submit(self, operations: Sequence[admin_pb2.Operation]) -> None:
        """Return when all are passed on; if the stream ends before, the others are dropped."""
        self._all_taken.clear()
        for operation in operations:
            if operation.HasField("broker_heartbeat"):
                self._controller.dead_brokers.heartbeat(self._number, operation.broker_heartbeat)
        submission = self._controller.submit(operations, self._put, self._all_taken.set)
        try:
            await self._all_taken.wait()
        finally:
            submission.cancel()

    @property
    def _unread_max(self) -> int:
        return min(UNREAD_RESULTS_MAX, max(UNREAD_RESULTS_MIN, self._room()))

    def _put(self, result: admin_pb2.OperationResult) -> None:
        self._unanswered -= 1
        self._unread_bytes += result.ByteSize()
        self._results.append(result)
        self._result_came.set()

    @property
    def _has_room(self) -> bool:
        return len(self._results) <= self._unread_max and self._unread_bytes <= UNREAD_BYTES_MAX

    async def _wait_for_room(self) -> None:
        while not self._has_room:
            self._results_went.clear()
            await self._results_went.wait()


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Bound the time of the context."""
    try:
        async with asyncio.timeout(LARGE_BATCH_SECONDS_MAX):
            yield
    except TimeoutError:
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"operations that were sent in pieces, or their answers, took longer than {LARGE_BATCH_SECONDS_MAX:g}"
            " s; check what was carried out, and divide the rest",
        ) from None


async def joined(
    first: admin_pb2.OperationBatch, others: AsyncIterator[admin_pb2.OperationBatch]
) -> admin_pb2.OperationBatch:
    """The batch whose first piece is in `first`. Raises ApiError."""
    pieces, size_bytes, message = list[bytes](), 0, first
    while True:
        pieces.append(message.piece)
        size_bytes += len(message.piece)
        if size_bytes > MESSAGE_BYTES_MAX:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of operations in pieces has more than {MESSAGE_BYTES_MAX} bytes: divide it",
            )
        if message.is_last_piece:
            break
        next_message = await anext(others, None)
        if next_message is None or next_message.operations:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a batch of operations in pieces lacks its last piece")
        message = next_message
    try:
        return admin_pb2.OperationBatch.FromString(b"".join(pieces))
    except DecodeError:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the pieces are not a batch of operations") from None


def _sendable(result: admin_pb2.OperationResult) -> admin_pb2.OperationResult:
    """`result`, or an error in its place if it is too large for a message, which would break the stream for all other
    operations.
    """
    if result.ByteSize() <= RESULT_BYTES_MAX:
        return result
    done = "nothing was written" if result.end_offset == NOTHING_WRITTEN else "the operation was carried out"
    return admin_pb2.OperationResult(
        correlation_id=result.correlation_id,
        error_code=ErrorCode.RECORD_LIST_TOO_LARGE,
        error_message=f"{done}, but the answer has {result.ByteSize()} bytes, too many for one message: divide it",
        end_offset=result.end_offset,
    )
