"""A broker's process: the production shell, a controller that grants everything, and the handlers of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol
from uuid import UUID

from kraftbase.files.files import join
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.broker.api_table import RECORD_APIS, handlers
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.apis.services import RecordServices
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.dispatch import KEYS
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.broker.shell.broker_shell import BrokerShell, ShellPorts, ShellSettings
from kraftlog.broker.shell.directory_assignments import AssignmentsPace
from kraftlog.broker.shell.maintenance import MaintenanceIntervals
from kraftlog.broker.shell.membership import Pace
from kraftlog.broker.shell.opening import LogConfigs, LogsToOpen
from kraftlog.broker.shell.parts import Parts, PartsSettings
from kraftlog.broker.shell.ports import OnAnswer as OnPortAnswer
from kraftlog.broker.shell.ports import OnResult
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import ClientRequest, ConnectionRefused, Handler, Reply, RequestContext
from kraftlog.replicas.partitions.fetch_sessions import FetchSessionCache
from kraftlog.replicas.partitions.partitions import Partitions
from kraftlog.replicas.replication.follower import FetchSettings
from kraftlog.replicas.replication.ports import LeaderConnection
from kraftlog.sim.broker_log.checkers.rules import GOES_ON
from kraftlog.sim.broker_log.metadata import BROKER_ID, CLUSTER_ID, Metadata, Topic
from kraftlog.sim.broker_log.parameters import LogParameters
from kraftlog.sim.broker_log.process import BrokerProcess
from kraftlog.sim.broker_log.shell_ports import OpenNetwork, TablesFeed
from kraftlog.sim.engine.violation import Violation
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.telemetry.counting import CountingObserver
from kraftlog.telemetry.registry import Registry
from kraftpb.v1.admin_pb2 import (
    AssignReplicasToDirsResponse,
    BrokerHeartbeatResponse,
    Operation,
    OperationResult,
    RegisterBrokerResponse,
)
from statemachine.query.descriptions import BrokerListener
from statemachine.replay.deltas import MetadataDelta

OnAnswer = Callable[[Message | None], None]
"""Called with the response as it leaves the broker; None: there is no response, because of acks=0."""

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
DELETE_RECORDS: Final = 21
VERSIONS: Final = {PRODUCE: 13, FETCH: 17, LIST_OFFSETS: 10, DELETE_RECORDS: 2}
LAG_MAX_MS: Final = 30_000
OWN_DIRECTORY: Final = "broker"
PRODUCERS_CHECK_MS: Final = 5_000
_CONTEXT: Final = RequestContext("127.0.0.1", "PLAINTEXT", "simulated")


class LogWorldPort(Protocol):
    """The callbacks from a broker's process to the world."""

    def serving(self, broker: Broker) -> None:
        """Record that the broker has taken its partitions over."""
        ...

    def closed(self, broker: Broker, error: BaseException | None, *, is_clean: bool) -> None:
        """Record that the broker has shut down."""
        ...


class WorldConfigs(TopicConfigs):
    """The configs of topics in this world. Clients could not set all of them."""

    def __init__(self, metadata: Metadata) -> None:
        super().__init__(BROKER_ID, {})
        self._world_metadata = metadata

    def log_config(self, topic: str) -> PartitionLogConfig:
        """Return the config of a topic's logs."""
        return self._world_metadata.log_config(topic)

    def min_insync_replicas(self, topic: str) -> int:
        """Return 1: there is one replica."""
        return self._world_metadata.min_insync_replicas(topic)


