"""One broker without sockets: real logs on simulated disks, real metadata tables, the handlers, and a clock by hand."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from kraftbase.files.memory import MemoryFileSystem
from kraftbase.runtime import Timer
from kraftbase.types import Offset
from kraftlog.broker.apis.cluster import DescribeClusterApi, DescribeTopicPartitionsApi
from kraftlog.broker.apis.fetch import FetchApi
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.apis.metadata import MetadataApi
from kraftlog.broker.apis.offsets import ListOffsetsApi, OffsetForLeaderEpochApi
from kraftlog.broker.apis.produce import ProduceApi
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.quotas.client_quotas import ClientQuotas
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.codec import decode, encode
from kraftlog.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from kraftlog.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import ClientRequest, Handler, RequestContext
from kraftlog.replicas.partitions.fetch_sessions import FetchSessionCache
from kraftlog.replicas.partitions.partition import Partition, Replication
from kraftlog.replicas.partitions.partitions import NoReplication, Partitions, reraise
from kraftlog.storage.log_manager import LogManager
from kraftpb.v1.metadata_pb2 import (
    BrokerEndpoint,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.database import open_database
from tests.kraftlog.broker.services import services
from tests.kraftlog.storage.builders import CLUSTER_ID, StepRuntime
from tests.kraftlog.telemetry.recorder import Recorder
from tests.statemachine.builders import an_id
from tests.statemachine.builders import batch as metadata_batch
from tests.statemachine.states import write_new_database

ME = 1
LAG_MAX_MS = 30_000
R = TypeVar("R", bound=Message)


class HandTimer:
    """Fires when the test says so."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class TimedRuntime(StepRuntime):
    """With timers that a test lets run out."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[HandTimer] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(HandTimer(callback))
        return self.timers[-1]

    def expire(self) -> None:
        """Let all timers run out."""
        timers, self.timers = self.timers, []
        for timer in timers:
            if not timer.is_cancelled:
                timer.callback()


def topic(name: str, number: int = 1) -> MetadataRecord:
    return MetadataRecord(topic=TopicRecord(name=name, topic_id=an_id(number)))


def replicas(
    number: int = 1, index: int = 0, *, on: Sequence[int] = (ME,), isr: Sequence[int] | None = None,
    leader: int | None = None, epoch: int = 0, directory: bytes | None = None,
) -> MetadataRecord:  # fmt: skip
    """A partition of topic `number`; `epoch` is that of its leader and its own."""
    return MetadataRecord(
        partition=PartitionRecord(
            topic_id=an_id(number), partition_id=index, replicas=on, isr=on if isr is None else isr,
            leader=on[0] if leader is None else leader, leader_epoch=epoch, partition_epoch=epoch,
            directories=[] if directory is None else [directory for _ in on],
        )
    )  # fmt: skip


def registration(
    broker_id: int, *, listeners: Mapping[str, int] | None = None, fenced: bool = False, log_dirs: Sequence[bytes] = ()
) -> MetadataRecord:
    ports = {"PLAINTEXT": 9092 + broker_id} if listeners is None else listeners
    return MetadataRecord(
        register_broker=RegisterBrokerRecord(
            broker_id=broker_id, incarnation_id=an_id(500 + broker_id), broker_epoch=broker_id, fenced=fenced,
            end_points=[BrokerEndpoint(name=name, host=f"host{broker_id}", port=port) for name, port in ports.items()],
            log_dirs=log_dirs,
        )
    )  # fmt: skip


class BrokerWorld:
    """A broker's partitions and handlers, and the answers to what it was asked."""

    def __init__(
        self, directory: Path, *runs: Sequence[MetadataRecord], log_paths: Sequence[str] = ("data",),
        files: MemoryFileSystem | None = None, own: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """The broker starts with what `runs` have made."""
        self.runtime = TimedRuntime()
        self.files = MemoryFileSystem() if files is None else files
        self.tables = MetadataTables(
            open_database(write_new_database(directory / "metadata.db", CLUSTER_ID), CLUSTER_ID).conn
        )
        weakref.finalize(self, self.tables.connection.close)
        self.configs = TopicConfigs(ME, own or {})
        self.cluster = ClusterView(CLUSTER_ID)
        for run in runs:
            self._apply(run)
        self.logs = LogManager.open(
            self.files, log_paths, self.runtime, cluster_id=CLUSTER_ID, node_id=ME,
            config_of=lambda partition: self.configs.log_config(partition.topic),
        )  # fmt: skip
        self.placed: list[tuple[str, UUID]] = []
        self.observer = Recorder()
        self.leaderships: list[tuple[str, bytes, int, bool]] = []
        """What listeners were told: partition, topic id, epoch, whether this broker leads."""
        self.partitions = Partitions(
            self.logs, self.configs,
            Replication(ME, self.cluster, LAG_MAX_MS, self.runtime.now_ms, lambda partition, isr: None, self.observer),
            followers=NoReplication(),
            listeners=(self,),
            on_placed=lambda partition, directory_id: self.placed.append((str(partition), directory_id)),
            on_failed=reraise,
        )  # fmt: skip
        self.begin_anew()
        self.lookup = PartitionLookup(self.partitions, self.cluster)
        self.services = services(
            lookup=self.lookup,
            runtime=self.runtime,
            usage=QuotaUsage(ClientQuotas()),
            sessions=FetchSessionCache(itertools.count(1).__next__),
            observer=self.observer,
            broker_id=ME,
            cluster=self.cluster,
            partitions=self.partitions,
            logs=self.logs,
        )
        self.produce = ProduceApi(self.services)
        self.fetch = FetchApi(self.services)
        self.list_offsets = ListOffsetsApi(self.services)
        self.epoch_ends = OffsetForLeaderEpochApi(self.services)
        self.metadata = MetadataApi(self.services)
        self.describe_topics = DescribeTopicPartitionsApi(self.services)
        self.describe_cluster = DescribeClusterApi(self.services)
        self.answers: list[Message | None] = []
        self.on_client_done: list[Callable[[], None]] = []
        self.client_id = ""
        self.listener = "PLAINTEXT"

    # --- the metadata -------------------------------------------------------------------------------------------------

    def _apply(self, records: Sequence[MetadataRecord]) -> None:
        self.tables.apply([metadata_batch(self.tables.applied.end_offset, records)], note_delta=True)

    def begin_anew(self) -> None:
        """Show the whole state, as on a start and after a snapshot."""
        self.tables.take_deltas()
        for publisher in (self.cluster, self.configs, self.partitions):
            publisher.on_snapshot(Offset(self.tables.applied.end_offset), self.tables.connection)

    def commit(self, *records: MetadataRecord) -> None:
        """Commit records in one batch, and tell the broker."""
        self._apply(records)
        for delta in self.tables.take_deltas():
            for publisher in (self.cluster, self.configs, self.partitions):
                publisher.on_delta(delta)

    def leads(self, partition: Partition, epoch: int) -> None:
        """Note it, as a listener."""
        self.leaderships.append((str(partition), partition.topic_id, epoch, True))

    def leads_no_more(self, partition: Partition, epoch: int) -> None:
        """Note it, as a listener."""
        self.leaderships.append((str(partition), partition.topic_id, epoch, False))

    # --- requests -----------------------------------------------------------------------------------------------------

    def ask(self, handler: Handler, body: Message, version: int) -> None:
        """Have a request handled as it comes from the wire; its answer, as it goes there, is appended to `answers`."""
        api = api_of(body.KEY)
        received = decode(api.request, version, bytearray(encode(body, version)))
        context = RequestContext("127.0.0.1", self.listener, self.client_id)

        def reply(response: Message | None, throttle_ms: int = 0) -> None:
            sent = None if response is None else decode(api.response, version, encode(response, version))
            self.answers.append(sent)

        handler(ClientRequest(api, version, received, context, 100, self.on_client_done), reply)

    def client_goes(self) -> None:
        """The client of all requests so far is gone."""
        for told in self.on_client_done:
            told()
        self.on_client_done = []

    def answer_to(self, handler: Handler, body: Message, version: int, kind: type[R]) -> R:
        """The answer to a request that is answered at once."""
        self.ask(handler, body, version)
        return self.last(kind)

    def last(self, kind: type[R]) -> R:
        """The last answer."""
        response = self.answers.pop()
        assert isinstance(response, kind)
        return response

    def send(
        self, *parts: tuple[int, bytes | None], acks: int = -1, version: int = 13, number: int = 1,
        name: str = "clicks", transactional_id: str | None = None,
    ) -> None:  # fmt: skip
        """Produce a batch to each of some partitions of a topic."""
        data = tuple(PartitionProduceData(index=index, records=records) for index, records in parts)
        topics = (TopicProduceData(name=name, topic_id=an_id(number), partition_data=data),)
        body = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics, transactional_id=transactional_id)
        self.ask(self.produce.handle, body, version)

    def read(
        self, *parts: tuple[int, int], min_bytes: int = 1, version: int = 17, number: int = 1, name: str = "clicks",
        isolation: int = 0, max_bytes: int = 1_000_000, last_fetched_epoch: int = -1, leader_epoch: int = -1,
        follower: int = -1, broker_epoch: int = -1, log_start_offset: int = -1,
    ) -> None:  # fmt: skip
        """Fetch from an offset of each of some partitions of a topic; `follower` is the broker that follows."""
        asked = tuple(
            FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=1_000_000,
                last_fetched_epoch=last_fetched_epoch, current_leader_epoch=leader_epoch,
                log_start_offset=log_start_offset,
            )
            for index, offset in parts
        )  # fmt: skip
        topics = (FetchTopic(topic=name, topic_id=an_id(number), partitions=asked),)
        body = FetchRequest(
            max_wait_ms=500,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=topics,
            replica_state=ReplicaState(replica_id=follower, replica_epoch=broker_epoch),
        )
        self.ask(self.fetch.handle, body, version)

    def produced(self) -> list[PartitionProduceResponse]:
        """What the last answer says of each partition."""
        return [part for topic in self.last(ProduceResponse).responses for part in topic.partition_responses]

    def produced_codes(self) -> list[int]:
        """The error codes of the last answer."""
        return [part.error_code for part in self.produced()]

    def fetched(self) -> list[PartitionData]:
        """What the last answer says of each partition."""
        return [part for topic in self.last(FetchResponse).responses for part in topic.partitions]

    def replica(self, index: int = 0, number: int = 1) -> Partition:
        """A replica on this broker."""
        found = self.partitions.with_id(an_id(number), index)
        assert found is not None
        return found

    def high_watermark(self, index: int = 0, number: int = 1) -> int:
        """How far readers see."""
        return self.replica(index, number).online_log().high_watermark
