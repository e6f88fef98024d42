"""Produce, Fetch and ListOffsets over one partition that this broker leads, on simulated disks."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Offset
from kraftlog.broker.apis.fetch import FetchApi
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.apis.offsets import ListOffsetsApi
from kraftlog.broker.apis.produce import ProduceApi
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.quotas.client_quotas import ClientQuotas
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kraftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import ClientRequest, ConnectionRefused, Handler, RequestContext
from kraftlog.replicas.partitions.fetch_sessions import FetchSessionCache
from kraftlog.replicas.partitions.partition import Replication
from kraftlog.replicas.partitions.partitions import NoReplication, Partitions, reraise
from kraftlog.storage.log_manager import LogManager
from kraftpb.v1.metadata_pb2 import PartitionRecord, TopicRecord
from statemachine.replay.deltas import Change, MetadataDelta
from statemachine.tables.database import open_database
from tests.kraftlog.broker.broker_world import LAG_MAX_MS
from tests.kraftlog.broker.services import services
from tests.kraftlog.storage.builders import CLUSTER_ID, StepRuntime, batch
from tests.kraftlog.telemetry.recorder import Recorder

TOPIC_ID = bytes(range(16))
BROKER = 1


class World:
    """A broker's partitions, and the answers to what it was asked."""

    def __init__(self, directory: Path) -> None:
        self.runtime = StepRuntime()
        configs = TopicConfigs(BROKER, {})
        self.logs = LogManager.open(
            MemoryFileSystem(), ["data"], self.runtime, cluster_id=CLUSTER_ID, node_id=BROKER,
            config_of=lambda partition: configs.log_config(partition.topic),
        )  # fmt: skip
        self.metadata = open_database(directory / "metadata.db", CLUSTER_ID).conn
        weakref.finalize(self, self.metadata.close)
        self.cluster = ClusterView(CLUSTER_ID)
        replication = Replication(
            BROKER,
            self.cluster,
            LAG_MAX_MS,
            self.runtime.now_ms,
            lambda partition, isr: None,
            Recorder(),
        )
        self.partitions = Partitions(
            self.logs, configs, replication, followers=NoReplication(), listeners=(),
            on_placed=lambda partition, directory_id: None, on_failed=reraise,
        )  # fmt: skip
        self.cluster.on_snapshot(Offset(0), self.metadata)
        lookup = PartitionLookup(self.partitions, self.cluster)
        self.quotas = ClientQuotas()
        self.sessions = FetchSessionCache(iter(range(1, 1_000)).__next__)
        has = services(
            lookup=lookup, runtime=self.runtime, usage=QuotaUsage(self.quotas), sessions=self.sessions,
            observer=Recorder(),
        )  # fmt: skip
        self.produce, self.fetch, self.list_offsets = ProduceApi(has), FetchApi(has), ListOffsetsApi(has)
        self.answers: list[Message | None] = []
        self.throttles: list[int] = []
        topic = Change(None, TopicRecord(name="clicks", topic_id=TOPIC_ID))
        self.partitions.on_delta(
            MetadataDelta(end_offset=Offset(1), topics=(topic,), partitions=(Change(None, self.record(BROKER, 0)),))
        )

    def record(self, leader: int, epoch: int) -> PartitionRecord:
        """The partition, led by a broker in an epoch."""
        return PartitionRecord(
            topic_id=TOPIC_ID, partition_id=0, replicas=[BROKER], isr=[BROKER], leader=leader, leader_epoch=epoch,
            partition_epoch=epoch,
        )  # fmt: skip

    def lead(self, leader: int, epoch: int) -> None:
        """Another leader."""
        change = Change(self.record(BROKER, 0), self.record(leader, epoch))
        self.partitions.on_delta(MetadataDelta(end_offset=Offset(epoch + 1), partitions=(change,)))

    def ask(self, handler: Handler, body: Message, version: int) -> None:
        """Have a request handled; its answer is appended to `answers`."""
        context = RequestContext("127.0.0.1", "PLAINTEXT")
        request = ClientRequest(api_of(body.KEY), version, body, context, 100)
        handler(request, self.answered)

    def answered(self, response: Message | None, throttle_ms: int = 0) -> None:
        """Keep an answer."""
        self.answers.append(response)
        self.throttles.append(throttle_ms)

    def send(self, data: bytes, acks: int = -1) -> None:
        """Produce a batch."""
        parts = (PartitionProduceData(index=0, records=memoryview(bytearray(data))),)
        topics = (TopicProduceData(topic_id=TOPIC_ID, partition_data=parts),)
        self.ask(self.produce.handle, ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics), 13)

    def read(self, offset: int, min_bytes: int = 1) -> None:
        """Fetch from an offset."""
        asked = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1_000_000, current_leader_epoch=0
        )  # fmt: skip
        topics = (FetchTopic(topic_id=TOPIC_ID, partitions=(asked,)),)
        self.ask(self.fetch.handle, FetchRequest(max_wait_ms=500, min_bytes=min_bytes, topics=topics), 17)

    def produced(self, at: int = -1) -> tuple[int, int]:
        """The error code and base offset of an answer."""
        response = self.answers[at]
        assert isinstance(response, ProduceResponse)
        (part,) = response.responses[0].partition_responses
        return part.error_code, part.base_offset

    def fetched(self, at: int = -1) -> tuple[int, int, int]:
        """The error code, high watermark and number of bytes of an answer."""
        response = self.answers[at]
        assert isinstance(response, FetchResponse)
        (part,) = response.responses[0].partitions
        return part.error_code, part.high_watermark, len(part.records or b"")


