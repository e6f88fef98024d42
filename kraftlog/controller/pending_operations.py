"""The answer's way back: operations that wait, in the order of the log, and what resolves them.

Kafka has a deferred event queue and a purgatory for this. An operation waits for its pages, then for the commit of the
append that its answer depends on, then for the state machine, and is answered, once. Each state is a queue here, and
each event is one method:

    pages_appended, pages_failed   the operation's last page is appended, or there will be none
    append_settled                 an append is committed, or its outcome is uncertain
    in_hand                        the state machine has the committed records
    leadership_lost                another node leads, or none
    _time_out                      the operation's time is over
    close                          this node closes

`docs/internals/the-way-of-a-create-topics.md` has the drawing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kraftbase.checks import check
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import Runtime, Timer
from kraftbase.types import Offset
from kraftlog.controller.metadata_log import MetadataLog
from kraftpb.v1.admin_pb2 import OperationResult
from raft.rpc.codec import leader_to_proto
from statemachine.apply.applied import StateMachine
from statemachine.words.limits import NOTHING_WRITTEN

OnResult = Callable[[OperationResult], None]

LEADERSHIP_LOST: Final = "leadership was lost"


class Outcome(Enum):
    """What this node knows about the outcome of an append."""

    PENDING = "pending"
    COMMITTED = "committed"
    UNCERTAIN = "uncertain"
    """Leadership was lost first. The next leader commits it or truncates it; this node never calls it committed, even
    if a later high watermark is above it."""


@dataclass(slots=True, eq=False)
class PreparedAppend:
    """An append of the controller, and its outcome."""

    end_offset: Offset
    """The offset after its last record."""
    outcome: Outcome = Outcome.PENDING
    on_settled: Callable[[], None] | None = None
    """Called when the outcome is no longer pending; the callback must not append anything."""


class OperationState(Enum):
    """What an operation waits for."""

    PAGES = "its pages"
    COMMIT = "the commit"
    STATE_MACHINE = "the state machine"
    ANSWERED = "nothing: it is answered"


# On Python 3.11 to look up a member of an enum takes 0.1 microseconds, and every operation needs several.
_PENDING: Final = Outcome.PENDING
_COMMITTED: Final = Outcome.COMMITTED
_PAGES: Final = OperationState.PAGES
_COMMIT: Final = OperationState.COMMIT
_STATE_MACHINE: Final = OperationState.STATE_MACHINE
_ANSWERED: Final = OperationState.ANSWERED


@dataclass(slots=True, eq=False)
class PendingOperation:
    """An operation that is not yet answered, or has timed out before the log settled it."""

    result: OperationResult
    """The answer in case of success; its `state_end_offset` is the end of the append that it depends on."""
    on_result: OnResult
    deadline_ms: float
    """By the runtime's clock."""
    append: PreparedAppend | None = None
    """The last append that the answer depends on; None if it is applied, or pages are still being appended."""
    state: OperationState = OperationState.PAGES

    @property
    def outcome(self) -> Outcome:
        """Of the append."""
        return _PENDING if self.append is None else self.append.outcome


