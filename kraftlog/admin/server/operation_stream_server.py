"""One client's operations on their way to the controller, and the results on their way back.

While a client does not take its answers, its operations are not read. Results ready together go out as one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from kraftbase.errors import ErrorCode
from kraftlog.controller.controller import Controller
from kraftpb.v1 import admin_pb2
from raft.rpc.options import MESSAGE_BYTES_MAX
from statemachine.words.limits import NOTHING_WRITTEN

OPERATIONS_AT_A_TIME: Final = 1_000
UNREAD_RESULTS_MAX: Final = 2_000
UNREAD_RESULTS_MIN: Final = 50
"""With more answers than this not taken yet, no further operations are read from that stream: the maximum when it is
the only stream, and the minimum with many."""

UNREAD_BYTES_MAX: Final = 256 * 1024
"""The same for the bytes of the answers."""

RESULT_BYTES_SOFT_MAX: Final = 1024 * 1024
"""An answer message holds about this much, and at least one result."""

RESULT_BYTES_MAX: Final = MESSAGE_BYTES_MAX - RESULT_BYTES_SOFT_MAX - 1024
"""A larger result is not sent: behind others, it would fit no message."""


class OperationStreamServer:
    """See the module."""

    def __init__(self, controller: Controller, room: Callable[[], int] = lambda: UNREAD_RESULTS_MAX) -> None:
        """`room` returns how many answers may wait to be taken."""
        self._controller = controller
        self._room = room
        self._unread_bytes = 0
        self._results: deque[admin_pb2.OperationResult] = deque()
        self._unanswered = 0
        self._is_read = False
        self._result_came = asyncio.Event()
        self._results_went = asyncio.Event()
        self._all_taken = asyncio.Event()
        """Set when the operations that were read last are on their way."""

    async def read(self, batches: AsyncIterator[admin_pb2.OperationBatch]) -> None:
        """Hand the operations of `batches` to the controller, no faster than the results are taken."""
        try:
            async for batch in batches:
                operations = batch.operations
                start = 0
                while start < len(operations):
                    await self._wait_for_room()
                    some = operations[start : start + min(OPERATIONS_AT_A_TIME, self._unread_max)]
                    start += len(some)
                    self._unanswered += len(some)
                    await self._submit(some)
        except BaseException:
            self._unanswered = 0  # some will never be answered: let the stream end with the error, and wait for none
            raise
        finally:
            self._is_read = True
            self._result_came.set()

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

    async def _submit(self, operations: Sequence[admin_pb2.Operation]) -> None:
        """Returns when all are on their way; if the stream ends before, the others are not taken."""
        self._all_taken.clear()
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

    async def _wait_for_room(self) -> None:
        while len(self._results) > self._unread_max or self._unread_bytes > UNREAD_BYTES_MAX:
            self._results_went.clear()
            await self._results_went.wait()


def _sendable(result: admin_pb2.OperationResult) -> admin_pb2.OperationResult:
    """`result`, or an error in its place if it fits no message: it would break the stream for all other operations."""
    if result.ByteSize() <= RESULT_BYTES_MAX:
        return result
    done = "nothing was written" if result.end_offset == NOTHING_WRITTEN else "the operation was carried out"
    return admin_pb2.OperationResult(
        correlation_id=result.correlation_id,
        error_code=ErrorCode.RECORD_LIST_TOO_LARGE,
        error_message=f"{done}, but the answer has {result.ByteSize()} bytes, too many for one message: divide it",
        end_offset=result.end_offset,
    )
