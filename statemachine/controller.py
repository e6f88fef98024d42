"""The active controller: it turns operations into records, and answers when they are committed and applied here.

An operation is validated against the latest state (store and overlay), makes its records, prepares their append, enters
the overlay, and waits (CT-10). One operation is one append: all of it or nothing. It is active from the moment that its
own state machine, level with the log, hears that this node leads (LI-05), until it hears of another leader or an
append is refused (CT-13, CT-15).

What is not certain is not claimed: an answer with an error and an end offset of 0 or more means that the records were
handed to the log and may still be committed; with -1, nothing was written.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import structlog

from kraftpb.v1.admin_pb2 import Operation, OperationResult
from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from raft.core.checks import check
from raft.core.errors import ErrorCode, InvariantViolation, ProtocolError
from raft.core.types import Epoch, LeaderAndEpoch, Offset
from raft.rpc.codec import leader_to_proto
from statemachine.broker_operations import register_broker
from statemachine.config_operations import alter_configs
from statemachine.limits import (
    NOTHING_WRITTEN,
    OPERATION_TIMEOUT_MS_DEFAULT,
    OPERATION_TIMEOUT_MS_MAX,
    OPERATIONS_WAITING_MAX,
    check_record_count,
)
from statemachine.log import MetadataLog
from statemachine.machine import MetadataMachine
from statemachine.overlay import Overlay
from statemachine.store import MetadataStore
from statemachine.topic_operations import create_topics, delete_topics

SLICE_SECONDS: Final = 0.005
"""After so long, operations that came together give the event loop a turn."""

OnResult = Callable[[OperationResult], None]

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Waiting:
    """An operation that is answered when everything below `end_offset` is committed and applied."""

    result: OperationResult
    end_offset: Offset
    committed: asyncio.Future[None]
    on_result: OnResult
    deadline: float
    """By the clock of the event loop."""
    is_answered: bool = False


class Controller:
    """The controller of one node. Used on the event loop only."""

    def __init__(self, log: MetadataLog, store: MetadataStore, machine: MetadataMachine, *, random: Random) -> None:
        self._log = log
        self._machine = machine
        self._random = random
        self._overlay = Overlay(store)
        self._epoch: Epoch | None = None
        self._waiting: deque[_Waiting] = deque()
        self._last_append: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        machine.subscribe(self)

    @property
    def is_active(self) -> bool:
        """Whether this controller decides, as far as it knows."""
        return self._epoch is not None

    # --- operations ---------------------------------------------------------------------------------------------------

    async def submit(self, operations: Sequence[Operation], on_result: OnResult) -> None:
        """Carry out `operations` in order; `on_result` gets the answer to each, at the latest by its timeout.

        Returns when all are on their way. Those that come together are appended together. `on_result` must not raise.
        """
        slice_end = time.monotonic() + SLICE_SECONDS
        for operation in operations:
            self._take(operation, on_result)
            if time.monotonic() >= slice_end:
                self._schedule()
                await asyncio.sleep(0)
                slice_end = time.monotonic() + SLICE_SECONDS
        self._schedule()

    async def execute(self, operation: Operation) -> OperationResult:
        """Carry out one operation and return its answer."""
        answer: asyncio.Future[OperationResult] = asyncio.get_running_loop().create_future()
        await self.submit([operation], lambda result: None if answer.done() else answer.set_result(result))
        return await answer

    def _schedule(self) -> None:
        if self._epoch is not None:
            self._log.schedule_appends()

    def _take(self, operation: Operation, on_result: OnResult) -> None:
        try:
            result, end_offset = self._carry_out(operation)
        except ProtocolError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._renounce()
                error = _not_controller("this node has just stopped leading")
            on_result(self._failure(operation.correlation_id, error.code, error.args[0]))
            return
        except Exception:
            logger.exception("an operation could not be appended", operation=operation.WhichOneof("operation"))
            message = "the controller failed on this operation; see its log"
            on_result(self._failure(operation.correlation_id, ErrorCode.UNKNOWN_SERVER_ERROR, message))
            return
        result.correlation_id = operation.correlation_id
        if self._last_append is None:
            on_result(result)  # nothing was written, and nothing is pending that the answer could rest on (CT-11)
        else:
            self._wait(_Waiting(result, end_offset, self._last_append, on_result, _deadline(operation.timeout_ms)))

    def _carry_out(self, operation: Operation) -> tuple[OperationResult, Offset]:
        """The answer, and the end offset that must be applied before it is given. Raises ProtocolError."""
        if self._epoch is None or self._log.leader_and_epoch != (self._log.node_key.node_id, self._epoch):
            self._renounce()  # the log may know before the state machine is told
            raise _not_controller("this node is not the active controller")
        if not 0 <= operation.timeout_ms <= OPERATION_TIMEOUT_MS_MAX:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"the timeout is {operation.timeout_ms} ms; it must be between 0 and {OPERATION_TIMEOUT_MS_MAX}",
            )
        self._machine.refuse_if_fenced()
        if self._machine.obstacle is not None:
            raise ProtocolError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"this node cannot apply what is committed: {self._machine.obstacle}; mend that and try again",
            )
        if len(self._waiting) >= OPERATIONS_WAITING_MAX:
            raise ProtocolError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{OPERATIONS_WAITING_MAX} operations are waiting; try again later"
            )
        try:
            records, result = self._decide(operation)
        except ProtocolError:
            raise
        except Exception:
            logger.exception("an operation met a bug", operation=operation.WhichOneof("operation"))
            raise ProtocolError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "the controller failed on this operation; see its log"
            ) from None
        if not records:
            result.end_offset = NOTHING_WRITTEN
            return result, self._overlay.last_end_offset
        result.end_offset = self._append(self._epoch, records)
        return result, Offset(result.end_offset)

    def _decide(self, operation: Operation) -> tuple[list[MetadataRecord], OperationResult]:
        """The records that the operation comes to, and its answer if they are committed."""
        state = self._overlay
        match operation.WhichOneof("operation"):
            case "create_topics":
                records, topics_created = create_topics(state, operation.create_topics, self._random)
                return records, OperationResult(create_topics=topics_created)
            case "delete_topics":
                records, topics_deleted = delete_topics(state, operation.delete_topics)
                return records, OperationResult(delete_topics=topics_deleted)
            case "register_broker":
                records, registered = register_broker(
                    state, operation.register_broker, self._log.cluster_id, self._log.next_append_offset
                )
                return records, OperationResult(register_broker=registered)
            case "alter_configs":
                records, altered = alter_configs(state, operation.alter_configs)
                return records, OperationResult(alter_configs=altered)
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "the operation says nothing to do that this version knows")

    def _append(self, epoch: Epoch, records: list[MetadataRecord]) -> Offset:
        """Prepare the append of `records` and take them into the overlay; the offset after the last one."""
        check_record_count(len(records))
        base_offset = self._log.next_append_offset
        body = MetadataBatch(records=records).SerializeToString()
        prepared = self._log.prepare_append(epoch, body, len(records))
        try:
            check(prepared.base_offset == base_offset, "an append gets the offset it was told", base_offset=base_offset)
            self._overlay.replay(records, prepared.end_offset)
        except BaseException as error:
            # The overlay is not what the log will be: nothing more may be decided on it (CT-15, CT-18).
            self._renounce()
            self._log.resign(epoch)
            raise InvariantViolation("the overlay does not follow the log") from error
        self._last_append = prepared.committed
        prepared.committed.add_done_callback(self._append_settled)
        return prepared.end_offset

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if self._timer is None or self._timer.when() > waiting.deadline:
            self._set_timer(waiting.deadline)
        if waiting.committed.done():
            self._answer_settled()  # nothing else may come to do it: the append before may have failed

    def _append_settled(self, committed: asyncio.Future[None]) -> None:
        self._answer_settled()

    def applied(self, end_offset: Offset) -> None:
        """The store has everything below `end_offset`."""
        self._overlay.drain(end_offset)
        if end_offset >= self._overlay.last_end_offset:
            self._last_append = None
        self._answer_settled()

    def _answer_settled(self) -> None:
        """Answer those at the front whose outcome is known."""
        applied_end_offset = self._machine.applied_end_offset
        while self._waiting and self._waiting[0].committed.done():
            first = self._waiting[0]
            is_committed = _is_committed(first.committed)
            if is_committed and first.end_offset > applied_end_offset:
                return
            self._waiting.popleft()
            if is_committed:
                self._answer(first, first.result)
            else:
                self._answer(first, self._unknown(first, ErrorCode.NOT_CONTROLLER, "leadership was lost meanwhile"))

    def _answer(self, waiting: _Waiting, result: OperationResult) -> None:
        if not waiting.is_answered:
            waiting.is_answered = True
            waiting.on_result(result)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._time_out)

    def _time_out(self) -> None:
        """Answer those whose time is up. They stay in the queue until the log has settled them."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for waiting in self._waiting:
            if waiting.deadline <= now:
                self._answer(waiting, self._unknown(waiting, ErrorCode.REQUEST_TIMED_OUT, "not done in time"))
        open_deadlines = [waiting.deadline for waiting in self._waiting if not waiting.is_answered]
        if open_deadlines:
            self._set_timer(min(open_deadlines))

    # --- leadership ---------------------------------------------------------------------------------------------------

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Become active if this node leads; otherwise stop (CT-14, CT-15)."""
        self._renounce()
        if leader_and_epoch.leader_id == self._log.node_key.node_id:
            self._epoch = leader_and_epoch.epoch
            logger.info("controller active", epoch=leader_and_epoch.epoch)

    def shut_down(self) -> None:
        """Stop: the node closes."""
        self._renounce()
        for waiting in self._waiting:
            self._answer(waiting, self._unknown(waiting, ErrorCode.NOT_CONTROLLER, "this node shuts down"))
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _renounce(self) -> None:
        """Stop deciding, drop the overlay, fail who waits; but what is committed is only waiting to be applied."""
        if self._epoch is None:
            return
        logger.info("controller no longer active", epoch=self._epoch, waiting=len(self._waiting))
        self._epoch = None
        self._overlay.clear()
        self._last_append = None
        committed: deque[_Waiting] = deque()
        for waiting in self._waiting:
            if _is_committed(waiting.committed):
                committed.append(waiting)
            else:
                self._answer(waiting, self._unknown(waiting, ErrorCode.NOT_CONTROLLER, "leadership was lost meanwhile"))
        self._waiting = committed

    # --- answers ------------------------------------------------------------------------------------------------------

    def _failure(self, correlation_id: int, code: ErrorCode, message: str) -> OperationResult:
        result = OperationResult(
            correlation_id=correlation_id, error_code=code, error_message=message, end_offset=NOTHING_WRITTEN
        )
        if code is ErrorCode.NOT_CONTROLLER:
            result.current_leader.CopyFrom(leader_to_proto(self._log.leader_and_epoch, self._log.leader_endpoint))
        return result

    def _unknown(self, waiting: _Waiting, code: ErrorCode, reason: str) -> OperationResult:
        """The answer to an operation that was handed to the log and whose outcome is not known."""
        if waiting.result.end_offset == NOTHING_WRITTEN:
            return self._failure(waiting.result.correlation_id, code, f"{reason}; nothing was written: try again")
        if _is_committed(waiting.committed):
            obstacle = f" ({self._machine.obstacle})" if self._machine.obstacle is not None else ""
            message = f"{reason}; it is committed, but not applied here yet{obstacle}: do not try again"
        else:
            message = f"{reason}; it may or may not be carried out: look before trying again"
        result = self._failure(waiting.result.correlation_id, code, message)
        result.end_offset = waiting.result.end_offset
        return result


def _not_controller(reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.NOT_CONTROLLER, f"{reason}; send it to the one that leads")


def _is_committed(committed: asyncio.Future[None]) -> bool:
    return committed.done() and not committed.cancelled() and committed.exception() is None


def _deadline(timeout_ms: int) -> float:
    return asyncio.get_running_loop().time() + (timeout_ms or OPERATION_TIMEOUT_MS_DEFAULT) / 1000
