"""A broker's life with the controller: it registers, sends heartbeats, tells where replicas are, leaves.

As `kraftlog.broker.lifecycle` and `kraftlog.broker.directory_assignments` have it, which need an event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol
from uuid import UUID

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.log_dir_space import LogDirRoom
from kraftlog.broker.registered_epochs import RegisteredEpochs
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.sim.broker_log.process import BrokerProcess
from kraftlog.sim.marks import Marks
from kraftlog.sim.replication.broker import Broker
from kraftlog.sim.replication.metadata_log import CLUSTER_ID
from kraftlog.sim.virtual.event_queue import MICROSECONDS_PER_MS
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, SupportedFeature
from statemachine.words.features import SUPPORTED

RETRY_US: Final = 100 * MICROSECONDS_PER_MS
REQUEST_TIMEOUT_MS: Final = 800

_REGISTER_ANEW: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)

OnResult = Callable[[admin_pb2.OperationResult | ApiError], None]


class Member(Protocol):
    """The machine that a broker is on."""

    broker_id: int
    marks: Marks
    heartbeat_interval_us: int

    @property
    def metadata_end_offset(self) -> int:
        """What the broker has applied."""
        ...

    def new_incarnation(self) -> bytes:
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


class Membership:
    """Of one process."""

    def __init__(
        self, member: Member, process: BrokerProcess, broker: Broker, clean_epoch: int | None, epochs: RegisteredEpochs
    ) -> None:
        """`clean_epoch` is what the last shutdown has left, if that was clean."""
        self._epochs = epochs
        self._member = member
        self._process = process
        self._broker = broker
        self._room = LogDirRoom(broker.logs)
        self._incarnation = member.new_incarnation()
        self._clean_epoch = clean_epoch
        self._placed: dict[Partition, bytes] = {}
        self.epoch = -1
        """Of its registration; -1 while it has none."""
        self.was_unfenced = False
        """Whether it was told so since it registered."""
        self.is_leaving = False
        """Whether it is in its controlled shutdown."""

    def _ask(self, operation: admin_pb2.Operation, on_result: OnResult) -> None:
        operation.timeout_ms = REQUEST_TIMEOUT_MS
        self._member.ask_controller(operation, REQUEST_TIMEOUT_MS, on_result)

    # --- registration and heartbeats ----------------------------------------------------------------------------------

    def register(self) -> None:
        """Register until the controller accepts it, and send heartbeats from then on."""
        directories = [directory.directory_id.bytes for directory in self._epochs.directories]
        if not self._broker.logs.online:
            self._member.give_up()
            return
        broker_id = self._member.broker_id
        request = admin_pb2.RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=self._incarnation,
            listeners=[BrokerEndpoint(name="PLAINTEXT", host=f"broker-{broker_id}", port=9092)],
            rack=f"rack-{broker_id % 2}",
            log_dirs=directories,
            features=[
                SupportedFeature(name=one.name, min_level=one.min_level, max_level=one.max_level) for one in SUPPORTED
            ],
            previous_broker_epoch=self._clean_epoch,
            log_dir_epochs=self._epochs.named(),
        )
        self._ask(admin_pb2.Operation(register_broker=request), self._registered)

    def _registered(self, result: admin_pb2.OperationResult | ApiError) -> None:
        if isinstance(result, ApiError):
            self._process.after(RETRY_US, self.register)
            return
        if result.register_broker.older_log_dirs:
            self._member.marks.hit("an older copy of a disk was found")
        self._epochs.note_in_inventories(result.register_broker.broker_epoch)
        for directory, error in self._epochs.write(result.register_broker.broker_epoch):
            directory.fail(error)
        self.epoch = result.register_broker.broker_epoch
        self.was_unfenced = False
        self._clean_epoch = None
        if self._broker.is_serving:
            self._broker.epoch = self.epoch
        self._member.registered()
        self._heartbeat()

    def _heartbeat(self) -> None:
        self._room.measure()
        request = admin_pb2.BrokerHeartbeatRequest(
            broker_id=self._member.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._member.metadata_end_offset if self._broker.is_serving else 0,
            want_shut_down=self.is_leaving,
            offline_log_dirs=self._broker.offline_directories(),
            log_dir_space=self._room.told(),
        )
        self._ask(admin_pb2.Operation(broker_heartbeat=request), self._answered)

    def _answered(self, result: admin_pb2.OperationResult | ApiError) -> None:
        delay_us = RETRY_US
        if isinstance(result, ApiError):
            if result.code in _REGISTER_ANEW:
                self._member.marks.hit("a broker had to register again")
                self._incarnation = self._member.new_incarnation()
                self.epoch = -1  # its fetches have the old one until it has another
                self._process.after(RETRY_US, self.register)
                return
        elif result.broker_heartbeat.should_shut_down and self.is_leaving:
            self._member.close()
            return
        elif not result.broker_heartbeat.is_fenced and not self.is_leaving:
            self.was_unfenced = True
            delay_us = self._member.heartbeat_interval_us
        self._process.after(delay_us, self._heartbeat)

    # --- what else the controller is asked for ------------------------------------------------------------------------

    def alter_partition(
        self,
        request: admin_pb2.AlterPartitionRequest,
        on_answer: Callable[[admin_pb2.AlterPartitionResponse | ApiError], None],
    ) -> None:
        """The controller, as leaders on this broker reach it."""

        def answered(result: admin_pb2.OperationResult | ApiError) -> None:
            marks = self._member.marks
            if isinstance(result, ApiError):
                marks.hit(f"an ISR was not changed: {result.code.name}")
                on_answer(result)
                return
            for one in result.alter_partition.partitions:
                marks.hit(f"an ISR was changed: {ErrorCode(one.error_code).name}")
            on_answer(result.alter_partition)

        self._ask(admin_pb2.Operation(alter_partition=request), answered)

    def replica_placed(self, partition: Partition, directory_id: UUID) -> None:
        """Tell the controller in which log directory a replica is, until it knows."""
        replicas, directories = list(partition.record.replicas), partition.record.directories
        at = replicas.index(self._member.broker_id)
        if at < len(directories) and directories[at] == directory_id.bytes:
            self._placed.pop(partition, None)
            return
        self._placed[partition] = directory_id.bytes
        if len(self._placed) == 1:
            self._process.after(1, self._tell_places)

    def _tell_places(self) -> None:
        told = dict(self._placed)
        if not told:
            return
        assignments = [
            admin_pb2.DirectoryAssignment(
                topic_id=partition.topic_id, partition_id=partition.index, directory_id=directory_id
            )
            for partition, directory_id in told.items()
        ]
        request = admin_pb2.AssignReplicasToDirsRequest(
            broker_id=self._member.broker_id, broker_epoch=self.epoch, assignments=assignments
        )

        def answered(result: admin_pb2.OperationResult | ApiError) -> None:
            if not isinstance(result, ApiError):
                for partition, directory_id in told.items():
                    if self._placed.get(partition) == directory_id:
                        del self._placed[partition]
            if self._placed:
                self._process.after(RETRY_US, self._tell_places)

        self._ask(admin_pb2.Operation(assign_replicas_to_dirs=request), answered)
