"""DeleteRecords (DB-65) and DescribeLogDirs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.broker.apis.delete_records import DeleteRecordsApi
from kraftlog.broker.apis.logs import DescribeLogDirsApi
from kraftlog.broker.apis.services import DiskSpace
from kraftlog.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kraftlog.kafka.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tests.kraftlog.broker.broker_world import ME, BrokerWorld, registration, replicas, topic
from tests.kraftlog.storage.builders import batch
from tests.statemachine.builders import config

HIGH_WATERMARK = -1


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """A broker that leads a partition with five records, of which four are committed."""
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(), replicas(index=1, on=[1, 2], leader=2)])
    world.send((0, batch(4)), acks=1)
    world.runtime.run()
    world.send((0, batch(1)), acks=1)
    world.answers.clear()
    return world


def deleted(world: BrokerWorld, offset: int, name: str = "clicks", index: int = 0) -> tuple[int, int]:
    """Error code and low watermark."""
    topics = (
        DeleteRecordsTopic(name=name, partitions=(DeleteRecordsPartition(partition_index=index, offset=offset),)),
    )
    body = DeleteRecordsRequest(topics=topics, timeout_ms=1_000)
    response = world.answer_to(DeleteRecordsApi(world.services).handle, body, 2, DeleteRecordsResponse)
    (part,) = response.topics[0].partitions
    return part.error_code, part.low_watermark


def test_db65_of_a_partition_that_is_named_twice_the_last_offset_counts_as_in_kafka(world: BrokerWorld) -> None:
    parts = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (4, 1)]
    topics = (
        *(DeleteRecordsTopic(name="clicks", partitions=(part,)) for part in parts),
        DeleteRecordsTopic(name="none", partitions=(DeleteRecordsPartition(partition_index=0, offset=0),)),
    )
    body = DeleteRecordsRequest(topics=topics, timeout_ms=1_000)
    response = world.answer_to(DeleteRecordsApi(world.services).handle, body, 2, DeleteRecordsResponse)
    answered = {topic.name: [(part.error_code, part.low_watermark) for part in topic.partitions]
                for topic in response.topics}  # fmt: skip
    assert answered == {"clicks": [(ErrorCode.NONE, 1)], "none": [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]}


@pytest.mark.parametrize(("offset", "start"), [(0, 0), (3, 3), (4, 4), (HIGH_WATERMARK, 4)])
def test_db65_records_are_deleted_up_to_an_offset_or_to_the_high_watermark(
    world: BrokerWorld, offset: int, start: int
) -> None:
    assert deleted(world, offset) == (ErrorCode.NONE, start)
    world.read((0, start - 1), min_bytes=0)
    assert [part.error_code for part in world.fetched()] == [ErrorCode.OFFSET_OUT_OF_RANGE]
    world.read((0, start), min_bytes=0)
    assert [(part.error_code, part.log_start_offset) for part in world.fetched()] == [(ErrorCode.NONE, start)]
    assert deleted(world, 0) == (ErrorCode.NONE, start)


@pytest.mark.parametrize("offset", [5, -2, 2**62])
def test_nothing_is_deleted_that_is_not_committed(world: BrokerWorld, offset: int) -> None:
    assert deleted(world, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert world.replica().online_log().log_start_offset == 0


def test_records_are_deleted_by_the_leader_of_a_topic_that_is_not_only_compacted(world: BrokerWorld) -> None:
    assert deleted(world, 1, index=1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert deleted(world, 1, index=2) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert deleted(world, 1, name="none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    world.commit(topic("__consumer_offsets", 2), replicas(2))
    assert deleted(world, 0, name="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    world.commit(config("clicks", "cleanup.policy", "compact"))
    assert deleted(world, 1) == (ErrorCode.POLICY_VIOLATION, -1)


# --- log directories --------------------------------------------------------------------------------------------------


def test_db65_a_deletion_that_waits_for_a_follower_is_answered_when_its_client_sends_nothing_more(
    tmp_path: Path,
) -> None:
    """Without an answer the connection would stay open for ever."""
    world = BrokerWorld(tmp_path, [registration(ME), registration(2), topic("clicks"), replicas(on=(ME, 2))])
    world.send((0, batch(5)), acks=1)
    world.runtime.run()
    world.read((0, 5), follower=2, broker_epoch=2, log_start_offset=0)
    world.answers.clear()
    part = DeleteRecordsPartition(partition_index=0, offset=3)
    body = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name="clicks", partitions=(part,)),), timeout_ms=1_000_000_000
    )
    world.ask(DeleteRecordsApi(world.services).handle, body, 2)
    assert world.answers == []
    world.client_goes()
    (answered,) = world.last(DeleteRecordsResponse).topics[0].partitions
    assert answered.error_code == ErrorCode.REQUEST_TIMED_OUT
    world.runtime.expire()
    assert not any(isinstance(answer, DeleteRecordsResponse) for answer in world.answers)


def described(world: BrokerWorld, *wanted: DescribableLogDirTopic) -> tuple[DescribeLogDirsResult, ...]:
    """What is said of the directories: of all topics if none is wanted."""
    api = DescribeLogDirsApi(replace(world.services, disk_space=lambda path: DiskSpace(100, 60)))
    body = DescribeLogDirsRequest(topics=wanted or None)
    return world.answer_to(api.handle, body, 5, DescribeLogDirsResponse).results


def test_a_directory_is_described_with_its_partitions_and_its_disk(world: BrokerWorld) -> None:
    (of_all,) = described(world)
    sizes = [(part.partition_index, part.partition_size, part.offset_lag) for part in of_all.topics[0].partitions]
    assert sizes == [(0, len(batch(4)) + len(batch(1)), 0), (1, 0, 0)]
    assert (of_all.error_code, of_all.total_bytes, of_all.usable_bytes) == (ErrorCode.NONE, 100, 60)
    (of_one,) = described(world, DescribableLogDirTopic(topic="clicks", partitions=(1, 9)))
    assert [part.partition_index for part in of_one.topics[0].partitions] == [1]
    (of_none,) = described(world, DescribableLogDirTopic(topic="none", partitions=(0,)))
    assert of_none.topics == ()


def test_a_directory_that_fails_is_described_as_failed_and_nothing_is_written_to_it(world: BrokerWorld) -> None:
    world.files.failing_syncs |= {"data/clicks-0/" + name for name in world.files.list_directory("data/clicks-0")}
    world.runtime.run()
    assert world.logs.online == []
    assert [(of.error_code, of.topics) for of in described(world)] == [(ErrorCode.KAFKA_STORAGE_ERROR, ())]
    assert deleted(world, 1) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