class Broker:
    """A broker: the ports and the host of its shell."""

    def __init__(
        self, world: LogWorldPort, process: BrokerProcess, files: MemoryFileSystem, parameters: LogParameters,
        metadata: Metadata,
    ) -> None:  # fmt: skip
        """Lock the broker's own directory. Raises StorageError, FlushFailed."""
        self.process = process
        self._world = world
        self._parameters = parameters
        self._metadata = metadata
        self._parts: Parts | None = None
        self._handlers: Mapping[int, Handler] = {}
        self._feed = TablesFeed(process, metadata.tables)
        self._network = OpenNetwork(process, lambda: None)
        self.cluster = ClusterView(CLUSTER_ID)
        directory = BrokerDirectory.open(files, OWN_DIRECTORY, BROKER_ID)
        directory.claim(CLUSTER_ID, directory.directory_id or metadata.new_id())
        registry = Registry()
        ports = ShellPorts(
            runtime=process, files=files, controller=self, operations=self, connector=self, metadata=self._feed,
            network=self._network, registry=registry, observer=CountingObserver(registry), listeners=(),
        )  # fmt: skip
        self.shell = BrokerShell(
            self._settings(), ports, self, directory=directory, cluster=self.cluster, configs=WorldConfigs(metadata)
        )

    def _settings(self) -> ShellSettings:
        parameters = self._parameters
        return ShellSettings(
            broker_id=BROKER_ID,
            rack=None,
            advertised=lambda ports: [BrokerListener(port, "broker", ports[port]) for port in ports],
            logs=LogsToOpen(
                cluster_id=CLUSTER_ID, broker_id=BROKER_ID,
                paths=[f"logs-{number}" for number in range(parameters.directories)],
                last_configs=self._last_configs, open_files_max=parameters.open_files_max,
                new_id=self._metadata.new_id, on_progress=lambda progress: None,
            ),
            parts=PartsSettings(
                broker_id=BROKER_ID,
                lag_max_ms=LAG_MAX_MS,
                fetch=FetchSettings(),
                intervals=MaintenanceIntervals(
                    retention_ms=parameters.maintain_interval_ms, checkpoint_ms=parameters.checkpoint_interval_ms,
                    high_watermarks_ms=parameters.checkpoint_interval_ms, isr_ms=LAG_MAX_MS / 2,
                    producers_ms=PRODUCERS_CHECK_MS, room_ms=parameters.maintain_interval_ms,
                ),
                assignments=AssignmentsPace(),
            ),
            pace=Pace(),
        )  # fmt: skip

    @contextmanager
    def _last_configs(self) -> Iterator[LogConfigs]:
        yield lambda partition: self._metadata.log_config(partition.topic)

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

    def on_deltas(self, deltas: Iterable[MetadataDelta]) -> None:
        """Pass changes of the metadata on."""
        self._feed.changed(deltas)

    # --- the controller (`ControllerPort`, `OperationsPort`) ----------------------------------------------------------

    def ask(self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False) -> None:
        """Grant the operation at once."""
        self.process.call_soon(lambda: on_result(self._granted(operation)))

    submit = ask

    def _granted(self, operation: Operation) -> OperationResult:
        match operation.WhichOneof("operation"):
            case "register_broker":
                broker_epoch, deltas = self._metadata.register(operation.register_broker.incarnation_id)
                self._feed.changed(deltas)
                return OperationResult(register_broker=RegisterBrokerResponse(broker_epoch=broker_epoch))
            case "broker_heartbeat":
                may_go = operation.broker_heartbeat.want_shut_down
                return OperationResult(broker_heartbeat=BrokerHeartbeatResponse(should_shut_down=may_go))
            case "assign_replicas_to_dirs":
                return OperationResult(assign_replicas_to_dirs=AssignReplicasToDirsResponse())
        raise Violation(f"{GOES_ON}: the only replica asks the controller for {operation}")

    def find_cluster(self, on_found: OnPortAnswer[str]) -> None:
        """Not called: the cluster is known."""
        raise NotImplementedError

    def connect(self, broker_id: int) -> LeaderConnection:
        """Not called: there is no other broker."""
        raise NotImplementedError

    # --- the shell's callbacks (`ShellHost`) --------------------------------------------------------------------------

    def new_incarnation(self) -> UUID:
        """Return an id that no registration has had."""
        return self._metadata.new_id()

    def show_progress(self, message: str) -> None:
        """Ignore the message."""

    def opened(self, parts: Parts) -> None:
        """Build the handlers: the logs are open."""
        self._parts = parts
        services = RecordServices(
            lookup=PartitionLookup(parts.partitions, self.cluster), runtime=self.process,
            usage=QuotaUsage(parts.quotas),
            sessions=FetchSessionCache(self._metadata.new_number), observer=parts.observer, choice=None, throttle=None,
        )  # fmt: skip
        self._handlers = {KEYS[name]: handler for name, handler in handlers(RECORD_APIS, services).items()}

    def serving(self) -> None:
        """Report that the broker has taken its partitions over."""
        self._world.serving(self)

    def heartbeat_answered(self, *, is_fenced: bool) -> None:
        """Ignore answers to heartbeats."""

    def closed(self, error: BaseException | None, *, is_clean: bool) -> None:
        """Report that the broker has shut down."""
        self._world.closed(self, error, is_clean=is_clean)

    @property
    def is_closed(self) -> bool:
        """Whether the broker has closed its connections to shut down."""
        return self._network.is_closed

    # --- requests of clients ------------------------------------------------------------------------------------------

    def handle(self, body: Message, on_answer: OnAnswer) -> bool:
        """Handle a request. Return False if the broker closes the connection because of it."""

        def reply(response: Message | None, throttle_ms: int = 0) -> None:
            if not self.process.has_ended and not self.is_closed:
                on_answer(response)

        request = ClientRequest(api_of(body.KEY), VERSIONS[body.KEY], body, _CONTEXT, 100)
        try:
            self._handlers[body.KEY](request, reply)
        except ConnectionRefused:
            return False
        return True

    def take(self, request: ClientRequest, reply: Reply) -> None:
        """Pass a request to its handler. Raises ConnectionRefused if the connection must be closed."""
        self._handlers[request.api.key](request, reply)

    def roll(self, topic: str, index: int) -> None:
        """Roll a log to a new segment. Raises ApiError."""
        partition = self.partitions.named(topic, index)
        if partition is not None and partition.log is not None:
            partition.log.roll(self.process.wall_clock_ms())

    @property
    def has_lost_directories(self) -> bool:
        """Whether a log directory is offline."""
        return bool(self.logs.failed) or any(directory.offline_reason for directory in self.logs.directories)

    @property
    def damaged(self) -> list[tuple[TopicPartition, str]]:
        """The damaged logs, with descriptions of the damage."""
        return [found for directory in self.logs.directories for found in directory.damaged.items()]

    def open_log(self, name: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition; None if it is not open or its directory is offline."""
        partition, directory = self.partitions.named(*name), self.logs.directory_of(name)
        is_online = directory is not None and not directory.offline_reason
        return partition.log if partition is not None and is_online else None

    def path_of(self, topic: Topic, index: int) -> str | None:
        """Return the directory of a partition's log; None if the log is not open or the topic is unknown."""
        partition = self.partitions.with_id(topic.topic_id, index)
        if partition is None or partition.log is None:
            return None
        directory = self.logs.directory_of(partition.name)
        if directory is None or directory.offline_reason:
            return None
        return join(directory.path, f"{topic.name}-{index}")
