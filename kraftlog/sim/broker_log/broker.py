"""The production code of a broker in one life: logs, partitions, and the handlers that its clients reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftbase.files.files import join
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.dispatch import KEYS
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.quotas.client_quotas import ClientQuotas
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.broker.record_handlers import record_handlers
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import Client, ClientRequest, ConnectionRefused
from kraftlog.replicas.partitions.partition import Partition, Replication
from kraftlog.replicas.partitions.partitions import NobodyFollows, Partitions, reraise
from kraftlog.sim.broker_log.judges.rules import GOES_ON
from kraftlog.sim.broker_log.metadata import BROKER_ID, CLUSTER_ID, Metadata, Topic
from kraftlog.sim.broker_log.process import BrokerProcess
from kraftlog.sim.violation import Violation
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.partition_log import PartitionLog
from statemachine.replay.deltas import MetadataDelta

OnAnswer = Callable[[Message | None], None]
"""Called with the answer as it leaves the broker; None: there is none, for acks=0."""

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
DELETE_RECORDS: Final = 21
VERSIONS: Final = {PRODUCE: 13, FETCH: 17, LIST_OFFSETS: 10, DELETE_RECORDS: 2}
LAG_MAX_MS: Final = 30_000
_CLIENT: Final = Client("127.0.0.1", "PLAINTEXT")


def _no_isr_changes(partition: Partition, isr: tuple[int, ...]) -> None:
    """There is one broker."""
    raise Violation(f"{GOES_ON}: the ISR of {partition} is to be {isr}")


class Broker:
    """A broker whose logs are open."""

    def __init__(
        self, process: BrokerProcess, files: MemoryFileSystem, directories: int, metadata: Metadata, open_files_max: int
    ) -> None:
        """Start as a process does: the logs first, then the metadata."""
        self.process = process
        paths = [f"logs-{number}" for number in range(directories)]
        self.logs = LogManager.open(
            files, paths, process, cluster_id=CLUSTER_ID, node_id=BROKER_ID,
            config_of=lambda partition: metadata.log_config(partition.topic), open_files_max=open_files_max,
            new_id=metadata.new_id,
        )  # fmt: skip
        self.cluster = ClusterView(CLUSTER_ID)
        replication = Replication(BROKER_ID, self.cluster, LAG_MAX_MS, process.now_ms, _no_isr_changes)
        self.partitions = Partitions(
            self.logs, metadata, replication, followers=NobodyFollows(),
            on_placed=lambda partition, directory_id: None, on_failed=reraise,
        )  # fmt: skip
        for publisher in (self.cluster, self.partitions):
            publisher.on_snapshot(metadata.end_offset, metadata.connection)
        lookup = PartitionLookup(self.partitions, self.cluster)
        usage = QuotaUsage(ClientQuotas())
        handlers = record_handlers(
            lookup, self.logs, process, usage, new_session_id=metadata.new_number, choice=None, throttle=None
        )
        self._handlers = {KEYS[name]: handler for name, handler in handlers.items()}

    def on_deltas(self, deltas: list[MetadataDelta]) -> None:
        """The metadata has changed."""
        for delta in deltas:
            for publisher in (self.cluster, self.partitions):
                publisher.on_delta(delta)

    def ask(self, body: Message, on_answer: OnAnswer) -> bool:
        """Handle a request; returns False if the connection is closed for it."""

        def reply(response: Message | None, throttle_ms: int = 0) -> None:
            if not self.process.has_ended:
                on_answer(response)

        request = ClientRequest(api_of(body.KEY), VERSIONS[body.KEY], "simulated", body, _CLIENT, 100)
        try:
            self._handlers[body.KEY](request, reply)
        except ConnectionRefused:
            return False
        return True

    # --- from time to time --------------------------------------------------------------------------------------------

    def maintain(self) -> int:
        """Retention, and flushes that are due; returns how many segments were deleted."""
        deleted = self.logs.maintain()
        self.partitions.check_logs()
        return deleted

    def roll(self, topic: str, index: int) -> None:
        """Go on in a new segment. Raises ApiError."""
        partition = self.partitions.named(topic, index)
        if partition is not None and partition.log is not None:
            partition.log.roll(self.process.wall_clock_ms())

    @property
    def is_idle(self) -> bool:
        """Whether no flush is under way."""
        return all(directory.commits.is_idle for directory in self.logs.online)

    @property
    def has_lost_directories(self) -> bool:
        """Whether a log directory is offline."""
        return bool(self.logs.failed) or any(directory.offline_reason for directory in self.logs.directories)

    @property
    def damaged(self) -> list[tuple[TopicPartition, str]]:
        """The logs that are damaged, and what was found."""
        return [found for directory in self.logs.directories for found in directory.damaged.items()]

    def open_log(self, name: TopicPartition) -> PartitionLog | None:
        """The log of a partition, if it is open, and its directory online."""
        partition, directory = self.partitions.named(*name), self.logs.directory_of(name)
        is_online = directory is not None and not directory.offline_reason
        return partition.log if partition is not None and is_online else None

    def path_of(self, topic: Topic, index: int) -> str | None:
        """The directory of a partition, if its log is open; None also for a topic that it has not heard of yet."""
        partition = self.partitions.with_id(topic.topic_id, index)
        if partition is None or partition.log is None:
            return None
        directory = self.logs.directory_of(partition.name)
        if directory is None or directory.offline_reason:
            return None
        return join(directory.path, f"{topic.name}-{index}")
