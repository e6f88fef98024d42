"""Real batches for the tests: a log built by hand, and two sources that serve it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import grpc
import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.analytics.source import LogDescription
from kraftpb.v1 import log_pb2, log_pb2_grpc
from kraftpb.v1.metadata_pb2 import (
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from raft.core.messages import LeaderChange
from raft.core.types import Batch, ReplicaKey
from raft.storage.batch import encode_batch, encode_body
from raft.storage.control import encode_leader_change

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
START_MS = 1_700_000_000_000


@dataclass
class HandMadeLog:
    """A committed log: append to it, then serve it."""

    cluster_id: str = CLUSTER_ID
    log_start_offset: int = 0
    batches: list[Batch] = field(default_factory=list)
    epoch: int = 0
    now_ms: int = START_MS

    @property
    def end_offset(self) -> Offset:
        return self.batches[-1].end_offset if self.batches else Offset(self.log_start_offset)

    def elect(self, leader_id: int) -> None:
        """A new epoch, and the record that opens it."""
        self.epoch += 1
        voters = tuple(ReplicaKey(NodeId(node), UUID(int=node + 1)) for node in (1, 2, 3))
        body = encode_leader_change(
            LeaderChange(leader_id=NodeId(leader_id), voters=voters, granting_voters=voters[:2])
        )
        self._append(body, 1, is_control=True)

    def append(self, *records: MetadataRecord) -> None:
        self.append_bytes(*(record.SerializeToString() for record in records))

    def append_bytes(self, *records: bytes) -> None:
        self._append(encode_body(records), len(records), is_control=False)

    def from_offset(self, offset: int) -> HandMadeLog:
        """The same log after its prefix is gone."""
        kept = [batch for batch in self.batches if batch.end_offset > offset]
        return HandMadeLog(self.cluster_id, offset, kept, self.epoch, self.now_ms)

    def up_to(self, batch_count: int) -> HandMadeLog:
        """The same log when only this many batches were committed."""
        return HandMadeLog(self.cluster_id, self.log_start_offset, self.batches[:batch_count], self.epoch, self.now_ms)

    def _append(self, body: bytes, count: int, *, is_control: bool) -> None:
        self.batches.append(encode_batch(self.end_offset, Epoch(self.epoch), body, count, self.now_ms, is_control))
        self.now_ms += 250


class MemorySource:
    """Serves a hand-made log without a network."""

    def __init__(self, log: HandMadeLog) -> None:
        self.log = log
        self.is_level = True

    async def describe(self) -> LogDescription:
        return LogDescription(
            self.log.cluster_id, Offset(self.log.log_start_offset), self.log.end_offset, self.is_level
        )

    async def batches(self, start_offset: Offset, end_offset: Offset) -> AsyncGenerator[Batch]:
        if start_offset < self.log.log_start_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {start_offset} is gone")
        for batch in self.log.batches:
            if batch.end_offset > start_offset and batch.base_offset < end_offset:
                yield batch
                await asyncio.sleep(0)


@dataclass
class LogServicer(log_pb2_grpc.LogServiceServicer):
    """Serves a hand-made log as a node does, and misbehaves on request."""

    log: HandMadeLog
    batches_per_response: int = 2
    responses_before_it_breaks: int | None = None
    stalls: bool = False
    garbles: bool = False
    behind_ms: int | None = None
    """Of a node that hears no leader; None: it is of a version that does not say so."""
    watches: list[int] = field(default_factory=list)
    """The start offset of every Watch call."""

    @property
    def _contact(self):
        return self.behind_ms and log_pb2.LeaderContact(behind_ms=self.behind_ms, behind_max_ms=2_000)

    async def DescribeNode(self, request, context):
        return log_pb2.DescribeNodeResponse(
            cluster_id=self.log.cluster_id,
            log_start_offset=self.log.log_start_offset,
            high_watermark=self.log.end_offset,
            leader_contact=self._contact,
        )

    async def Watch(self, request, context):
        self.watches.append(request.start_offset)
        if request.HasField("cluster_id") and request.cluster_id != self.log.cluster_id:
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, ErrorCode.INCONSISTENT_CLUSTER_ID)
        if request.start_offset < self.log.log_start_offset:
            await _abort(context, grpc.StatusCode.OUT_OF_RANGE, ErrorCode.OFFSET_OUT_OF_RANGE)
        await context.write(log_pb2.WatchResponse(high_watermark=self.log.end_offset, leader_contact=self._contact))
        if self.stalls:
            await asyncio.Event().wait()
        wanted = [
            batch.data
            for batch in self.log.batches
            if batch.end_offset > request.start_offset and batch.base_offset < request.end_offset
        ]
        for sent, first in enumerate(range(0, len(wanted), self.batches_per_response)):
            if sent == self.responses_before_it_breaks:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
            data = b"".join(wanted[first : first + self.batches_per_response])
            await context.write(log_pb2.WatchResponse(records=data[:-1] if self.garbles else data))


async def _abort(context, status: grpc.StatusCode, error: ErrorCode) -> None:
    await context.abort(status, error.name, trailing_metadata=(("kraftlog-error", str(int(error))),))


@asynccontextmanager
async def serving(servicer: LogServicer) -> AsyncIterator[Endpoint]:
    """The servicer on a free port of loopback."""
    server = grpc.aio.server()
    log_pb2_grpc.add_LogServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Endpoint("127.0.0.1", port)
    finally:
        await server.stop(grace=None)


def register_broker(broker_id: int, rack: str | None = None) -> MetadataRecord:
    return MetadataRecord(
        register_broker=RegisterBrokerRecord(
            broker_id=broker_id, incarnation_id=uuid(broker_id).bytes, broker_epoch=broker_id + 100, rack=rack
        )
    )


def topic(name: str, number: int) -> MetadataRecord:
    return MetadataRecord(topic=TopicRecord(name=name, topic_id=uuid(number).bytes))


def partition(number: int, partition_id: int, replicas: list[int], leader: int | None = None) -> MetadataRecord:
    return MetadataRecord(
        partition=PartitionRecord(
            partition_id=partition_id,
            topic_id=uuid(number).bytes,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0] if leader is None else leader,
        )
    )


def remove_topic(number: int) -> MetadataRecord:
    return MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=uuid(number).bytes))


def topic_config(topic_name: str, name: str, value: str | None) -> MetadataRecord:
    return MetadataRecord(config=ConfigRecord(resource_type=2, resource_name=topic_name, name=name, value=value))


def no_op() -> MetadataRecord:
    return MetadataRecord(no_op=NoOpRecord())


def uuid(number: int) -> UUID:
    return UUID(int=0xABCDEF << 64 | number)


def small_log() -> HandMadeLog:
    """Three epochs, topics created, deleted, created again, configs set, changed and removed. 29 records."""
    log = HandMadeLog()
    log.elect(1)
    log.append(register_broker(11, rack="a"), register_broker(12), register_broker(13))
    log.append(topic("orders", 1), topic_config("orders", "retention.ms", "1000"))
    log.append(partition(1, 0, [11, 12]), partition(1, 1, [12, 11]))
    log.append(topic("clicks", 2), topic_config("clicks", "cleanup.policy", "compact"), partition(2, 0, [12]))
    log.append(no_op())
    log.elect(2)
    log.append(topic_config("clicks", "retention.ms", "5"), topic_config("orders", "retention.ms", "2000"))
    log.append(topic_config("orders", "segment.bytes", "1048576"), topic_config("orders", "segment.bytes", None))
    log.append(remove_topic(2))
    log.append(topic("clicks", 3), partition(3, 0, [11]), partition(3, 1, [12]), partition(3, 2, [11]))
    log.append(topic_config("clicks", "retention.ms", "7"))
    log.elect(1)
    log.append(partition(1, 0, [11, 12], leader=12), register_broker(11, rack="a"))
    log.append(topic("gone", 4), partition(4, 0, [12, 11]), topic_config("gone", "retention.ms", "9"))
    log.append(remove_topic(4))
    return log
