"""A real node on loopback with metadata in it, and the outcomes of the operations that a client sends it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kraftbase.errors import ErrorCode
from kraftbase.types import Offset
from kraftlog.admin.client.channels import open_channel
from kraftlog.admin.client.operation_stream import OperationStream
from kraftlog.controller.controller_config import ControllerConfig
from kraftpb.v1 import admin_pb2, admin_pb2_grpc
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from kraftpb.v1.metadata_pb2 import MetadataBatch, PartitionRecord
from raft.client import RaftClient
from raft.core.types import LeaderAndEpoch
from raft.listener import BatchReader, Listener
from statemachine.words.limits import NOTHING_WRITTEN
from tests.kraftlog.admin.admin_nodes import AdminNode, admin_cluster
from tests.kraftlog.controller.errors.cases import Case
from tests.statemachine.builders import alive, heartbeat, register
from tests.statemachine.waiting import until

QUIET = ControllerConfig(
    broker_session_timeout_ms=3_600_000,
    leader_imbalance_check_interval_seconds=3_600,
    remote_log_storage_system_enable=True,
)
"""No broker is fenced for silence, and nothing is written that no operation asked for. Topics may be tiered."""

changed = dataclasses.replace

TIMEOUT_MS = 30_000
BY_ITSELF = frozenset({"no_op"})
"""Records that a controller writes without an operation."""


class Written(Listener):
    """Which kinds of records were committed, and at which offsets."""

    def __init__(self) -> None:
        self.kinds: list[tuple[int, str]] = []
        self.end_offset = Offset(0)

    async def handle_commit(self, reader: BatchReader) -> None:
        with reader:
            for batch in reader:
                records = [] if batch.is_control else MetadataBatch.FromString(batch.body).records
                self.kinds += [
                    (batch.base_offset + at, record.WhichOneof("record") or "nothing")
                    for at, record in enumerate(records)
                ]
            self.end_offset = reader.end_offset

    async def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Nothing to do."""


@dataclass
class World:
    """One node, which leads, and a client of it."""

    node: AdminNode
    log: RaftClient
    stream: OperationStream
    stub: admin_pb2_grpc.AdminServiceAsyncStub
    written: Written
    epochs: dict[int, int] = field(default_factory=dict)
    """Of the brokers, as `learn` found them."""
    topics: dict[str, admin_pb2.TopicDescription] = field(default_factory=dict)
    """As `learn` found them."""

    async def run(self, operation: Operation) -> OperationResult:
        """Have the node carry out an operation."""
        return await self.stream.execute(operation, TIMEOUT_MS)

    async def done(self, *operations: Operation) -> OperationResult:
        """Carry out operations that must succeed in all their parts; the answer to the last."""
        for operation in operations:
            result = await self.run(operation)
            assert refusals(result) == [], result
        return result

    async def with_brokers(self, *broker_ids: int, fenced: Sequence[int] = ()) -> None:
        """Register brokers that are alive, and some that are fenced."""
        for broker_id in (*broker_ids, *fenced):
            registered = await self.done(register(broker_id))
            if broker_id not in fenced:
                await self.done(alive(broker_id, registered.register_broker.broker_epoch))
        await self.learn()

    async def fence(self, broker_id: int) -> None:
        await self.done(Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=broker_id)))

    async def unfence(self, broker_id: int) -> None:
        await self.done(alive(broker_id, self.epochs[broker_id]))

    async def begin_shutdown(self, broker_id: int) -> None:
        """The broker must lead something: then it is in controlled shutdown until its next heartbeat."""
        offset = self.node.machine.applied_end_offset
        request = heartbeat(broker_id, self.epochs[broker_id], offset, want_shut_down=True)
        await self.done(Operation(broker_heartbeat=request))

    async def unregister(self, broker_id: int) -> None:
        await self.done(Operation(unregister_broker=admin_pb2.UnregisterBrokerRequest(broker_id=broker_id)))

    async def settle(self) -> None:
        """Wait until all is done that earlier operations do after their answers."""
        await self.done(register(99))
        await self.unregister(99)  # its pages come last, and it waits for them
        await self.learn()

    async def learn(self) -> None:
        """Read brokers and topics."""
        brokers = await self.stub.ListBrokers(admin_pb2.ListBrokersRequest())
        self.epochs = {broker.broker_id: broker.broker_epoch for broker in brokers.brokers}
        described = await self.stub.DescribeTopics(admin_pb2.DescribeTopicsRequest())
        self.topics = {topic.name: topic for topic in described.topics}

    def topic_id(self, topic: str) -> bytes:
        return self.topics[topic].topic_id

    def partition(self, topic: str, partition_id: int = 0) -> PartitionRecord:
        return self.topics[topic].partitions[partition_id]

    async def written_since(self, offset: Offset) -> list[str]:
        """The kinds of the records from `offset` on, except for those that a controller writes by itself."""
        await until(lambda: self.written.end_offset >= self.log.next_append_offset)
        return [kind for at, kind in self.written.kinds if at >= offset and kind not in BY_ITSELF]

    async def refuses(self, case: Case, spoil: Callable[[Operation], object] = lambda operation: None) -> None:
        """Check that the operation yields the error and nothing else: no record, and a message with the reason."""
        operation = Operation()
        operation.CopyFrom(case.operation(self) if callable(case.operation) else case.operation)
        spoil(operation)
        before = self.log.next_append_offset
        result = await self.run(operation)
        found = refusals(result)
        assert {error for error, _ in found} == {case.error}, result
        assert result.error_code or len(found) == len(parts(result)), "a part of it was done"
        for _, message in found:
            missing = [word for word in case.words(self) if word not in message]
            assert not missing, f"{missing} not in {message!r}"
        assert result.end_offset == NOTHING_WRITTEN
        assert await self.written_since(before) == []


def parts(result: OperationResult) -> list[Any]:
    """The answers to the single topics, partitions or other parts of the operation."""
    kind = result.WhichOneof("result")
    if kind is None:
        return []
    values = [value for _, value in getattr(result, kind).ListFields() if isinstance(value, Sequence)]
    return [part for value in values for part in value if hasattr(part, "error_code")]


def refusals(result: OperationResult) -> list[tuple[ErrorCode, str]]:
    """The errors of an operation or of its parts, and their messages."""
    return [(ErrorCode(part.error_code), part.error_message) for part in [result, *parts(result)] if part.error_code]


@contextlib.asynccontextmanager
async def running_world(path: Path, config: ControllerConfig = QUIET) -> AsyncIterator[World]:
    """A node with nothing in it."""
    async with admin_cluster(path, config=config) as cluster:
        node, written = cluster.nodes[1], Written()
        log = RaftClient(node.node)
        log.register(written, start_offset=Offset(0))
        endpoint = cluster.endpoints[1]
        stream = await OperationStream.open(endpoint, open_channel(endpoint))
        async with open_channel(endpoint) as channel:
            world = World(node, log, stream, admin_pb2_grpc.AdminServiceStub(channel), written)
            await until(lambda: written.end_offset >= log.next_append_offset)
            yield world
        await stream.close()
