"""The production code of a broker in one life: logs, partitions, replication, and its handlers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol
from uuid import UUID

from kraftbase.files.memory import MemoryFileSystem
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.dispatch import KEYS
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.quotas.client_quotas import ClientQuotas
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.broker.record_handlers import record_handlers
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import Client, ClientRequest, ConnectionRefused, Handler, Reply
from kraftlog.replicas.partitions.partition import Partition, Replication
from kraftlog.replicas.partitions.partitions import Partitions, reraise
from kraftlog.replicas.partitions.replica_choice import RackAwareChoice
from kraftlog.replicas.partitions.sent_to_followers import SentToFollowers
from kraftlog.replicas.replication.isr_changes import Controller, IsrChanges
from kraftlog.replicas.replication.ports import LeaderConnector
from kraftlog.replicas.replication.replica_fetcher import FetchSettings, Follower
from kraftlog.replicas.replication.replica_fetchers import ReplicaFetchers
from kraftlog.replicas.replication.throttle import ReplicationQuota
from kraftlog.sim.broker_log.process import BrokerProcess
from kraftlog.sim.replication.metadata_log import CLUSTER_ID
from kraftlog.sim.replication.parameters import ReplicationParameters
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.log_manager import LogManager
from statemachine.replay.deltas import MetadataDelta
from statemachine.store.metadata_tables import MetadataTables

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
DELETE_RECORDS: Final = 21
OFFSET_FOR_LEADER_EPOCH: Final = 23
_CLIENT: Final = Client("127.0.0.1", "PLAINTEXT")


class Surroundings(Protocol):
    """What the production code of a life gets from the machine that it is on."""

    broker_id: int
    process: BrokerProcess
    tables: MetadataTables
    """What this broker has applied of the metadata."""

    @property
    def files(self) -> MemoryFileSystem:
        """The files of the machine's disk."""
        ...

    @property
    def present_log_paths(self) -> list[str]:
        """Its log directories."""
        ...

    def new_id(self) -> UUID:
        """An id that nothing else has."""
        ...

    def new_number(self) -> int:
        """A number that nothing else on this machine has."""
        ...

    def replica_placed(self, partition: Partition, directory_id: UUID) -> None:
        """A replica is in that log directory."""
        ...


class SmallSegments(TopicConfigs):
    """The configs of topics, with segments that are smaller than any that may be configured."""

    def __init__(self, broker_id: int, parameters: ReplicationParameters) -> None:
        super().__init__(broker_id, {})
        self._segment_bytes = parameters.segment_bytes

    def log_config(self, topic: str) -> PartitionLogConfig:
        """Of a topic's partitions."""
        return replace(super().log_config(topic), segment_bytes=self._segment_bytes, index_interval_bytes=150)


class Broker:
    """A broker whose logs are open."""

    def __init__(
        self, machine: Surroundings, parameters: ReplicationParameters, connector: LeaderConnector,
        controller: Controller,
    ) -> None:  # fmt: skip
        """Start as a process does: the logs first, without the metadata."""
        self.process = process = machine.process
        self._machine = machine
        self.epoch = -1
        """Of its registration; -1 before that."""
        self.is_serving = False
        """Whether it has taken its partitions over."""
        configs_at_start = SmallSegments(machine.broker_id, parameters)
        self.logs = LogManager.open(
            machine.files, machine.present_log_paths, process,
            cluster_id=CLUSTER_ID, node_id=machine.broker_id,
            config_of=lambda partition: configs_at_start.log_config(partition.topic), new_id=machine.new_id,
        )  # fmt: skip
        self.cluster = ClusterView(CLUSTER_ID)
        self.configs = SmallSegments(machine.broker_id, parameters)
        self._isr_changes = IsrChanges(machine.broker_id, lambda: self.epoch, controller, process)
        settings = FetchSettings(
            wait_max_ms=parameters.fetch_wait_ms, max_bytes=parameters.fetch_bytes_max,
            response_max_bytes=2 * parameters.fetch_bytes_max, backoff_ms=parameters.backoff_ms,
        )  # fmt: skip
        self._fetchers = ReplicaFetchers(
            Follower(
                broker_id=machine.broker_id, broker_epoch=lambda: self.epoch, logs=self.logs, runtime=process,
                connector=connector, settings=settings, throttle=self.configs,
                quota=ReplicationQuota(process.now_ms()), on_gone=lambda broker_id: None,
                on_back=lambda broker_id: None,
            )
        )  # fmt: skip
        replication = Replication(
            machine.broker_id, self.cluster, parameters.lag_max_ms, process.now_ms, self._isr_changes.ask
        )
        self.partitions = Partitions(
            self.logs, self.configs, replication, followers=self._fetchers, on_placed=machine.replica_placed,
            on_failed=reraise,
        )  # fmt: skip
        self._handlers = self._made_handlers(machine, process)

    def _made_handlers(self, machine: Surroundings, process: BrokerProcess) -> dict[int, Handler]:
        lookup = PartitionLookup(self.partitions, self.cluster)
        usage = QuotaUsage(ClientQuotas())
        handlers = record_handlers(
            lookup, self.logs, process, usage, new_session_id=machine.new_number,
            choice=RackAwareChoice(machine.broker_id, self.cluster),
            throttle=SentToFollowers(self.configs, process.now_ms),
        )  # fmt: skip
        return {KEYS[name]: handler for name, handler in handlers.items()}

    # --- metadata -----------------------------------------------------------------------------------------------------

    def take_over(self, broker_epoch: int) -> None:
        """It is registered, and has applied that: take its partitions over."""
        self.epoch = broker_epoch
        tables = self._machine.tables
        for publisher in (self.cluster, self.configs, self.partitions):
            publisher.on_snapshot(tables.applied.end_offset, tables.connection)
        self.is_serving = True

    def on_deltas(self, deltas: list[MetadataDelta]) -> None:
        """The metadata has changed."""
        for delta in deltas if self.is_serving else ():
            for publisher in (self.cluster, self.configs, self.partitions):
                publisher.on_delta(delta)

    # --- requests -----------------------------------------------------------------------------------------------------

    def handle(self, body: Message, version: int, reply: Reply) -> ClientRequest | None:
        """Handle a request; None if the connection is closed for it."""
        request = ClientRequest(api_of(body.KEY), version, "simulated", body, _CLIENT, 100)
        try:
            self._handlers[body.KEY](request, reply)
        except ConnectionRefused:
            return None
        return request

    # --- its end ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Fetch nothing, ask for nothing."""
        self._fetchers.stop()
        self._isr_changes.stop()
        self.logs.stop_work()

    @property
    def is_idle(self) -> bool:
        """Whether no flush is under way."""
        return all(directory.commits.is_idle for directory in self.logs.online)

    def offline_directories(self) -> list[bytes]:
        """The ids of the directories that have failed since the start."""
        return [of.directory_id.bytes for of in self.logs.directories if of.offline_reason]
