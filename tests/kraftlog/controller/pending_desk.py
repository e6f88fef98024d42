"""Pending operations with their ports, whose events a test causes one by one: no loop, no store, no node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.controller.pending_operations import PendingOperation, PendingOperations, PreparedAppend
from kraftpb.v1.admin_pb2 import OperationResult
from raft.core.types import LeaderAndEpoch
from statemachine.words.limits import NOTHING_WRITTEN
from tests.raft.by_hand import HandRuntime

LOST = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "as the test says")


@dataclass
class Log:
    """What `PendingOperations` needs of the log: where the leader is."""

    leader_and_epoch: LeaderAndEpoch = field(default_factory=lambda: LeaderAndEpoch(NodeId(2), Epoch(6)))
    leader_endpoint: None = None


@dataclass
class Machine:
    """What it needs of the state machine."""

    applied_end_offset: Offset = field(default_factory=lambda: Offset(0))
    unavailable_reason: str | None = None


@dataclass
class Desk:
    """Pending operations, and their answers in order."""

    log: Log = field(default_factory=Log)
    machine: Machine = field(default_factory=Machine)
    runtime: HandRuntime = field(default_factory=HandRuntime)
    answers: list[OperationResult] = field(default_factory=list)
    on_answer: Callable[[OperationResult], None] = lambda result: None

    def __post_init__(self) -> None:
        self.pending = PendingOperations(cast(Any, self.log), cast(Any, self.machine), self.runtime)
        self._count = 0

    def operation(self, end_offset: int = NOTHING_WRITTEN, timeout_ms: float = 1_000.0) -> PendingOperation:
        """An operation that is not pending yet; its number is its correlation id."""
        self._count += 1
        result = OperationResult(correlation_id=self._count, end_offset=end_offset)
        return PendingOperation(result, self._answered, self.runtime.now_ms() + timeout_ms)

    def _answered(self, result: OperationResult) -> None:
        self.answers.append(result)
        self.on_answer(result)

    def waiting(self, append: PreparedAppend, *, writes: bool = True) -> PendingOperation:
        """One that waits for `append`, which has its records, or others that its answer depends on."""
        operation = self.operation(append.end_offset if writes else NOTHING_WRITTEN)
        self.pending.add(operation, append)
        return operation


def say(result: OperationResult) -> str:
    """An answer as the tests' tables have it: its error, where it ends, and what its message says is certain."""
    if not result.error_code:
        return f"success at {result.end_offset}"
    certain = {
        "may or may not be carried out": "unknown",
        "nothing was written": "nothing written",
        "is committed": "committed",
    }
    found = [word for words, word in certain.items() if words in result.error_message]
    return f"{ErrorCode(result.error_code).name} at {result.end_offset}: {', '.join(found) or result.error_message}"
