"""Bugs of the state machine: answers and reads that come too early, twice or never, and states that diverge."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

from kraftbase.errors import ErrorCode
from kraftbase.runtime import OnDone, Timer
from kraftbase.types import Offset
from kraftlog.controller.pending_operations import (
    OperationState,
    PendingOperation,
    PendingOperations,
    PreparedAppend,
    failure,
)
from kraftlog.sim.engine.mutation import instead, mutation
from kraftlog.sim.quorum.node import database
from kraftpb.v1.admin_pb2 import OperationResult
from kraftpb.v1.metadata_pb2 import TopicRecord
from raft.core.types import OffsetAndEpoch
from raft.delivery import _Feeding
from statemachine.apply.machine import MetadataMachine
from statemachine.apply.obstacle import Obstacle
from statemachine.apply.run_writer import RunWriter
from statemachine.replay import transactions
from statemachine.replay.changes import Changes
from statemachine.replay.deltas import Change, MetadataDelta, delta_of
from statemachine.store import metadata_tables
from statemachine.store.checkpointer import Checkpointer
from statemachine.store.image import SnapshotPoint, snapshot_point
from statemachine.store.metadata_tables import MetadataTables, PreparedRun

BROKERS = 3

HELD = ("database: a reader keeps its write-ahead log",)
DIVERGES = ("database: comes to something else",)
LOCKED = ("database: cannot be written for a while",)


@mutation("a read does not wait for acknowledged records", "CT-11", brokers=BROKERS)
def read_before_applied() -> list[Any]:
    """A client that has its answer reads an older state from the same node."""
    wait_applied = MetadataMachine.wait_applied

    def hasty(self: MetadataMachine, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> Timer | None:
        if end_offset <= self.applied_end_offset and not self.is_fenced:
            on_done(None)
            return None
        return wait_applied(self, end_offset, timeout_ms, on_done)

    return [instead(MetadataMachine, "wait_applied", hasty)]


@mutation("answers are lost at a change of leader", "CT-15", brokers=BROKERS)
def answers_lost() -> list[Any]:
    """Uncommitted operations are dropped, and their callers wait forever."""

    def forgetful(self: PendingOperations) -> None:
        self._for_commit.clear()
        self._for_pages.clear()

    return [instead(PendingOperations, "leadership_lost", forgetful)]


@mutation("an operation that timed out is answered again", "our own", brokers=BROKERS)
def answered_twice() -> list[Any]:
    """The caller gets the time-out, and another answer when the append is settled."""
    append_settled = PendingOperations.append_settled

    def again(self: PendingOperations, append: PreparedAppend, error: Any) -> None:
        late = [
            waiter for waiter in self._for_commit if waiter.append is append and waiter.state is OperationState.ANSWERED
        ]
        append_settled(self, append, error)
        for operation in late:
            operation.on_result(operation.result)

    return [instead(PendingOperations, "append_settled", again)]


@mutation("a time-out says that nothing was written", "CT-19", brokers=BROKERS)
def time_out_denies() -> list[Any]:
    """The caller may try again, although its first operation takes effect as well."""

    def denying(self: PendingOperations, operation: PendingOperation, code: ErrorCode, reason: str) -> OperationResult:
        return failure(self._log, operation.result.correlation_id, code, f"{reason}; nothing was written: try again")

    return [instead(PendingOperations, "_unknown", denying)]


@mutation("a snapshot names less than it holds", "etcd #13766")
def snapshot_of_half_a_run() -> list[Any]:
    """The snapshot is taken while a run is written: its id is from before the run, its rows are from after it."""
    commit = MetadataTables.commit
    before: dict[str, OffsetAndEpoch] = {}
    """By the digest after a run: the offset and epoch at which the run began."""

    def noting(self: MetadataTables, prepared: PreparedRun, *, note_delta: bool = False) -> None:
        end_offset, epoch, _ = self.applied
        commit(self, prepared, note_delta=note_delta)
        if end_offset > 0:
            before[self.applied.digest] = OffsetAndEpoch(epoch=epoch, offset=end_offset)

    def torn(connection: sqlite3.Connection) -> SnapshotPoint | None:
        point = snapshot_point(connection)
        (digest,) = connection.execute("SELECT digest FROM applied").fetchone()
        return point if point is None or digest not in before else point._replace(snapshot_id=before[digest])

    return [instead(MetadataTables, "commit", noting), instead(database, "snapshot_point", torn)]


@mutation("a listener gets more before it has applied what it has", "LI-04")
def given_too_early() -> list[Any]:
    """The listener's next call does not wait for the end of the previous one."""
    give_next = _Feeding._give_next

    def eager(self: _Feeding) -> bool:
        has_given = give_next(self)
        if has_given and self._is_busy and self._loading is None:
            self._is_busy = False
            self.wake()
        return has_given

    return [instead(_Feeding, "_give_next", eager)]


@mutation("a run that could not be written is skipped", "our own", faults=LOCKED)
def obstacle_forgotten() -> list[Any]:
    """When the lock is gone, the next run is applied although the one before it is missing."""

    def forgetful(self: RunWriter) -> None:
        self._obstacle.passing_reason = None
        self._end(None)

    return [instead(RunWriter, "_wait", forgetful)]


@mutation("publishers see an aborted transaction", "CT-16, CT-64", brokers=BROKERS)
def told_of_aborted() -> list[Any]:
    """Publishers receive records as they are decoded, even records that take no effect."""
    forget = transactions._forget
    aborted: list[TopicRecord] = []

    def noting(waiting: list[transactions.CommittedRun], begun: Offset, end: Offset) -> None:
        aborted.extend(
            record.topic for run in waiting for record in run.records if record.WhichOneof("record") == "topic"
        )
        forget(waiting, begun, end)

    def with_aborted(changes: Changes, end_offset: Offset) -> MetadataDelta:
        delta = delta_of(changes, end_offset)
        created = tuple(Change(None, topic) for topic in aborted)
        aborted.clear()
        return replace(delta, topics=(*delta.topics, *created))

    return [instead(transactions, "_forget", noting), instead(metadata_tables, "delta_of", with_aborted)]


@mutation("a fenced state machine answers reads", "KAFKA-14275", brokers=BROKERS, faults=DIVERGES)
def fenced_answers() -> list[Any]:
    """The state machine applies nothing more, but reads do not check that."""
    wait_applied = MetadataMachine.wait_applied

    def careless(self: MetadataMachine, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> Timer | None:
        if self.is_fenced:
            on_done(None)
            return None
        return wait_applied(self, end_offset, timeout_ms, on_done)

    return [
        instead(MetadataMachine, "wait_applied", careless),
        instead(Obstacle, "refuse_if_fenced", lambda self: None),
    ]


@mutation("a fenced state machine continues to write", "KAFKA-14275", faults=("database: a stored row changes",))
def written_after_the_fence() -> list[Any]:
    """The state machine differs from the quorum's, but continues to apply records."""
    return [instead(Obstacle, "is_final", property(lambda self: self.is_shut_down))]


@mutation("a full write-ahead log is never checked again", "our own", faults=HELD)
def checkpointer_does_not_look() -> list[Any]:
    """The reader that held the log has ended, but nothing is written that would make the log start over."""
    return [instead(Checkpointer, "_look_again", lambda self: None)]
