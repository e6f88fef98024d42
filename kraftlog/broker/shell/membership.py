"""A broker's membership of its cluster: registration (CT-33), heartbeats, controlled shutdown (CT-35).

Registration is repeated until the controller accepts it. A broker registers again if its epoch is no longer current,
because its session expired and another incarnation has registered. It stays with the cluster that accepted it first:
its own directory names that cluster at the next start, and shows whether the shutdown was clean
(`kraftlog.broker.directory`).

It is synchronous, driven by a `ControllerPort` and a `Runtime`. `kraftlog.broker.lifecycle` runs it on an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import Runtime
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.registered_epochs import RegisteredEpochs, check_follows
from kraftlog.broker.shell.attempts import Attempts
from kraftlog.broker.shell.failures import FATAL
from kraftlog.broker.shell.membership_messages import MembershipMessages
from kraftlog.broker.shell.membership_states import (
    NO_BROKER_EPOCH,
    Accepted,
    MembershipState,
    Registered,
    Released,
    Stopped,
    Unregistered,
    check_edge,
)
from kraftlog.broker.shell.ports import Answer, ControllerPort, OnAnswer
from kraftlog.telemetry.observer import Decision, RegistrationAsked, RegistrationLost, RegistrationRefused
from kraftpb.v1.admin_pb2 import (
    BrokerHeartbeatRequest,
    LogDirSpace,
    Operation,
    OperationResult,
    RegisterBrokerRequest,
)
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, SupportedFeature
from statemachine.query.descriptions import BrokerListener
from statemachine.words.features import SUPPORTED

HEARTBEAT_INTERVAL_MS: Final = 2_000
"""Kafka's `broker.heartbeat.interval.ms`."""

RETRY_MS: Final = 200
"""The pause after a failure, and between heartbeats while the broker waits to be unfenced or to be allowed to stop."""

REQUEST_TIMEOUT_MS: Final = 4_500
"""How long a heartbeat or registration may take before it is sent again, to the leader at that time: half a session, as
in Kafka. Without it the broker would wait for a hung leader until the next leader considers the broker dead."""

SHUTDOWN_TIMEOUT_MS: Final = 10_000
"""How long a controlled shutdown may take. Without a majority no controller answers, and the broker just ends."""

_REGISTER_ANEW: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


@dataclass(frozen=True, slots=True)
class Candidacy:
    """What a broker registers, the same for each incarnation."""

    broker_id: int
    listeners: Sequence[BrokerListener]
    rack: str | None
    log_dirs: Sequence[UUID]
    """The ids of the log directories."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a broker sends requests, in milliseconds."""

    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    retry_ms: int = RETRY_MS
    request_timeout_ms: int = REQUEST_TIMEOUT_MS


class MembershipHost(Protocol):
    """The broker of a membership, which the membership calls."""

    def new_incarnation(self) -> UUID:
        """Return a new id for a registration."""
        ...

    def read_metadata_offset(self, on_read: OnAnswer[int]) -> None:
        """Call back, soon, with the end offset of the metadata that the broker has applied."""
        ...

    def offline_log_dirs(self) -> Sequence[bytes]:
        """The ids of the log directories that have failed."""
        ...

    def log_dir_space(self) -> Sequence[LogDirSpace]:
        """The room in the log directories that have not failed."""
        ...

    def show_progress(self, message: str) -> None:
        """The broker has to wait for longer than a moment, or the wait has ended; `message` says for what."""
        ...

    def decided(self, decision: Decision) -> None:
        """A registration was asked for, refused or lost; for observers of the broker."""
        ...

    def registration_accepted(self, broker_epoch: int) -> None:
        """The controller has accepted a registration, and the log directories have noted it."""
        ...

    def heartbeat_answered(self, *, is_fenced: bool) -> None:
        """The controller has answered a heartbeat."""
        ...

    def released(self) -> None:
        """The controlled shutdown is done. Nothing more is sent."""
        ...

    def membership_ended(self, error: BaseException) -> None:
        """No further attempt can succeed: the broker must end."""
        ...


