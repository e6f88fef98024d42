"""What `bench metadata` makes and how it counts, without a cluster."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.bench.creation import TOPICS_PER_OPERATION, create_all, operations, placed_topics, shared_topics
from kraftlog.bench.metadata.altering import AlteringBroker, Led
from kraftlog.bench.metadata.run import PARTS
from kraftlog.bench.workload import BROKER_IDS
from kraftlog.cli.testing.bench import METADATA_PARTS
from kraftpb.v1 import admin_pb2
from tests.kraftlog.command_line import Run


def test_brokers_share_the_leadership_of_topics_evenly_and_hold_all_of_them() -> None:
    topics = list(shared_topics("topic", topics=6, partitions=100))
    assignments = [tuple(of.broker_ids) for topic in topics for of in topic.assignments]
    assert {tuple(sorted(brokers)) for brokers in assignments} == {BROKER_IDS}
    assert Counter(brokers[0] for brokers in assignments) == dict.fromkeys(BROKER_IDS, 200)
    assert [of.partition_id for of in topics[1].assignments] == list(range(100))


def test_operations_create_every_topic_once_and_some_at_a_time() -> None:
    made = operations(placed_topics("topic", topics=TOPICS_PER_OPERATION * 2 + 1, partitions=7))
    assert [len(of.create_topics.topics) for of in made] == [TOPICS_PER_OPERATION, TOPICS_PER_OPERATION, 1]
    names = [topic.name for of in made for topic in of.create_topics.topics]
    assert sorted(names) == sorted(f"topic-{number}" for number in range(TOPICS_PER_OPERATION * 2 + 1))


class Leader:
    """Answers an operation on request; the operations received are in `asked`."""

    def __init__(self) -> None:
        self.asked: list[admin_pb2.Operation] = []
        self.may_answer = asyncio.Event()
        self.error = ErrorCode.NONE

    async def execute(self, operation: admin_pb2.Operation, *, retry: bool) -> admin_pb2.OperationResult:
        assert not retry
        self.asked.append(operation)
        number = len(self.asked)
        await self.may_answer.wait()
        if operation.HasField("create_topics"):
            return admin_pb2.OperationResult(end_offset=100 + number)
        (altered,) = operation.alter_partition.partitions
        answer = admin_pb2.AlterPartitionResult(
            error_code=self.error, leader_epoch=altered.leader_epoch + 1, partition_epoch=altered.partition_epoch + 2
        )
        return admin_pb2.OperationResult(alter_partition=admin_pb2.AlterPartitionResponse(partitions=[answer]))


async def test_creations_go_on_side_by_side_and_the_highest_end_offset_counts() -> None:
    leader = Leader()
    creating = asyncio.create_task(create_all(leader, operations(placed_topics("topic", 20 * TOPICS_PER_OPERATION, 1))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(leader.asked) > 1
    leader.may_answer.set()
    assert len(leader.asked) < 20
    assert await creating == 120
    assert len(leader.asked) == 20


def altering_broker(leader: Leader, partitions: int) -> AlteringBroker:
    broker: Any = SimpleNamespace(life=SimpleNamespace(broker_id=1, broker_epoch=5), client=leader)
    led = [Led(bytes(16), partition_id, 0, 0, (1, 2, 3)) for partition_id in range(partitions)]
    return AlteringBroker(broker, led)


async def test_a_replica_leaves_the_isr_and_comes_back_under_the_epochs_of_the_answer_before() -> None:
    leader = Leader()
    leader.may_answer.set()
    broker = altering_broker(leader, 1)
    for _ in range(3):
        await broker.alter(time.monotonic())
    asked = [operation.alter_partition.partitions[0] for operation in leader.asked]
    assert [[member.broker_id for member in of.new_isr] for of in asked] == [[1, 2], [1, 2, 3], [1, 2]]
    assert [(of.leader_epoch, of.partition_epoch) for of in asked] == [(0, 0), (1, 2), (2, 4)]
    assert {operation.alter_partition.broker_epoch for operation in leader.asked} == {5}


async def test_a_partition_is_not_altered_while_its_answer_is_awaited_and_the_time_counts_from_when_it_was_due() -> (
    None
):
    leader = Leader()
    broker = altering_broker(leader, 1)
    altering = [asyncio.create_task(broker.alter(time.monotonic() - 60)) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(leader.asked) == 1
    leader.may_answer.set()
    await asyncio.gather(*altering)
    assert len(leader.asked) == 2
    assert [time_ms >= 60_000 for time_ms in broker.times_ms] == [True, True]


async def test_a_refused_alteration_is_counted_and_changes_nothing() -> None:
    leader = Leader()
    leader.may_answer.set()
    broker = altering_broker(leader, 1)
    leader.error = ErrorCode.INVALID_UPDATE_VERSION
    await broker.alter(time.monotonic())
    leader.error = ErrorCode.NONE
    await broker.alter(time.monotonic())
    assert (len(broker.errors), len(broker.times_ms)) == (1, 1)
    assert broker.errors[0].startswith("INVALID_UPDATE_VERSION")
    first, second = (operation.alter_partition.partitions[0] for operation in leader.asked)
    assert (first.partition_epoch, list(first.new_isr)) == (second.partition_epoch, list(second.new_isr))


async def test_a_creation_that_fails_is_not_counted_as_done() -> None:
    class Refusing(Leader):
        async def execute(self, operation: admin_pb2.Operation, *, retry: bool) -> admin_pb2.OperationResult:
            return admin_pb2.OperationResult(error_code=ErrorCode.NOT_CONTROLLER, error_message="elsewhere")

    with pytest.raises(ApiError, match="elsewhere"):
        await create_all(Refusing(), operations(placed_topics("topic", 1, 1)))


def test_the_command_knows_every_part(run: Run) -> None:
    assert METADATA_PARTS == PARTS
    said = run("bench", "metadata", "--only", "create,everything")
    assert said.code == 2
    assert "'everything' is not a part" in said.errors
