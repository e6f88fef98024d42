"""What a broker's membership has around it on its machine (`kraftlog.broker.shell.membership.MembershipHost`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol
from uuid import UUID

from kraftbase.errors import ApiError, ErrorCode, FlushFailed, KraftlogError, StorageError
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.registered_epochs import RegisteredEpochs
from kraftlog.broker.shell.controller_requests import ControllerRequests
from kraftlog.broker.shell.directory_assignments import AssignmentsPace, DirectoryAssignments
from kraftlog.broker.shell.maintenance import Maintenance, MaintenanceIntervals
from kraftlog.broker.shell.membership import Candidacy, Membership, Pace
from kraftlog.broker.shell.ports import OnAnswer, OnResult
from kraftlog.sim.broker_log.process import BrokerProcess
from kraftlog.sim.marks import Marks
from kraftlog.sim.replication.broker import Broker
from kraftlog.sim.replication.parameters import ReplicationParameters
from kraftpb.v1 import admin_pb2
from statemachine.query.descriptions import BrokerListener
from statemachine.words.config_definitions import PRODUCER_EXPIRATION

RETRY_MS: Final = 100
REQUEST_TIMEOUT_MS: Final = 800
"""Both are less than in a process: sessions are short here."""

RETENTION_CHECK_MS: Final = 2_000
PRODUCERS_CHECK_MS: Final = 5_000

_REGISTER_ANEW: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class Surroundings(Protocol):
    """The machine that a broker is on."""

    broker_id: int
    marks: Marks

    @property
    def parameters(self) -> ReplicationParameters:
        """Of the run."""
        ...

    @property
    def metadata_end_offset(self) -> int:
        """What the broker has applied."""
        ...

    def new_incarnation(self) -> UUID:
        """An id that no registration has had."""
        ...

    def ask_controller(self, operation: admin_pb2.Operation, timeout_ms: int, on_result: OnResult) -> None:
        """Ask the controller for something, in the process that runs now."""
        ...

    def registered(self) -> None:
        """The broker has an epoch."""
        ...

    def give_up(self) -> None:
        """The broker cannot go on: end it."""
        ...

    def close(self) -> None:
        """The controller has given the broker's leaderships to others: end it in order."""
        ...


class Member:
    """One process, as its membership and the controller see it."""

    def __init__(
        self, machine: Surroundings, process: BrokerProcess, broker: Broker, directory: BrokerDirectory,
        epochs: RegisteredEpochs,
    ) -> None:  # fmt: skip
        self._machine = machine
        self._broker = broker
        self._directory = directory
        parameters = machine.parameters
        self.maintenance = Maintenance(
            broker.logs, broker.partitions,
            MaintenanceIntervals(
                retention_ms=RETENTION_CHECK_MS, checkpoint_ms=parameters.checkpoint_interval_ms,
                high_watermarks_ms=parameters.checkpoint_interval_ms, isr_ms=parameters.lag_max_ms / 2,
                producers_ms=PRODUCERS_CHECK_MS, room_ms=parameters.heartbeat_interval_ms,
            ),
            lambda: int(broker.configs.broker_value(PRODUCER_EXPIRATION)), process, self._failed,
        )  # fmt: skip
        self.was_unfenced = False
        """Whether it was told so since it registered."""
        broker_id = machine.broker_id
        self.membership = Membership(
            candidacy=Candidacy(
                broker_id,
                [BrokerListener("PLAINTEXT", f"broker-{broker_id}", 9092)],
                f"rack-{broker_id % 2}",
                [of.directory_id for of in epochs.directories],
            ),
            pace=Pace(parameters.heartbeat_interval_ms, RETRY_MS, REQUEST_TIMEOUT_MS),
            directory=directory, epochs=epochs, controller=self, runtime=process, host=self,
        )  # fmt: skip
        self.requests = ControllerRequests(
            self, broker_id, lambda: self.membership.last_broker_epoch, broker.configs.broker_value, REQUEST_TIMEOUT_MS
        )
        self.assignments = DirectoryAssignments(
            broker_id, lambda: self.membership.last_broker_epoch, self, process,
            AssignmentsPace(REQUEST_TIMEOUT_MS, RETRY_MS),
        )  # fmt: skip

    def start(self) -> None:
        """Register, if there is a log directory."""
        if self._broker.logs.online:
            self.membership.start()
        else:
            self._machine.give_up()

    def close(self) -> bool:
        """Close the logs, and say that the shutdown was clean, if it was; returns whether it was."""
        clean_epoch = self.membership.clean_epoch
        is_clean = self._broker.logs.close(UNKNOWN_EPOCH if clean_epoch is None else clean_epoch)
        self.membership.stop()
        try:
            self._directory.close(clean_epoch if is_clean else None)
        except (StorageError, FlushFailed):
            return False  # there is no room: the next start counts as one after a crash
        return is_clean

    # --- the controller (`ControllerPort`) ----------------------------------------------------------------------------

    def ask(
        self, operation: admin_pb2.Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False
    ) -> None:
        """Over the wire."""

        def answered(result: admin_pb2.OperationResult | ApiError) -> None:
            self._mark(operation, result)
            on_result(result)

        operation.timeout_ms = timeout_ms
        self._machine.ask_controller(operation, timeout_ms, answered)

    def _mark(self, operation: admin_pb2.Operation, result: admin_pb2.OperationResult | ApiError) -> None:
        marks = self._machine.marks
        if isinstance(result, ApiError):
            if operation.HasField("broker_heartbeat") and result.code in _REGISTER_ANEW:
                marks.hit("a broker had to register again")
            if operation.HasField("alter_partition"):
                marks.hit(f"an ISR was not changed: {result.code.name}")
            return
        for one in result.alter_partition.partitions:
            marks.hit(f"an ISR was changed: {ErrorCode(one.error_code).name}")
        if result.register_broker.older_log_dirs:
            marks.hit("an older copy of a disk was found")

    submit = ask

    def find_cluster(self, on_found: OnAnswer[str]) -> None:
        """It knows its cluster."""
        raise NotImplementedError

    # --- its membership -----------------------------------------------------------------------------------------------

    def new_incarnation(self) -> UUID:
        """An id that no registration has had."""
        return self._machine.new_incarnation()

    def read_metadata_offset(self, on_read: OnAnswer[int]) -> None:
        """What it has applied, once it serves."""
        on_read(self._machine.metadata_end_offset if self._broker.is_serving else 0)

    def offline_log_dirs(self) -> Sequence[bytes]:
        """The ids of the directories that have failed since the start."""
        return self._broker.offline_directories()

    def log_dir_space(self) -> Sequence[admin_pb2.LogDirSpace]:
        """The room in the others."""
        return self.maintenance.room.told()

    def tell(self, message: str) -> None:
        """Nobody listens."""

    def registration_accepted(self, broker_epoch: int) -> None:
        """It has an epoch."""
        self.was_unfenced = False
        if self._broker.is_serving:
            self._broker.epoch = broker_epoch
        self._machine.registered()

    def heartbeat_answered(self, *, is_fenced: bool) -> None:
        """The controller has answered a heartbeat."""
        if not is_fenced and not self.membership.is_leaving:
            self.was_unfenced = True

    def released(self) -> None:
        """The controller has given its leaderships to others."""
        self._machine.close()

    def membership_ended(self, error: BaseException) -> None:
        """It cannot go on."""
        self._failed(error)

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, KraftlogError | FlushFailed):
            raise error
        self._machine.give_up()
