"""Operations that wait for their records to be committed, and the answers that they get."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.metadata_log import CommitFuture, MetadataLog, PreparedAppend
from kraftpb.v1.admin_pb2 import OperationResult
from raft.core.types import Offset
from raft.rpc.codec import leader_to_proto
from raft.shell.runtime import Runtime, Timer
from statemachine.apply.applied import StateMachine
from statemachine.words.limits import NOTHING_WRITTEN

OnResult = Callable[[OperationResult], None]


@dataclass(slots=True, eq=False)
class PendingOperation:
    """An operation that is answered when `append` is committed and the state machine has it in hand."""

    result: OperationResult
    """The answer if all goes well."""
    on_result: OnResult
    deadline_ms: float
    """By the runtime's clock."""
    append: PreparedAppend | None
    """The last append that the answer depends on; None: that is applied, or the pages are still being appended."""
    is_completed: bool = False


class PendingOperations:
    """The operations that wait, in the order of the log."""

    def __init__(self, log: MetadataLog, machine: StateMachine, runtime: Runtime) -> None:
        self._log = log
        self._machine = machine
        self._runtime = runtime
        self._queue: deque[PendingOperation] = deque()
        self._paged: dict[int, PendingOperation] = {}
        self._timer: Timer | None = None
        self._timer_at_ms = 0.0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._queue) + len(self._paged)

    def add(self, operation: PendingOperation) -> None:
        """Answer when the append that it depends on is committed or has failed; at once if all is applied (CT-11)."""
        if operation.append is None:
            operation.result.state_end_offset = self._machine.applied_end_offset
            self._complete(operation, operation.result)
        else:
            operation.result.state_end_offset = operation.append.end_offset
            self._enqueue(operation)

    def _enqueue(self, operation: PendingOperation) -> None:
        """Answer when the append is committed or has failed, or the operation times out."""
        self._queue.append(operation)
        self._set_timer(operation.deadline_ms)
        if operation.append is not None and operation.append.committed.done():
            # Nothing else may trigger it: the append before may have failed.
            self.complete_up_to(self._machine.applied_end_offset)

    def add_paged(self, result: OperationResult, on_result: OnResult, deadline_ms: float) -> PendingOperation:
        """Add one whose records are still to come, in pages; `finish_paged` or `fail_paged` must follow."""
        operation = PendingOperation(result, on_result, deadline_ms, None)
        self._paged[id(operation)] = operation
        self._set_timer(deadline_ms)
        return operation

    def finish_paged(self, operation: PendingOperation, last_append: PreparedAppend | None) -> None:
        """All records of `operation` are appended, the last of them by `last_append`; None: everything is applied."""
        if self._paged.pop(id(operation), None) is not None:
            operation.append = last_append
            self.add(operation)

    def fail_paged(self, operation: PendingOperation, error: ApiError) -> None:
        """Not all records of `operation` will be appended: some may be, up to its end offset."""
        if self._paged.pop(id(operation), None) is not None:
            result = failure(self._log, operation.result.correlation_id, error.code, error.args[0])
            result.end_offset = operation.result.end_offset
            self._complete(operation, result)

    def complete_up_to(self, end_offset: Offset) -> bool:
        """Answer those at the front whose outcome is known; returns whether any of it is committed.

        Only what is below `end_offset` counts as committed: the state machine does not have the rest in hand yet.
        """
        has_acknowledged = False
        while self._queue:
            first = self._queue[0]
            append = first.append
            if append is None or not append.committed.done():
                break
            is_committed = _is_committed(append.committed)
            if is_committed and append.end_offset > end_offset:
                break
            self._queue.popleft()
            has_acknowledged |= is_committed
            if is_committed:
                self._complete(first, first.result)
            else:
                self._complete(first, self._unknown(first, ErrorCode.NOT_CONTROLLER, "leadership was lost meanwhile"))
        return has_acknowledged

    def fail_uncommitted(self, reason: str) -> None:
        """The outcome of what is not committed is not known here."""
        committed: deque[PendingOperation] = deque()
        for operation in [*self._queue, *self._paged.values()]:
            if operation.append is not None and _is_committed(operation.append.committed):
                committed.append(operation)
            else:
                self._complete(operation, self._unknown(operation, ErrorCode.NOT_CONTROLLER, reason))
        self._paged.clear()
        self._queue = committed

    def close(self) -> None:
        """Fail the operations that still wait: the node closes."""
        for operation in self._queue:
            self._complete(operation, self._unknown(operation, ErrorCode.NOT_CONTROLLER, "this node shuts down"))
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _complete(self, operation: PendingOperation, result: OperationResult) -> None:
        if not operation.is_completed:
            operation.is_completed = True
            operation.on_result(result)

    # --- timeouts -----------------------------------------------------------------------------------------------------

    def _set_timer(self, deadline_ms: float) -> None:
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        self._timer = self._runtime.call_later(max(0, deadline_ms - self._runtime.now_ms()), self._time_out)

    def _time_out(self) -> None:
        """Answer those that have timed out. They stay in the queue until the log has settled them."""
        self._timer = None
        now_ms = self._runtime.now_ms()
        everybody = [*self._queue, *self._paged.values()]
        for operation in everybody:
            if operation.deadline_ms <= now_ms:
                self._complete(operation, self._unknown(operation, ErrorCode.REQUEST_TIMED_OUT, "not done in time"))
        open_deadlines = [operation.deadline_ms for operation in everybody if not operation.is_completed]
        if open_deadlines:
            self._set_timer(min(open_deadlines))

    def _unknown(self, operation: PendingOperation, code: ErrorCode, reason: str) -> OperationResult:
        """The answer to an operation that was handed to the log and whose outcome is not known."""
        correlation_id, append = operation.result.correlation_id, operation.append
        if append is not None and operation.result.end_offset == NOTHING_WRITTEN:
            return failure(self._log, correlation_id, code, f"{reason}; nothing was written: try again")
        if append is not None and _is_committed(append.committed):
            unavailable_reason = (
                f" ({self._machine.unavailable_reason})" if self._machine.unavailable_reason is not None else ""
            )
            message = f"{reason}; it is committed, but not applied here yet{unavailable_reason}: do not try again"
        else:
            message = f"{reason}; it may or may not be carried out: look before trying again"
        result = failure(self._log, correlation_id, code, message)
        result.end_offset = max(0, operation.result.end_offset)
        return result


def failure(log: MetadataLog, correlation_id: int, code: ErrorCode, message: str) -> OperationResult:
    """The answer to an operation that was refused: nothing was written."""
    result = OperationResult(
        correlation_id=correlation_id, error_code=code, error_message=message, end_offset=NOTHING_WRITTEN
    )
    if code is ErrorCode.NOT_CONTROLLER:
        result.current_leader.CopyFrom(leader_to_proto(log.leader_and_epoch, log.leader_endpoint))
    return result


def not_controller(reason: str) -> ApiError:
    """The error of a node that is not the active controller."""
    return ApiError(ErrorCode.NOT_CONTROLLER, f"{reason}; send it to the one that leads")


def _is_committed(committed: CommitFuture) -> bool:
    return committed.done() and not committed.cancelled() and committed.exception() is None
