"""A broker's process: the production shell, and its ports to the machine, the wire and the metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol
from uuid import UUID

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.broker.api_table import RECORD_APIS, handlers
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.apis.services import RecordServices
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.dispatch import KEYS
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.broker.shell.broker_shell import BrokerShell, ShellPorts, ShellSettings
from kraftlog.broker.shell.broker_states import ControlledShutdown
from kraftlog.broker.shell.directory_assignments import AssignmentsPace
from kraftlog.broker.shell.maintenance import MaintenanceIntervals
from kraftlog.broker.shell.membership import Pace
from kraftlog.broker.shell.membership_states import NO_BROKER_EPOCH
from kraftlog.broker.shell.opening import LogConfigs, LogsToOpen
from kraftlog.broker.shell.parts import Parts, PartsSettings
from kraftlog.broker.shell.ports import OnAnswer, OnResult
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import ClientRequest, ConnectionRefused, Handler, Reply, RequestContext
from kraftlog.replicas.partitions.fetch_sessions import FetchSessionCache
from kraftlog.replicas.partitions.leader_throttle import LeaderThrottle
from kraftlog.replicas.partitions.partitions import Partitions
from kraftlog.replicas.partitions.replica_choice import RackAwareChoice
from kraftlog.replicas.replication.follower import FetchSettings
from kraftlog.replicas.replication.ports import LeaderConnector
from kraftlog.sim.broker_log.process import BrokerProcess
from kraftlog.sim.broker_log.shell_ports import OpenNetwork, TablesFeed
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.replication.decisions import SeenDecisions, SeenLeaderships
from kraftlog.sim.replication.metadata_log import CLUSTER_ID
from kraftlog.sim.replication.parameters import ReplicationParameters
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.log_manager import LogManager
from kraftlog.telemetry.counting import CountingObserver
from kraftlog.telemetry.observer import Observers
from kraftlog.telemetry.registry import Registry
from kraftpb.v1 import admin_pb2
from raft.listener import CommittedBatch
from statemachine.query.descriptions import BrokerListener
from statemachine.store.metadata_tables import MetadataTables

FETCH: Final = 1
OWN_DIRECTORY: Final = "broker"

RETRY_MS: Final = 100
REQUEST_TIMEOUT_MS: Final = 800
SHUTDOWN_TIMEOUT_MS: Final = 4_000
"""All three are shorter than in a real process, because sessions are short here."""
RETENTION_CHECK_MS: Final = 2_000
PRODUCERS_CHECK_MS: Final = 5_000

_REGISTER_ANEW: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
_CONTEXT: Final = RequestContext("127.0.0.1", "PLAINTEXT", "simulated")


class BrokerMachine(Protocol):
    """The interface of a broker's process to its machine."""

    broker_id: int
    process: BrokerProcess
    marks: Marks
    tables: MetadataTables
    """The metadata that this broker has applied."""

    @property
    def files(self) -> MemoryFileSystem:
        """The files of the machine's disk."""
        ...

    @property
    def present_log_paths(self) -> list[str]:
        """The log directories of the broker that are present."""
        ...

    def new_id(self) -> UUID:
        """Return a unique id."""
        ...

    def new_number(self) -> int:
        """Return a number that is unique on this machine."""
        ...

    def new_incarnation(self) -> UUID:
        """Return an id that no registration has had."""
        ...

    def ask_controller(self, operation: admin_pb2.Operation, timeout_ms: int, on_result: OnResult) -> None:
        """Send an operation to the controller, for the process that runs now."""
        ...

    def close_connections(self) -> None:
        """Close the broker's connections: each client that waits for an answer gets an error."""
        ...

    def opened(self, broker: Broker) -> None:
        """Record that the broker's logs are open."""
        ...

    def serving(self, broker: Broker) -> None:
        """Record that the broker has taken its partitions over."""
        ...

    def closed(self, error: BaseException | None, *, is_clean: bool) -> None:
        """Record that the broker has shut down."""
        ...


