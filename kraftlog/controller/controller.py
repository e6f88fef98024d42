"""The active controller: it turns operations into records, and answers when they are committed (CT-10).

An answered operation is applied here before this node answers another read of its admin service.

An operation is validated against the latest state (store and overlay), makes its records, prepares their append, enters
the overlay, and waits (CT-10). Work that needs more records than one batch holds, such as a broker's departure, is done
page by page, each decided on the latest state (CT-12). A controller is active from the moment that its own state
machine, level with the log, learns that this node leads (LI-05), until it learns of another leader or an append is
refused (CT-13, CT-15).

An answer with an error and an end offset of 0 or more means that the records were passed to the log and may still be
committed; with -1, nothing was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Final

import structlog

from kraftbase.checks import check
from kraftbase.errors import ApiError, ErrorCode, InvariantViolation
from kraftbase.runtime import Runtime
from kraftbase.said_once import SaidOnce
from kraftbase.types import Epoch, Offset
from kraftlog.controller.broker_control import note_contact
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.controller.dead_brokers import Connect, DeadBrokers
from kraftlog.controller.decisions import Decision, DecisionContext
from kraftlog.controller.dispatch import decide
from kraftlog.controller.metadata_log import MetadataLog
from kraftlog.controller.operations.activation import activation_records
from kraftlog.controller.overlay import Overlay
from kraftlog.controller.paged_writes import PagedWrites
from kraftlog.controller.pending_operations import (
    OnResult,
    PendingOperation,
    PendingOperations,
    PreparedAppend,
    failure,
    not_controller,
)
from kraftlog.controller.periodic_tasks import PeriodicTasks
from kraftlog.controller.rules.broker_heartbeats import BrokerHeartbeats
from kraftlog.controller.rules.quota import MutationQuotas
from kraftlog.controller.submission import Submission
from kraftpb.v1.admin_pb2 import Operation
from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from raft.core.types import LeaderAndEpoch
from statemachine.apply.applied import CommittedMetadata, StateMachine
from statemachine.metadata.state import MetadataState
from statemachine.replay.replay import ReplayError
from statemachine.words.limits import (
    NOTHING_WRITTEN,
    OPERATION_TIMEOUT_MS_DEFAULT,
    OPERATION_TIMEOUT_MS_MAX,
    OPERATIONS_WAITING_MAX,
    check_record_count,
)
from statemachine.words.record_versions import in_version

logger = structlog.get_logger(__name__)


def log_bug(message: str, **details: object) -> None:
    """Log a bug of the controller, with the exception that is being handled."""
    logger.exception(message, **details)


class Controller:
    """The controller of one node. Used on the event loop only."""

    def __init__(
        self,
        log: MetadataLog,
        store: CommittedMetadata,
        machine: StateMachine,
        *,
        runtime: Runtime,
        random: Random,
        config: ControllerConfig | None = None,
        on_bug: Callable[..., None] = log_bug,
        connect: Connect | None = None,
    ) -> None:
        """`on_bug` is called like `log_bug` when a decision meets a bug of this program; the controller continues.
        `connect` tries connections to listeners of brokers; without it a dead broker keeps its session.
        """
        self.on_bug = on_bug
        self._log = log
        self._machine = machine
        self._runtime = runtime
        self._overlay = Overlay(store)
        self.state: Final = MetadataState(self._overlay)
        """The latest metadata, as long as this controller is active."""
        config = config or ControllerConfig()
        heartbeats = BrokerHeartbeats(config.broker_session_timeout_ms)
        quotas = MutationQuotas(config.controller_mutation_rate, config.controller_mutation_burst)
        self._context = DecisionContext(
            cluster_id=log.cluster_id,
            other_voter_ids=lambda: log.voter_ids - {log.node_key.node_id},
            random=random,
            runtime=runtime,
            heartbeats=heartbeats,
            config=config,
            mutation_quotas=quotas,
        )
        self._periodic_tasks = PeriodicTasks(self, self._context)
        self.dead_brokers: Final = DeadBrokers(self, self._context, connect)
        self._pending = PendingOperations(log, machine, runtime)
        self._paged_writes = PagedWrites(self, self._pending, runtime)
        self._waits = SaidOnce()
        self._epoch: Epoch | None = None
        self.last_append: PreparedAppend | None = None
        """The last append; None if everything is applied."""
        self.no_room_reason: str | None = None
        """Why the log refused the last append for lack of room, None if it did not."""
        machine.subscribe(self)
        # No operation is in a metadata transaction, which could still be aborted: activation writes all of one (CT-16).
        machine.set_commit_callback(self._pending.in_hand)

    @property
    def is_active(self) -> bool:
        """Whether this controller is active, as far as it knows."""
        return self._epoch is not None

    @property
    def has_pages(self) -> bool:
        """Whether pages of records are still to be appended."""
        return bool(self._paged_writes)

    @property
    def unavailable_reason(self) -> str | None:
        """Why committed records cannot be applied here, None while they can."""
        return self._machine.unavailable_reason

    @property
    def next_append_offset(self) -> Offset:
        """The log end offset, prepared appends included."""
        return self._log.next_append_offset

    # --- operations ---------------------------------------------------------------------------------------------------

    def submit(
        self, operations: Iterable[Operation], on_result: OnResult, on_taken: Callable[[], None] = lambda: None
    ) -> Submission:
        """Carry out `operations` in order; `on_result` gets the answer to each, at the latest at its timeout.
        `on_taken` is called when all are decided on, immediately if they are few. Operations that arrive together are
        appended together. An operation that has waited longer than its timeout for its turn is not carried out (CT-19).
        `on_result` must not raise, and must not call back into the controller.
        """
        submission = Submission(self, self._runtime, operations, on_result, on_taken)
        submission.take_slice()
        return submission

    def schedule(self) -> None:
        """Write everything that was appended."""
        if self._epoch is not None:
            self._log.schedule_appends()

    def process(self, operation: Operation, on_result: OnResult, arrived_ms: float | None = None) -> None:
        """Carry out one operation, which arrived at `arrived_ms`, None: now. `schedule` must follow.

        `on_result` may be called at once.
        """
        deadline_ms = self._runtime.now_ms() if arrived_ms is None else arrived_ms
        deadline_ms += operation.timeout_ms or OPERATION_TIMEOUT_MS_DEFAULT
        try:
            decision = self._decide(operation, deadline_ms)
            end_offset = self._append_first(decision)
        except ApiError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.renounce()
                error = not_controller("this node has just stopped leading")
            on_result(failure(self._log, operation.correlation_id, error.code, error.args[0]))
            return
        except Exception:
            self.on_bug("an operation met a bug", operation=operation.WhichOneof("operation"))
            message = "the controller failed on this operation; see its log"
            on_result(failure(self._log, operation.correlation_id, ErrorCode.UNKNOWN_SERVER_ERROR, message))
            return
        result = decision.result
        result.correlation_id, result.end_offset = operation.correlation_id, end_offset
        pending = PendingOperation(result, on_result, deadline_ms)
        if decision.pages is None or not decision.answer_waits_for_pages:
            self._pending.add(pending, self.last_append)
            self._paged_writes.begin(decision)
        else:
            self._pending.add_paged(pending)
            self._paged_writes.begin(decision, pending)

    def execute(self, decision: Decision) -> bool:
        """Append the records of the controller's own decision; return False if it has to wait."""
        if self._epoch is None or self.unavailable_reason is not None:
            return False
        try:
            self._append_first(decision)
        except ApiError as error:
            if self._waits.begins():
                logger.warning("a task of the controller has to wait", reason=str(error))
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.renounce()
            return False
        self._waits.ends()
        self._paged_writes.begin(decision)
        self.schedule()
        return True

    def _append_first(self, decision: Decision) -> Offset:
        """Append the records of a decision, if there are any. Raises ApiError."""
        end_offset = self.append(decision.records).end_offset if decision.records else Offset(NOTHING_WRITTEN)
        decision.on_appended(self._log.next_append_offset)
        self._periodic_tasks.watch_sessions()
        return end_offset

    def _decide(self, operation: Operation, deadline_ms: float) -> Decision:
        """The decision on the operation. Raises ApiError."""
        if self._epoch is None or self._log.leader_and_epoch != (self._log.node_key.node_id, self._epoch):
            self.renounce()  # the log may learn of a new leader before the state machine is notified
            raise not_controller("this node is not the active controller")
        if not 0 <= operation.timeout_ms <= OPERATION_TIMEOUT_MS_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"the timeout is {operation.timeout_ms} ms; it must be between 0 and {OPERATION_TIMEOUT_MS_MAX}",
            )
        operation.DiscardUnknownFields()  # rows do not keep them, and digests must not depend on them
        if operation.HasField("broker_heartbeat"):  # whatever the result: a broker that sends is alive
            note_contact(self.state, operation.broker_heartbeat, self._context)
        if deadline_ms <= self._runtime.now_ms():
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "timed out before its turn; nothing was written: try again")
        self._machine.refuse_if_fenced()
        if self.unavailable_reason is not None:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"this node cannot apply what is committed: {self.unavailable_reason}; fix that and try again",
            )
        if len(self._pending) >= OPERATIONS_WAITING_MAX:
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{OPERATIONS_WAITING_MAX} operations are waiting; try again later"
            )
        return decide(self.state, operation, self._context, self._log.next_append_offset)

    def append(self, records: Sequence[MetadataRecord]) -> PreparedAppend:
        """Prepare the append of `records` and add them to the overlay. Raises ApiError. Records that cannot be applied
        are UNKNOWN_SERVER_ERROR, and none is written.
        """
        epoch = self._epoch
        if epoch is None:
            raise not_controller("this node is not the active controller")
        check_record_count(len(records))
        version = self.state.metadata_version
        records = [in_version(record, version) for record in records]
        base_offset = self._log.next_append_offset
        prepared = PreparedAppend(Offset(base_offset + len(records)))
        body = MetadataBatch(records=records).SerializeToString()
        on_settled = partial(self._pending.append_settled, prepared)
        try:
            given_offset = self._log.prepare_append(epoch, body, len(records), on_settled)
        except ApiError as error:
            self.no_room_reason = str(error) if error.code is ErrorCode.KAFKA_STORAGE_ERROR else None
            raise
        self.no_room_reason = None
        try:
            check(given_offset == base_offset, "an append gets the offset it was given", base_offset=base_offset)
            self._overlay.replay(records, prepared.end_offset)
        except ReplayError as error:
            # A bug of a decision. Once written the records would stop every node at each of its starts. What is
            # prepared is not written before `schedule`, and is dropped with leadership; so is the overlay, which holds
            # a part of it. Kafka ends the process here (CT-18); then every retry ends one more.
            self.on_bug("a decision's records cannot be applied; nothing was written, and this node resigns")
            self.renounce()
            self._log.resign(epoch)
            message = "the controller made records that cannot be applied, and wrote nothing; see its log"
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from error
        except BaseException as error:
            # The overlay differs from the future log: no further decision may use it (CT-15, CT-18).
            self.renounce()
            self._log.resign(epoch)
            self._log.fatal(error)
            raise InvariantViolation("the overlay does not follow the log") from error
        self.last_append = prepared
        self._context.written.count(records)
        self._periodic_tasks.appended()
        return prepared

    # --- leadership ---------------------------------------------------------------------------------------------------

    def applied(self, end_offset: Offset) -> None:
        """The store has everything below `end_offset`."""
        self._overlay.drain(end_offset)
        if end_offset >= self._overlay.last_end_offset:
            self.last_append = None
        self._pending.in_hand(end_offset)

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Become active if this node leads; otherwise stop (CT-14, CT-15)."""
        self.renounce()
        if leader_and_epoch.leader_id != self._log.node_key.node_id:
            return
        self._overlay.clear()  # of cached reads from while another controller changed the store
        self._epoch = leader_and_epoch.epoch
        self.no_room_reason = None
        self._waits.ends()
        logger.info("controller active", epoch=leader_and_epoch.epoch)
        try:
            for records in activation_records(self.state, has_open_transaction=self._machine.has_open_transaction):
                self.append(records)
        except ApiError as error:
            logger.warning("the controller cannot append what it begins with", reason=str(error))
            self.renounce()
            self._log.resign(leader_and_epoch.epoch)
            return
        self.schedule()
        self.dead_brokers.clear()
        self._periodic_tasks.start()

    def shut_down(self) -> None:
        """Stop the controller when the node closes."""
        self.renounce()
        self._pending.close()

    def resign(self) -> None:
        """Resign, so that another node can lead: this one cannot continue."""
        epoch = self._epoch
        if epoch is not None:
            self.renounce()
            self._log.resign(epoch)

    # Consider nodes 1, 2 and 3. Node 1 leads epoch 5 and has applied everything below 100. These are in flight:
    #
    #     A   offsets 100 and 101, committed, not applied here yet
    #     B   CreateTopics, offsets 102 and 103, on the disk of node 1 only, as far as it knows
    #     C   the same CreateTopics again: refused because of B, nothing written
    #     D   a job whose first page has offsets 104 to 303, and whose others are still to come
    #
    # Node 2 is elected in epoch 6, and node 1 learns of it. A is answered with success when node 1 has applied it, as
    # if nothing had happened. B is answered with NOT_CONTROLLER and the end offset 104: it may or may not be carried
    # out. Node 2 may have fetched 102 and 103 before it was elected; then it commits them. If not, node 1 truncates
    # them when it follows node 2. The client cannot know which, so it must check before it tries again. C is answered
    # with NOT_CONTROLLER and the end offset -1: it wrote nothing and may be tried again. D is answered like B. Node 2
    # has to find and finish its remaining pages.
    #
    # The overlay is dropped at once. If node 1 is elected again, its store has applied all that node 2 committed before
    # it decides anything (LI-05), whether B is among it or not.
    def renounce(self) -> None:
        """Stop deciding, drop the overlay, fail uncommitted operations; committed ones only wait to be applied."""
        if self._epoch is None:
            return
        logger.info("controller no longer active", epoch=self._epoch, waiting=len(self._pending))
        self._epoch = None
        self._periodic_tasks.stop()
        self.dead_brokers.clear()
        self._paged_writes.drop()
        self._overlay.clear()
        self.last_append = None
        self._pending.leadership_lost()
