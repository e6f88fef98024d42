"""ListOffsets (DB-50, DB-51) and OffsetForLeaderEpoch (DB-41)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraftlog.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.kraftlog.broker.broker_world import BrokerWorld, replicas, topic
from tests.kraftlog.storage.builders import NOW_MS, TRANSACTIONAL, batch, produced

CONSUMER, DEBUGGER, FOLLOWER = -1, -2, 2
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
NOTHING = (ErrorCode.NONE, -1, -1, -1)


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """A leader in epoch 3 with three records, the last of which is not committed."""
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(epoch=3), replicas(index=1, on=[1, 2], leader=2, epoch=4)])
    world.send((0, batch(1, timestamp_ms=NOW_MS + 9)), (0, batch(1, timestamp_ms=NOW_MS)), acks=1)
    world.runtime.run()
    world.send((0, batch(1, timestamp_ms=NOW_MS + 20)), acks=1)
    world.answers.clear()
    return world


def listed(
    world: BrokerWorld, timestamp: int, *, version: int = 11, index: int = 0, replica: int = CONSUMER,
    isolation: int = 0, leader_epoch: int = -1, times: int = 1,
) -> ListOffsetsPartitionResponse:  # fmt: skip
    """What is said of a partition."""
    one = ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=leader_epoch)
    topics = (ListOffsetsTopic(name="clicks", partitions=(one,) * times),)
    body = ListOffsetsRequest(replica_id=replica, isolation_level=isolation, topics=topics)
    response = world.answer_to(world.list_offsets.handle, body, version, ListOffsetsResponse)
    return response.topics[0].partitions[0]


def found(part: ListOffsetsPartitionResponse) -> tuple[int, int, int, int]:
    return part.error_code, part.timestamp, part.offset, part.leader_epoch


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (LATEST, (ErrorCode.NONE, -1, 2, 3)),
        (EARLIEST, (ErrorCode.NONE, -1, 0, 3)),
        (EARLIEST_LOCAL, (ErrorCode.NONE, -1, 0, 3)),
        (LATEST_TIERED, NOTHING),
        (PENDING_UPLOAD, NOTHING),
        (0, (ErrorCode.NONE, NOW_MS + 9, 0, 3)),
        (NOW_MS, (ErrorCode.NONE, NOW_MS + 9, 0, 3)),
        (NOW_MS + 10, NOTHING),
        (NOW_MS + 21, NOTHING),
        (-7, (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)),
    ],
)
def test_a_consumer_finds_what_is_committed(
    world: BrokerWorld, timestamp: int, answer: tuple[int, int, int, int]
) -> None:
    assert found(listed(world, timestamp)) == answer


def test_the_record_with_the_largest_timestamp_is_found_when_it_is_committed(world: BrokerWorld) -> None:
    assert found(listed(world, MAX_TIMESTAMP)) == NOTHING
    world.runtime.run()
    world.answers.clear()
    assert found(listed(world, MAX_TIMESTAMP)) == (ErrorCode.NONE, NOW_MS + 20, 2, 3)


@pytest.mark.parametrize(
    ("timestamp", "first_version"),
    [(LATEST, 1), (EARLIEST, 1), (MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)],
)
@pytest.mark.parametrize("version", range(1, 12))
def test_db50_each_special_timestamp_has_a_first_version_and_epochs_are_told_from_4_on(
    world: BrokerWorld, timestamp: int, first_version: int, version: int
) -> None:
    part = listed(world, timestamp, version=version)
    expected = ErrorCode.NONE if version >= first_version else ErrorCode.UNSUPPORTED_VERSION
    assert part.error_code == expected
    if timestamp in (LATEST, EARLIEST):
        assert part.leader_epoch == (3 if version >= 4 else -1)


@pytest.mark.parametrize("replica", [DEBUGGER, FOLLOWER])
def test_brokers_and_debuggers_are_told_of_the_whole_log(world: BrokerWorld, replica: int) -> None:
    assert listed(world, LATEST, replica=replica).offset == 3
    assert listed(world, NOW_MS + 10, replica=replica).offset == 2


def test_only_a_debugger_may_ask_a_follower(world: BrokerWorld) -> None:
    assert listed(world, EARLIEST, index=1, replica=DEBUGGER).error_code == ErrorCode.NONE
    for replica in (CONSUMER, FOLLOWER):
        assert listed(world, EARLIEST, index=1, replica=replica).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_leaders_epoch_is_checked(world: BrokerWorld) -> None:
    assert listed(world, LATEST, leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert listed(world, LATEST, leader_epoch=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert listed(world, LATEST, leader_epoch=3).error_code == ErrorCode.NONE
    assert listed(world, LATEST, index=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert listed(world, LATEST, times=2).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
@pytest.mark.parametrize("timestamp", [LATEST, NOW_MS + 20, NOW_MS + 21])
def test_db21_a_new_leader_that_does_not_know_what_is_committed_says_so(
    tmp_path: Path, version: int, code: ErrorCode, timestamp: int
) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2])])
    world.send((0, batch(1, timestamp_ms=NOW_MS + 20)), acks=1)
    world.runtime.run()
    world.answers.clear()
    world.commit(replicas(on=[1, 2], epoch=1))
    assert found(listed(world, timestamp, version=version)) == (code, -1, -1, -1)
    assert listed(world, EARLIEST, version=version).offset == 0
    assert listed(world, LATEST, version=version, replica=FOLLOWER).offset == 1


def test_readers_of_committed_records_find_the_last_stable_offset(world: BrokerWorld) -> None:
    world.runtime.run()
    log = world.replica().online_log()
    log.append_as_leader(produced(7, 0, attributes=TRANSACTIONAL), 3, NOW_MS)
    log.flush()
    world.replica().raise_high_watermark()
    world.answers.clear()
    assert [listed(world, LATEST, isolation=isolation).offset for isolation in (0, 1)] == [4, 3]


def test_the_log_starts_where_records_were_deleted_to(world: BrokerWorld) -> None:
    world.replica().online_log().delete_records(1)
    assert found(listed(world, EARLIEST)) == (ErrorCode.NONE, -1, 1, 3)
    assert found(listed(world, 0)) == (ErrorCode.NONE, NOW_MS, 1, 3)


# --- epochs -----------------------------------------------------------------------------------------------------------


def epoch_end(world: BrokerWorld, epoch: int, *, current: int = -1, index: int = 0) -> EpochEndOffset:
    one = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    body = OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic="clicks", partitions=(one,)),))
    response = world.answer_to(world.epoch_ends.handle, body, 4, OffsetForLeaderEpochResponse)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize(
    ("epoch", "end"), [(-1, (-1, -1)), (2, (2, 0)), (3, (3, 3)), (5, (3, 3)), (6, (6, 4)), (7, (-1, -1))]
)
def test_db41_an_epoch_ends_where_the_next_one_begins(world: BrokerWorld, epoch: int, end: tuple[int, int]) -> None:
    world.runtime.run()
    world.commit(replicas(epoch=6))
    world.send((0, batch(1)), acks=1)
    part = epoch_end(world, epoch)
    assert (part.error_code, part.leader_epoch, part.end_offset) == (ErrorCode.NONE, *end)


def test_epochs_are_told_by_the_leader_in_the_epoch_that_the_reader_knows(world: BrokerWorld) -> None:
    assert epoch_end(world, 3, current=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert epoch_end(world, 3, current=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert epoch_end(world, 3, index=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert epoch_end(world, 3, index=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
