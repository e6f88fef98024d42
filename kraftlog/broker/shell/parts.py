"""The parts of a broker once its logs are open, made together with all that each needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kraftbase.runtime import Runtime
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.own_registration import OwnRegistration
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.quotas.client_quotas import ClientQuotas
from kraftlog.broker.shell.controller_requests import TIMEOUT_MS, ControllerRequests
from kraftlog.broker.shell.directory_assignments import AssignmentsPace, DirectoryAssignments
from kraftlog.broker.shell.maintenance import Maintenance, MaintenanceIntervals
from kraftlog.broker.shell.ports import ControllerPort, OperationsPort
from kraftlog.replicas.partitions.leadership import LeadershipListener
from kraftlog.replicas.partitions.partition import Replication
from kraftlog.replicas.partitions.partitions import Partitions
from kraftlog.replicas.replication.follower import FetchSettings, Follower
from kraftlog.replicas.replication.isr_changes import IsrChanges
from kraftlog.replicas.replication.ports import LeaderConnector
from kraftlog.replicas.replication.replica_fetchers import ReplicaFetchers
from kraftlog.replicas.replication.throttle import ReplicationQuota
from kraftlog.storage.log_manager import LogManager
from kraftlog.telemetry.observer import BrokerObserver
from statemachine.apply.publishers import MetadataPublisher
from statemachine.words.config_definitions import PRODUCER_EXPIRATION

DOUBT_MS: Final = 500
"""How long clients are not sent to a leader that has closed its connection to this broker, unless it answers before. If
the leader's process has ended, the controller fences it within that time (CT-65)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsSettings:
    """The times and sizes of a broker's own work."""

    broker_id: int
    lag_max_ms: float
    """Kafka's `replica.lag.time.max.ms`."""
    fetch: FetchSettings
    intervals: MaintenanceIntervals
    assignments: AssignmentsPace
    request_timeout_ms: int = TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsPorts:
    """What the parts need from the broker and from its environment."""

    runtime: Runtime
    controller: ControllerPort
    operations: OperationsPort
    connector: LeaderConnector
    """Connects to other brokers, whose replicas are followed."""
    broker_epoch: Callable[[], int]
    """Returns the epoch of the last registration, NO_BROKER_EPOCH before the first."""
    on_failed: Callable[[BaseException], None]
    """Called with an error that must end the broker."""
    observer: BrokerObserver
    listeners: Sequence[LeadershipListener]
    """Called for each partition that the broker begins or ceases to lead, in this order."""


class Parts:
    """The parts of one broker. Not thread-safe."""

    def __init__(
        self,
        settings: PartsSettings,
        ports: PartsPorts,
        *,
        logs: LogManager,
        cluster: ClusterView,
        configs: TopicConfigs,
    ) -> None:
        """`cluster` and `configs` are empty; they get the metadata as publishers, like the others."""
        broker_id, runtime = settings.broker_id, ports.runtime
        self._runtime = runtime
        self.logs = logs
        self.observer = ports.observer
        self.cluster = cluster
        self.configs = configs
        self.quotas = ClientQuotas()
        self.registration = OwnRegistration(broker_id, ports.broker_epoch)
        self.requests = ControllerRequests(
            ports.operations, broker_id, ports.broker_epoch, configs.broker_value, settings.request_timeout_ms
        )
        self.isr_changes = IsrChanges(broker_id, ports.broker_epoch, self.requests, runtime, ports.observer)
        self.assignments = DirectoryAssignments(
            broker_id, ports.broker_epoch, ports.controller, runtime, settings.assignments
        )
        self.fetchers = ReplicaFetchers(
            Follower(
                broker_id=broker_id,
                broker_epoch=ports.broker_epoch,
                logs=logs,
                runtime=runtime,
                connector=ports.connector,
                settings=settings.fetch,
                throttle=configs,
                quota=ReplicationQuota(runtime.now_ms()),
                on_gone=self._leader_gone,
                on_back=cluster.trust,
                observer=ports.observer,
            )
        )
        self.partitions = Partitions(
            logs,
            configs,
            Replication(broker_id, cluster, settings.lag_max_ms, runtime.now_ms, self.isr_changes.ask, ports.observer),
            followers=self.fetchers,
            listeners=ports.listeners,
            on_placed=self.assignments.placed,
            on_failed=ports.on_failed,
        )
        self.maintenance = Maintenance(
            logs,
            self.partitions,
            settings.intervals,
            lambda: int(configs.broker_value(PRODUCER_EXPIRATION)),
            runtime,
            ports.on_failed,
        )

    @property
    def publishers(self) -> tuple[MetadataPublisher, ...]:
        """The publishers of the metadata, in their order: a new partition needs its topic's configs, for example."""
        return (self.registration, self.cluster, self.configs, self.quotas, self.partitions)

    def _leader_gone(self, broker_id: int) -> None:
        self.cluster.doubt(broker_id)
        self._runtime.call_later(DOUBT_MS, partial(self.cluster.trust, broker_id))
