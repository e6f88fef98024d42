"""Operations that wait for their records to be committed, and the answers that they get."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kraftbase.errors import ErrorCode, ProtocolError
from kraftlog.controller.metadata_log import MetadataLog, PreparedAppend, Settlement
from kraftpb.v1.admin_pb2 import OperationResult
from raft.core.types import Offset
from raft.rpc.codec import leader_to_proto
from raft.shell.runtime import Runtime, Timer
from statemachine.apply.applied import StateMachine
from statemachine.words.limits import NOTHING_WRITTEN

OnResult = Callable[[OperationResult], None]


@dataclass(slots=True, eq=False)
class Waiting:
    """An operation that is answered when `append` is committed and the state machine has it in hand."""

    result: OperationResult
    """What it gets if all goes well."""
    on_result: OnResult
    deadline_ms: float
    """By the runtime's clock."""
    append: PreparedAppend | None
    """The last append that the answer rests on; None: what it rests on is applied, or is still being worked off."""
    is_answered: bool = False


class Answers:
    """Everybody who waits, in the order of the log."""

    def __init__(self, log: MetadataLog, machine: StateMachine, runtime: Runtime) -> None:
        self._log = log
        self._machine = machine
        self._runtime = runtime
        self._waiting: deque[Waiting] = deque()
        self._promised: dict[int, Waiting] = {}
        self._timer: Timer | None = None
        self._timer_at_ms = 0.0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting) + len(self._promised)

    def settle(self, waiting: Waiting) -> None:
        """Answer when the append that it rests on is settled; at once if all is applied (CT-11)."""
        if waiting.append is None:
            waiting.result.state_end_offset = self._machine.applied_end_offset
            self._answer(waiting, waiting.result)
        else:
            waiting.result.state_end_offset = waiting.append.end_offset
            self.wait(waiting)

    def wait(self, waiting: Waiting) -> None:
        """Answer when the append is settled, or the time is up."""
        self._waiting.append(waiting)
        self._set_timer(waiting.deadline_ms)
        if waiting.append is not None and waiting.append.committed.done():
            # Nothing else may come to do it: the append before may have failed.
            self.answer_settled(self._machine.applied_end_offset)

    def promise(self, result: OperationResult, on_result: OnResult, deadline_ms: float) -> Waiting:
        """Somebody whose records are still to come; `fulfil` must follow."""
        waiting = Waiting(result, on_result, deadline_ms, None)
        self._promised[id(waiting)] = waiting
        self._set_timer(deadline_ms)
        return waiting

    def fulfil(self, waiting: Waiting, last_append: PreparedAppend | None) -> None:
        """All records of `waiting` are appended, the last of them by `last_append`; None: everything is applied."""
        if self._promised.pop(id(waiting), None) is not None:
            waiting.append = last_append
            self.settle(waiting)

    def give_up(self, waiting: Waiting, error: ProtocolError) -> None:
        """The records of `waiting` will not all come: some may have, as far as its end offset says."""
        if self._promised.pop(id(waiting), None) is not None:
            result = failure(self._log, waiting.result.correlation_id, error.code, error.args[0])
            result.end_offset = waiting.result.end_offset
            self._answer(waiting, result)

    def answer_settled(self, end_offset: Offset) -> bool:
        """Answer those at the front whose outcome is known; returns whether any of it is committed.

        What is committed counts up to `end_offset`: what is behind that the state machine has not in hand yet.
        """
        has_acknowledged = False
        while self._waiting:
            first = self._waiting[0]
            append = first.append
            if append is None or not append.committed.done():
                break
            is_committed = _is_committed(append.committed)
            if is_committed and append.end_offset > end_offset:
                break
            self._waiting.popleft()
            has_acknowledged |= is_committed
            if is_committed:
                self._answer(first, first.result)
            else:
                self._answer(first, self._unknown(first, ErrorCode.NOT_CONTROLLER, "leadership was lost meanwhile"))
        return has_acknowledged

    def fail_uncommitted(self, reason: str) -> None:
        """Nobody knows what becomes of what is not committed."""
        committed: deque[Waiting] = deque()
        for waiting in [*self._waiting, *self._promised.values()]:
            if waiting.append is not None and _is_committed(waiting.append.committed):
                committed.append(waiting)
            else:
                self._answer(waiting, self._unknown(waiting, ErrorCode.NOT_CONTROLLER, reason))
        self._promised.clear()
        self._waiting = committed

    def close(self) -> None:
        """Turn away who still waits: the node closes."""
        for waiting in self._waiting:
            self._answer(waiting, self._unknown(waiting, ErrorCode.NOT_CONTROLLER, "this node shuts down"))
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _answer(self, waiting: Waiting, result: OperationResult) -> None:
        if not waiting.is_answered:
            waiting.is_answered = True
            waiting.on_result(result)

    # --- timeouts -----------------------------------------------------------------------------------------------------

    def _set_timer(self, deadline_ms: float) -> None:
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        self._timer = self._runtime.call_later(max(0, deadline_ms - self._runtime.now_ms()), self._time_out)

    def _time_out(self) -> None:
        """Answer those whose time is up. They stay in the queue until the log has settled them."""
        self._timer = None
        now_ms = self._runtime.now_ms()
        everybody = [*self._waiting, *self._promised.values()]
        for waiting in everybody:
            if waiting.deadline_ms <= now_ms:
                self._answer(waiting, self._unknown(waiting, ErrorCode.REQUEST_TIMED_OUT, "not done in time"))
        open_deadlines = [waiting.deadline_ms for waiting in everybody if not waiting.is_answered]
        if open_deadlines:
            self._set_timer(min(open_deadlines))

    def _unknown(self, waiting: Waiting, code: ErrorCode, reason: str) -> OperationResult:
        """The answer to an operation that was handed to the log and whose outcome is not known."""
        correlation_id, append = waiting.result.correlation_id, waiting.append
        if append is not None and waiting.result.end_offset == NOTHING_WRITTEN:
            return failure(self._log, correlation_id, code, f"{reason}; nothing was written: try again")
        if append is not None and _is_committed(append.committed):
            obstacle = f" ({self._machine.obstacle})" if self._machine.obstacle is not None else ""
            message = f"{reason}; it is committed, but not applied here yet{obstacle}: do not try again"
        else:
            message = f"{reason}; it may or may not be carried out: look before trying again"
        result = failure(self._log, correlation_id, code, message)
        result.end_offset = max(0, waiting.result.end_offset)
        return result


def failure(log: MetadataLog, correlation_id: int, code: ErrorCode, message: str) -> OperationResult:
    """The answer to an operation that was refused: nothing was written."""
    result = OperationResult(
        correlation_id=correlation_id, error_code=code, error_message=message, end_offset=NOTHING_WRITTEN
    )
    if code is ErrorCode.NOT_CONTROLLER:
        result.current_leader.CopyFrom(leader_to_proto(log.leader_and_epoch, log.leader_endpoint))
    return result


def not_controller(reason: str) -> ProtocolError:
    """What a node says that does not decide."""
    return ProtocolError(ErrorCode.NOT_CONTROLLER, f"{reason}; send it to the one that leads")


def _is_committed(committed: Settlement) -> bool:
    return committed.done() and not committed.cancelled() and committed.exception() is None