def test_acks_all_is_answered_when_the_batch_is_durable_and_readers_see_it_then_and_not_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    data = batch(2)
    world.read(0)
    world.send(data)
    assert world.answers == []
    world.runtime.run()
    assert world.produced(0) == (ErrorCode.NONE, 0), "the producer does not wait until readers have their answers"
    assert world.fetched(1) == (ErrorCode.NONE, 2, len(data))


def test_a_fetch_that_waits_ends_when_the_broker_leads_no_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.read(0)
    world.lead(2, 1)
    assert world.fetched() == (ErrorCode.FENCED_LEADER_EPOCH, -1, 0)


def test_a_produce_that_waits_for_its_flush_ends_when_the_broker_leads_no_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(batch(1))
    world.lead(2, 1)
    world.runtime.run()
    assert world.produced() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize(("data", "code"), [(b"x" * 80, ErrorCode.CORRUPT_MESSAGE), (b"", ErrorCode.INVALID_RECORD)])
def test_bytes_that_are_no_batch_are_refused_and_nothing_is_written(
    tmp_path: Path, data: bytes, code: ErrorCode
) -> None:
    world = World(tmp_path)
    world.send(data)
    assert world.produced() == (code, -1)
    with pytest.raises(ConnectionRefused):
        world.send(data, acks=0)
    world.send(batch(1), acks=2)
    assert world.produced() == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    world.send(batch(1), acks=0)
    world.runtime.run()
    world.read(0, min_bytes=0)
    assert world.fetched() == (ErrorCode.NONE, 1, len(batch(1)))


def test_offsets_are_listed_up_to_the_high_watermark(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(batch(3))
    asked = tuple(ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in (-1,))
    topics = (ListOffsetsTopic(name="clicks", partitions=asked),)
    offsets = []
    for _ in range(2):
        world.ask(world.list_offsets.handle, ListOffsetsRequest(replica_id=-1, topics=topics), 10)
        response = world.answers.pop()
        assert isinstance(response, ListOffsetsResponse)
        offsets.append(response.topics[0].partitions[0].offset)
        world.runtime.run()
        world.answers.clear()
    assert offsets == [0, 3]


def test_a_fetch_beyond_the_end_is_out_of_range_and_tells_where_the_log_starts(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.read(5)
    assert world.fetched() == (ErrorCode.OFFSET_OUT_OF_RANGE, 0, 0)