class SmallSegments(TopicConfigs):
    """The configs of topics, with segments that are smaller than any configurable size."""

    def __init__(self, broker_id: int, parameters: ReplicationParameters) -> None:
        super().__init__(broker_id, {})
        self._segment_bytes = parameters.segment_bytes

    def log_config(self, topic: str) -> PartitionLogConfig:
        """Return the config of a topic's logs."""
        return replace(super().log_config(topic), segment_bytes=self._segment_bytes, index_interval_bytes=150)


class Broker:
    """A broker: the ports and the host of its shell."""

    def __init__(self, machine: BrokerMachine, parameters: ReplicationParameters, connector: LeaderConnector) -> None:
        """Lock the broker's own directory. Raises StorageError, FlushFailed."""
        self.process = process = machine.process
        self._machine = machine
        self._parameters = parameters
        self._feed = TablesFeed(process, machine.tables)
        self._network = OpenNetwork(process, machine.close_connections)
        self._unfenced_epoch = NO_BROKER_EPOCH
        self._parts: Parts | None = None
        self._handlers: Mapping[int, Handler] = {}
        self.cluster = ClusterView(CLUSTER_ID)
        self.configs = SmallSegments(machine.broker_id, parameters)
        directory = BrokerDirectory.open(machine.files, OWN_DIRECTORY, machine.broker_id)
        directory.claim(CLUSTER_ID, directory.directory_id or machine.new_id())
        registry, self.decisions = Registry(), SeenDecisions()
        self.leaderships = SeenLeaderships(str(machine.broker_id))
        ports = ShellPorts(
            runtime=process, files=machine.files, controller=self, operations=self, connector=connector,
            metadata=self._feed, network=self._network, registry=registry,
            observer=Observers(CountingObserver(registry), self.decisions), listeners=[self.leaderships],
        )  # fmt: skip
        self.shell = BrokerShell(
            self._settings(), ports, self, directory=directory, cluster=self.cluster, configs=self.configs
        )

    def _settings(self) -> ShellSettings:
        parameters, broker_id = self._parameters, self._machine.broker_id
        return ShellSettings(
            broker_id=broker_id,
            rack=f"rack-{broker_id % 2}",
            advertised=lambda ports: [BrokerListener(port, f"broker-{broker_id}", ports[port]) for port in ports],
            logs=LogsToOpen(
                cluster_id=CLUSTER_ID, broker_id=broker_id, paths=self._machine.present_log_paths,
                last_configs=self._last_configs, new_id=self._machine.new_id, on_progress=lambda progress: None,
            ),
            parts=PartsSettings(
                broker_id=broker_id,
                lag_max_ms=parameters.lag_max_ms,
                fetch=FetchSettings(
                    wait_max_ms=parameters.fetch_wait_ms, max_bytes=parameters.fetch_bytes_max,
                    response_max_bytes=2 * parameters.fetch_bytes_max, backoff_ms=parameters.backoff_ms,
                ),
                intervals=MaintenanceIntervals(
                    retention_ms=RETENTION_CHECK_MS, checkpoint_ms=parameters.checkpoint_interval_ms,
                    high_watermarks_ms=parameters.checkpoint_interval_ms, isr_ms=parameters.lag_max_ms / 2,
                    producers_ms=PRODUCERS_CHECK_MS, room_ms=parameters.heartbeat_interval_ms,
                ),
                assignments=AssignmentsPace(REQUEST_TIMEOUT_MS, RETRY_MS),
                request_timeout_ms=REQUEST_TIMEOUT_MS,
            ),
            pace=Pace(parameters.heartbeat_interval_ms, RETRY_MS, REQUEST_TIMEOUT_MS),
            shutdown_timeout_ms=SHUTDOWN_TIMEOUT_MS,
        )  # fmt: skip

    @contextmanager
    def _last_configs(self) -> Iterator[LogConfigs]:
        """Return the configs that the broker kept: none, so those of small segments."""
        configs = SmallSegments(self._machine.broker_id, self._parameters)
        yield lambda partition: configs.log_config(partition.topic)

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def parts(self) -> Parts:
        """The parts of the broker. Raises LookupError until its logs are open."""
        if self._parts is None:
            raise LookupError("the broker's logs are not open")
        return self._parts

    @property
    def logs(self) -> LogManager:
        """The broker's logs."""
        return self.parts.logs

    @property
    def partitions(self) -> Partitions:
        """The broker's replicas."""
        return self.parts.partitions

    @property
    def epoch(self) -> int:
        """The broker epoch of the last registration."""
        return self.shell.broker_epoch

    @property
    def is_serving(self) -> bool:
        """Whether the broker has taken its partitions over and its connections are open."""
        return self.shell.is_serving and not self.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether the broker has closed its connections to shut down."""
        return self._network.is_closed

    @property
    def was_unfenced(self) -> bool:
        """Whether a heartbeat answer has unfenced the broker since it registered."""
        return self.epoch != NO_BROKER_EPOCH and self._unfenced_epoch == self.epoch

    # --- requests -----------------------------------------------------------------------------------------------------

    def handle(self, body: Message, version: int, reply: Reply) -> ClientRequest | None:
        """Handle a request. Return None if the broker closes the connection because of it."""
        request = ClientRequest(api_of(body.KEY), version, body, _CONTEXT, 100)
        try:
            self._handlers[body.KEY](request, reply)
        except ConnectionRefused:
            return None
        return request

    # --- the controller (`ControllerPort`, `OperationsPort`) ----------------------------------------------------------

    def ask(
        self, operation: admin_pb2.Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False
    ) -> None:
        """Send an operation to the controller over the wire."""

        def answered(result: admin_pb2.OperationResult | ApiError) -> None:
            self._mark(operation, result)
            on_result(result)

        operation.timeout_ms = timeout_ms
        self._machine.ask_controller(operation, timeout_ms, answered)

    submit = ask

    def find_cluster(self, on_found: OnAnswer[str]) -> None:
        """Not called: the cluster is known."""
        raise NotImplementedError

    def _mark(self, operation: admin_pb2.Operation, result: admin_pb2.OperationResult | ApiError) -> None:
        marks = self._machine.marks
        if isinstance(result, ApiError):
            if operation.HasField("broker_heartbeat") and result.code in _REGISTER_ANEW:
                marks.hit("a broker had to register again")
            if operation.HasField("alter_partition"):
                marks.hit(f"an ISR was not changed: {result.code.name}")
            return
        for partition in result.alter_partition.partitions:
            marks.hit(f"an ISR was changed: {ErrorCode(partition.error_code).name}")
        if result.register_broker.older_log_dirs:
            marks.hit("an older copy of a disk was found")

    # --- the metadata -------------------------------------------------------------------------------------------------

    @property
    def follows(self) -> bool:
        """Whether the broker accepts metadata."""
        return self._feed.follows

    def apply(self, batches: Sequence[CommittedBatch]) -> None:
        """Apply batches of metadata."""
        tables = self._machine.tables
        tables.apply(batches, note_delta=True)
        self._feed.changed(tables.take_deltas())

    # --- the shell's callbacks (`ShellHost`) --------------------------------------------------------------------------

    def new_incarnation(self) -> UUID:
        """Return an id that no registration has had."""
        return self._machine.new_incarnation()

    def show_progress(self, message: str) -> None:
        """Ignore the message."""

    def opened(self, parts: Parts) -> None:
        """Build the handlers: the logs are open."""
        self._parts = parts
        services = RecordServices(
            lookup=PartitionLookup(parts.partitions, self.cluster), runtime=self.process,
            usage=QuotaUsage(parts.quotas),
            sessions=FetchSessionCache(self._machine.new_number), observer=parts.observer,
            choice=RackAwareChoice(self._machine.broker_id, self.cluster),
            throttle=LeaderThrottle(self.configs, self.process.now_ms),
        )  # fmt: skip
        self._handlers = {KEYS[name]: handler for name, handler in handlers(RECORD_APIS, services).items()}
        self._machine.opened(self)

    def serving(self) -> None:
        """Report that the broker has taken its partitions over."""
        self._machine.serving(self)

    def heartbeat_answered(self, *, is_fenced: bool) -> None:
        """Note whether the controller has unfenced the broker."""
        if not is_fenced and not isinstance(self.shell.state, ControlledShutdown):
            self._unfenced_epoch = self.epoch

    def closed(self, error: BaseException | None, *, is_clean: bool) -> None:
        """Report that the broker has shut down."""
        self._machine.closed(error, is_clean=is_clean)