class Membership:
    """The membership of one process. Not thread-safe."""

    def __init__(
        self,
        *,
        candidacy: Candidacy,
        pace: Pace,
        directory: BrokerDirectory | None,
        epochs: RegisteredEpochs | None,
        controller: ControllerPort,
        runtime: Runtime,
        host: MembershipHost,
    ) -> None:
        """`directory` is the broker's own, and open; without it each start counts as one after a crash. `epochs` has
        the epoch of the last registration in each log directory (CT-38); None if the broker keeps no data."""
        self._candidacy, self._pace = candidacy, pace
        self._directory, self._epochs = directory, epochs
        self._controller, self._host = controller, host
        self._messages = MembershipMessages(candidacy.broker_id, host.show_progress, runtime.now_ms)
        self._attempts = Attempts(runtime, pace.retry_ms, self._attempt)
        self._cluster_id = None if directory is None else directory.cluster_id
        self._previous_broker_epoch = None if directory is None else directory.clean_epoch
        adopted = None if directory is None else directory.adopted_incarnation
        self._state: MembershipState = Unregistered(adopted or host.new_incarnation())
        # The cluster exists, because it accepted the broker once: after a power cut it may just start later.
        self._was_registered = self._cluster_id is not None
        self.is_leaving = False
        """Whether a controlled shutdown was asked for."""
        self.last_broker_epoch = NO_BROKER_EPOCH
        """The epoch of the last registration. Fetches carry it even while the broker registers again: with
        NO_BROKER_EPOCH a leader could not distinguish them from those of the broker's next process (KIP-903)."""

    # --- called by the broker -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register, and then send heartbeats."""
        self._attempt()

    def tell_now(self) -> None:
        """Send the next heartbeat at once: something that it reports has changed."""
        self._attempts.wake()

    def leave(self) -> None:
        """Ask for a controlled shutdown until the controller allows it, which calls `MembershipHost.released`."""
        self.is_leaving = True
        self._attempts.wake()

    def stop(self) -> None:
        """Send nothing more, like a process that dies."""
        if not isinstance(self._state, Stopped):
            self._enter(Stopped(self.broker_epoch))
        self._attempts.stop()

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration; NO_BROKER_EPOCH without one."""
        match self._state:
            case Registered(broker_epoch) | Released(broker_epoch) | Stopped(broker_epoch):
                return broker_epoch
        return NO_BROKER_EPOCH

    @property
    def clean_epoch(self) -> int | None:
        """The epoch for the next start if all logs can be closed; None if no shutdown was asked for.

        A broker that has not registered has changed nothing, so the epoch that it found is good for its next start.
        """
        return self.broker_epoch if self.is_leaving and self.broker_epoch >= 0 else self._previous_broker_epoch

    # --- attempts -----------------------------------------------------------------------------------------------------

    def _enter(self, state: MembershipState) -> None:
        check_edge(self._state, state)
        self._state = state

    def _attempt(self) -> None:
        try:
            match self._state:
                case Unregistered() if self.is_leaving:
                    self._release()  # an unregistered broker leads nothing
                case Unregistered(incarnation_id):
                    self._register(incarnation_id)
                case Registered():
                    self._send_heartbeat()
        except FATAL as error:
            self._end(error)

    def _then(self, take: Callable[[Answer], None]) -> OnAnswer[Answer]:
        """Return a callback that passes an answer to `take`, unless the membership has stopped."""

        def answered(answer: Answer | ApiError) -> None:
            if isinstance(self._state, Stopped):
                return
            try:
                if isinstance(answer, ApiError):
                    self._failed(answer)
                else:
                    take(answer)
            except FATAL as error:
                self._end(error)

        return answered

    def _failed(self, error: ApiError) -> None:
        """Handle the failure of an attempt: make another one if that may succeed, else end."""
        must_register_again = error.code in _REGISTER_ANEW
        is_final = not must_register_again and not is_passing(error, was_registered=self._was_registered)
        self._report_failure(error, must_register_again=must_register_again, is_final=is_final)
        if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self._messages.wait_for_another()
        if must_register_again:
            self._enter(Unregistered(self._host.new_incarnation()))
        elif is_final:
            self._end(error)
            return
        if error.code is ErrorCode.BROKER_NOT_AVAILABLE and self.last_broker_epoch == NO_BROKER_EPOCH:
            self._messages.wait_for_nodes(error)
        self._messages.unanswered(error, was_registered=self._was_registered)
        # When the connection breaks (`tell_now`), the next attempt follows at once: the controller may suspect that the
        # process has ended, and then waits only 100 ms for a sign of life (CT-65).
        self._attempts.pause_before_retry()

    def _report_failure(self, error: ApiError, *, must_register_again: bool, is_final: bool) -> None:
        """Report to the host what the failure means for the registration."""
        match self._state:
            case Unregistered(incarnation_id) if self._cluster_id is not None:
                self._host.decided(RegistrationRefused(incarnation_id, error.code.name, error.args[0], is_final))
            case Registered(broker_epoch) if must_register_again:
                self._host.decided(RegistrationLost(broker_epoch, error.code.name))

    def _end(self, error: BaseException) -> None:
        if not isinstance(self._state, Stopped):
            self.stop()
            self._host.membership_ended(error)

    # --- registration -------------------------------------------------------------------------------------------------

    def _register(self, incarnation_id: UUID) -> None:
        if self._cluster_id is None:
            self._controller.find_cluster(self._then(self._cluster_found))
            return
        candidacy = self._candidacy
        if self._directory is not None:
            self._directory.claim(self._cluster_id, candidacy.log_dirs[0])
        request = RegisterBrokerRequest(
            broker_id=candidacy.broker_id,
            cluster_id=self._cluster_id,
            incarnation_id=incarnation_id.bytes,
            listeners=[
                BrokerEndpoint(name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol)
                for at in candidacy.listeners
            ],
            rack=candidacy.rack,
            log_dirs=[directory_id.bytes for directory_id in candidacy.log_dirs],
            features=[
                SupportedFeature(name=found.name, min_level=found.min_level, max_level=found.max_level)
                for found in SUPPORTED
            ],
            previous_broker_epoch=self._previous_broker_epoch,
            log_dir_epochs=() if self._epochs is None else self._epochs.named(),
        )
        self._host.decided(RegistrationAsked(incarnation_id, self._previous_broker_epoch))
        self._ask(Operation(register_broker=request), self._accepted)

    def _ask(self, operation: Operation, take: Callable[[OperationResult], None]) -> None:
        self._controller.ask(operation, self._pace.request_timeout_ms, self._then(take))

    def _cluster_found(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._attempt()

    def _accepted(self, result: OperationResult) -> None:
        answer = result.register_broker
        self._enter(Accepted(answer.broker_epoch))
        registered = self._then(self._registered)
        if self._epochs is None:
            registered(answer.broker_epoch)
            return
        check_follows(self._candidacy.broker_id, answer.broker_epoch, self._epochs.named())

        def noted(error: BaseException | None) -> None:
            if error is None:
                registered(answer.broker_epoch)
            else:
                self._end(error)

        # Before any heartbeat: records that are acknowledged once the broker is unfenced belong to this epoch.
        self._epochs.store(answer.broker_epoch, answer.older_log_dirs, noted)

    def _registered(self, broker_epoch: int) -> None:
        if self._directory is not None:
            self._directory.forget_adoption()
        self._enter(Registered(broker_epoch))
        self.last_broker_epoch = broker_epoch
        self._was_registered = True
        self._previous_broker_epoch = None
        self._messages.registered(broker_epoch)
        self._host.registration_accepted(broker_epoch)
        self._send_heartbeat()

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def _send_heartbeat(self) -> None:
        self._host.read_metadata_offset(self._then(self._offset_read))

    def _offset_read(self, metadata_offset: int) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self._candidacy.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=metadata_offset,
            want_shut_down=self.is_leaving,
            offline_log_dirs=self._host.offline_log_dirs(),
            log_dir_space=self._host.log_dir_space(),
        )
        self._ask(Operation(broker_heartbeat=request), self._heartbeat_answered)

    def _heartbeat_answered(self, result: OperationResult) -> None:
        answer = result.broker_heartbeat
        self._messages.answered()
        self._host.heartbeat_answered(is_fenced=answer.is_fenced)
        if answer.should_shut_down:
            self._release()
            return
        interval_ms = self._pace.heartbeat_interval_ms
        is_waiting = answer.is_fenced or self.is_leaving  # for a change, so ask again soon
        self._attempts.pause(min(self._pace.retry_ms, interval_ms) if is_waiting else interval_ms)

    def _release(self) -> None:
        self._enter(Released(self.broker_epoch))
        self._attempts.stop()
        self._host.released()


def is_passing(error: ApiError, *, was_registered: bool) -> bool:
    """Whether another attempt may succeed: no controller exists now, or another incarnation still has a session.

    If no node answers, the addresses are wrong before the broker's first registration; after it all nodes are down. A
    node's unexpected error is that node's own once the broker is registered, and another node may lead soon.
    """
    if error.code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR):
        return was_registered
    return error.code in (
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    )