class PendingOperations:
    """See the module. Used on the event loop only."""

    def __init__(self, log: MetadataLog, machine: StateMachine, runtime: Runtime) -> None:
        self._log = log
        self._machine = machine
        self._runtime = runtime
        self._for_pages: dict[PendingOperation, None] = {}
        self._for_commit: deque[PendingOperation] = deque()
        """In the order of the log, like the next one. No append of these is settled."""
        self._for_state_machine: deque[PendingOperation] = deque()
        """The appends of these are committed."""
        self._timer: Timer | None = None
        self._timer_at_ms = 0.0

    def __len__(self) -> int:
        """How many operations wait. Timed-out operations count until the log settles them: they take memory, too."""
        return len(self._for_pages) + len(self._for_commit) + len(self._for_state_machine)

    # --- operations come in -------------------------------------------------------------------------------------------

    def add(self, operation: PendingOperation, append: PreparedAppend | None) -> None:
        """Answer when `append`, on which the answer depends, is committed and in hand; None: all is applied (CT-11)."""
        if append is None:
            operation.result.state_end_offset = self._machine.applied_end_offset
            self._answer(operation, operation.result)
            return
        operation.append, operation.state = append, _COMMIT
        operation.result.state_end_offset = append.end_offset
        self._enqueue(operation)
        if append.outcome is _COMMITTED:
            self.in_hand(self._machine.applied_end_offset)  # the append may be applied by now
        if operation.state is not _ANSWERED:
            self._set_timer(operation.deadline_ms)

    def add_paged(self, operation: PendingOperation) -> None:
        """Add an operation whose pages are not yet appended: `pages_appended`, `pages_failed` or `leadership_lost`
        follows.
        """
        self._for_pages[operation] = None
        self._set_timer(operation.deadline_ms)

    def _enqueue(self, operation: PendingOperation) -> None:
        """Put the operation into the queue that its append is in."""
        outcome = operation.outcome
        if outcome is _PENDING:
            self._for_commit.append(operation)
        elif outcome is _COMMITTED:
            operation.state = _STATE_MACHINE
            self._for_state_machine.append(operation)
        else:
            self._answer(operation, self._unknown(operation, ErrorCode.NOT_CONTROLLER, LEADERSHIP_LOST))

    # --- events -------------------------------------------------------------------------------------------------------

    def pages_appended(self, operation: PendingOperation, last_append: PreparedAppend | None) -> None:
        """All records of `operation` are appended, the last of them by `last_append`; None: everything is applied."""
        if self._leaves_pages(operation) and operation.state is not _ANSWERED:
            self.add(operation, last_append)

    def pages_failed(self, operation: PendingOperation, error: ApiError) -> None:
        """Not all records of `operation` will be appended; some may have been, up to its end offset."""
        if self._leaves_pages(operation):
            result = failure(self._log, operation.result.correlation_id, error.code, error.args[0])
            result.end_offset = operation.result.end_offset
            self._answer(operation, result)

    def append_settled(self, append: PreparedAppend, error: ApiError | None) -> None:
        """`append` is committed; with an error, it may or may not be."""
        check(append.outcome is _PENDING, "an append is settled once", end_offset=append.end_offset)
        append.outcome = _COMMITTED if error is None else Outcome.UNCERTAIN
        while self._for_commit and self._for_commit[0].outcome is not _PENDING:
            operation = self._for_commit.popleft()
            if operation.state is not _ANSWERED:
                self._enqueue(operation)
        if self._for_state_machine:
            self.in_hand(self._machine.applied_end_offset)  # the commit may be known late
        if append.on_settled is not None:
            append.on_settled()

    def in_hand(self, end_offset: Offset) -> bool:
        """The state machine has received, or has already applied, everything committed below `end_offset`. Returns
        whether an operation was answered.
        """
        has_answered = False
        while self._for_state_machine and self._for_state_machine[0].result.state_end_offset <= end_offset:
            operation = self._for_state_machine.popleft()
            has_answered |= self._answer(operation, operation.result)
        return has_answered

    def leadership_lost(self) -> None:
        """Fail uncommitted operations, which may or may not be committed later. Committed ones still wait for the state
        machine.
        """
        uncommitted = [*self._for_commit, *self._for_pages]
        self._for_commit.clear()
        self._for_pages.clear()
        self._answer_unknown(uncommitted, ErrorCode.NOT_CONTROLLER, LEADERSHIP_LOST)

    def close(self) -> None:
        """This node closes: fail all operations."""
        everybody = self._everybody()
        self._for_state_machine.clear()
        self._for_commit.clear()
        self._for_pages.clear()
        self._answer_unknown(everybody, ErrorCode.NOT_CONTROLLER, "this node is shutting down")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        """Answer operations whose time is over. They stay in their queue until the log has settled them."""
        self._timer = None
        now_ms = self._runtime.now_ms()
        late = [operation for operation in self._everybody() if operation.deadline_ms <= now_ms]
        self._answer_unknown(late, ErrorCode.REQUEST_TIMED_OUT, "not done in time")
        deadlines = [one.deadline_ms for one in self._everybody() if one.state is not _ANSWERED]
        if deadlines:
            self._set_timer(min(deadlines))

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, operation: PendingOperation, result: OperationResult) -> bool:
        """Answer the operation, unless it was answered when it timed out; return whether it is answered now."""
        if operation.state is _ANSWERED:
            return False
        operation.state = _ANSWERED
        operation.on_result(result)
        return True

    def _answer_unknown(self, operations: list[PendingOperation], code: ErrorCode, reason: str) -> None:
        for operation in operations:
            if operation.state is not _ANSWERED:
                self._answer(operation, self._unknown(operation, code, reason))

    def _unknown(self, operation: PendingOperation, code: ErrorCode, reason: str) -> OperationResult:
        """The answer to an operation that this node no longer waits for."""
        result = operation.result
        is_paged = operation.state is _PAGES
        if result.end_offset == NOTHING_WRITTEN and not is_paged:
            return failure(self._log, result.correlation_id, code, f"{reason}; nothing was written: try again")
        if operation.state is _STATE_MACHINE:
            why = self._machine.unavailable_reason
            not_applied = "not applied here yet" if why is None else f"not applied here yet ({why})"
            message = f"{reason}; it is committed, but {not_applied}: do not try again"
        else:
            message = f"{reason}; it may or may not be carried out: check before trying again"
        unknown = failure(self._log, result.correlation_id, code, message)
        unknown.end_offset = max(0, result.end_offset)
        return unknown

    def _leaves_pages(self, operation: PendingOperation) -> bool:
        """Remove the operation from those that wait for pages; return False if it was no longer one of them."""
        if operation not in self._for_pages:
            return False
        del self._for_pages[operation]
        return True

    def _everybody(self) -> list[PendingOperation]:
        return [*self._for_state_machine, *self._for_commit, *self._for_pages]

    def _set_timer(self, deadline_ms: float) -> None:
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return  # it fires early, and is then set again
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        self._timer = self._runtime.call_later(max(0, deadline_ms - self._runtime.now_ms()), self._time_out)


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
    return ApiError(ErrorCode.NOT_CONTROLLER, f"{reason}; send it to the active controller")
