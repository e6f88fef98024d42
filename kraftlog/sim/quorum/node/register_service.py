"""The service of a simulated node that answers clients: one register per key.

It stands in for the production controller and keeps the same rules. It is active from the time its listener is notified
that the node leads (LI-05). It decides on the store and on its own records that are not committed yet. It answers when
a record is committed and applied, and drops everything when leadership is lost. A read, or a compare-and-set that
fails, appends a record without effect and answers when that record is committed, so its answer reflects everything
before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kraftbase.errors import ApiError
from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.sim.quorum.node.state_machine import StateMachine
from kraftlog.sim.quorum.node.stepped_process import SteppedProcess
from kraftlog.sim.quorum.node.store import SimulatedStore
from kraftlog.sim.quorum.registers.history import Kind
from kraftlog.sim.quorum.registers.records import CONFIG_NAME
from kraftpb.v1.metadata_pb2 import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    MetadataBatch,
    MetadataRecord,
    NoOpRecord,
    TopicRecord,
)
from raft.core.types import LeaderAndEpoch
from statemachine.words.resources import ResourceType


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A client's request. Values are unique: a value identifies the operation that wrote it."""

    operation_id: int
    kind: Kind
    key: str
    value: str | None = None
    """The value to write."""
    expected: str | None = None
    """The value that a compare-and-set expects; None: no value."""


class Answer(StrEnum):
    """The outcome of an operation."""

    DONE = "done"
    REFUSED = "refused"
    """The operation has no effect, now or later."""
    UNKNOWN = "unknown"
    """The operation may have an effect, now or later."""


@dataclass(frozen=True, slots=True)
class ClientReply:
    """The answer to a client."""

    answer: Answer
    found: str | None = None
    """The value before the operation."""
    swapped: bool = False
    """Whether a compare-and-set wrote its value."""
    end_offset: Offset = UNKNOWN_OFFSET
    """The end offset of the operation's record."""
    leader_id: NodeId | None = None
    """The leader, if a node that does not lead refused the request."""


ABORTED_SHARE: Final = 0.3
"""The share of records without effect that are part of an aborted transaction."""

Respond = Callable[[ClientReply], None]


@dataclass(slots=True)
class _Pending:
    append_id: int
    end_offset: Offset
    reply: ClientReply
    respond: Respond
    is_committed: bool = False


class RegisterService:
    """The register service of one process."""

    def __init__(self, process: SteppedProcess, store: SimulatedStore, state_machine: StateMachine) -> None:
        self._process = process
        self._store = store
        self._state_machine = state_machine
        self._random = process.machine.new_random()
        self._epoch: Epoch | None = None
        """The epoch in which this node is active."""
        self._overlay: dict[str, tuple[Offset, str]] = {}
        """By key: this epoch's latest value that is not applied yet, and the end offset of its record."""
        self._pending: deque[_Pending] = deque()
        self._waiting: dict[int, _Pending] = {}

    def handle(self, request: ClientRequest, respond: Respond) -> None:
        """Carry out an operation; call `respond` with the answer."""
        shell = self._process.shell
        epoch = self._epoch
        if epoch is None:
            respond(ClientReply(Answer.REFUSED, leader_id=shell.replica.leader_and_epoch.leader_id))
            return
        found = self._value(request.key)
        writes = request.kind is Kind.WRITE or (request.kind is Kind.COMPARE_AND_SET and found == request.expected)
        append_id = shell.new_id()
        pending = _Pending(append_id, Offset(-1), ClientReply(Answer.UNKNOWN), respond)
        self._waiting[append_id] = pending
        records = [_written(request)] if writes else self._without_effect()
        try:
            body = MetadataBatch(records=records).SerializeToString()
            base_offset = shell.prepare_append(append_id, epoch, body, len(records))
        except ApiError as error:
            del self._waiting[append_id]
            self._process.host.marks.hit(f"error: {error.code.name}")
            respond(ClientReply(Answer.REFUSED))
            return
        pending.end_offset = Offset(base_offset + len(records))
        pending.reply = ClientReply(
            Answer.DONE,
            found=found,
            swapped=writes and request.kind is Kind.COMPARE_AND_SET,
            end_offset=pending.end_offset,
        )
        if append_id in self._waiting:
            self._pending.append(pending)
        if writes and request.value is not None:
            self._overlay[request.key] = (pending.end_offset, request.value)
        shell.schedule_appends()

    def _without_effect(self) -> list[MetadataRecord]:
        """Return a record without effect, or an aborted metadata transaction, which must have no visible effect."""
        if self._random.random() >= ABORTED_SHARE:
            return [MetadataRecord(no_op=NoOpRecord())]
        self._process.host.marks.hit("a metadata transaction was aborted")
        topic = TopicRecord(name="aborted", topic_id=self._random.randbytes(16))
        return [
            MetadataRecord(begin_transaction=BeginTransactionRecord(name="aborted")),
            MetadataRecord(topic=topic),
            MetadataRecord(abort_transaction=AbortTransactionRecord(reason="a read has no effect")),
        ]

    def append_completed(self, append_id: int, error: ApiError | None) -> None:
        """Handle the outcome of an append: it is committed, or leadership was lost before that."""
        pending = self._waiting.pop(append_id)
        if error is None:
            pending.is_committed = True
            self._answer_applied()
        else:
            self._process.host.marks.hit(f"error: {error.code.name}")
            if pending in self._pending:
                self._pending.remove(pending)
            pending.respond(ClientReply(Answer.UNKNOWN))

    def applied(self, end_offset: Offset) -> None:
        """Drop overlay entries below `end_offset`, which the tables now hold. Send the answers that waited for them."""
        self._overlay = {key: entry for key, entry in self._overlay.items() if entry[0] > end_offset}
        self._answer_applied()

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Become active if this node leads, else inactive. The overlay is cleared."""
        self._overlay.clear()
        is_leader = leader_and_epoch.leader_id == self._process.machine.key.node_id
        self._epoch = leader_and_epoch.epoch if is_leader else None

    def shut_down(self) -> None:
        """Become inactive: refuse every further operation."""
        self._epoch = None

    def _answer_applied(self) -> None:
        applied_end_offset = self._state_machine.applied_end_offset
        while self._pending and self._pending[0].is_committed and self._pending[0].end_offset <= applied_end_offset:
            pending = self._pending.popleft()
            pending.respond(pending.reply)

    def _value(self, key: str) -> str | None:
        if key in self._overlay:
            return self._overlay[key][1]
        return self._process.machine.database.value(self._store.tables, key)


def _written(request: ClientRequest) -> MetadataRecord:
    record = ConfigRecord(
        resource_type=int(ResourceType.TOPIC), resource_name=request.key, name=CONFIG_NAME, value=request.value
    )
    return MetadataRecord(config=record)
