"""What happens to requests that wait while their partition goes away, changes its leader or loses its disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.partition import TopicPartition
from kraftlog.kafka.messages.fetch import FetchResponse
from kraftpb.v1.metadata_pb2 import MetadataRecord
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic
from tests.kraftlog.storage.builders import batch
from tests.statemachine.builders import batch as metadata_batch
from tests.statemachine.builders import remove_topic

MOVED = replicas(on=[2], epoch=1)
OTHER_LEADER = replicas(on=[1, 2], leader=2, epoch=1)
MADE_ANEW = (remove_topic(1), topic("clicks", 2), replicas(2))


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ((remove_topic(1),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MADE_ANEW, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((MOVED,), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
@pytest.mark.parametrize("comes_by_snapshot", [False, True])
def test_a_fetch_and_a_produce_that_wait_for_others_end_with_what_became_of_the_partition(
    tmp_path: Path, records: tuple[MetadataRecord, ...], code: ErrorCode, comes_by_snapshot: bool
) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2])])
    partition = world.replica()
    world.send((0, batch(1)))
    world.runtime.run()
    world.read((0, 0))
    assert world.answers == []
    if comes_by_snapshot:
        world.tables.apply([metadata_batch(2, records)])
        world.begin_anew()
    else:
        world.commit(*records)
    assert [part.error_code for part in world.fetched()] == [code]
    assert world.produced_codes() == [code]
    assert all(timer.is_cancelled for timer in world.runtime.timers)
    assert partition.watcher_count == 0


@pytest.mark.parametrize("version", [10, 18])
def test_a_fetch_and_a_produce_that_wait_end_when_another_broker_leads(tmp_path: Path, version: int) -> None:
    """A consumer that knows of racks may read from a follower: it is told of the new epoch, as it named the old one."""
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2])])
    world.send((0, batch(1)))
    world.runtime.run()
    world.read((0, 0), version=version, leader_epoch=0)
    assert world.answers == []
    world.commit(OTHER_LEADER)
    assert [part.error_code for part in world.fetched()] == [ErrorCode.FENCED_LEADER_EPOCH]
    assert world.produced_codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.replica().watcher_count == 0


def test_a_followers_fetch_that_is_due_has_what_came_to_any_partition_until_it_is_answered(tmp_path: Path) -> None:
    others = [replicas(index=index, on=[1, 2]) for index in range(3)]
    world = BrokerWorld(tmp_path, [topic("clicks"), registration(2), *others])
    world.read((0, 0), (1, 0), (2, 0), follower=2, broker_epoch=2)
    assert world.answers == []
    for index in (2, 0):
        world.send((index, batch(1)), acks=0)
    world.runtime.run()
    (fetched,) = [answer for answer in world.answers if isinstance(answer, FetchResponse)]
    parts = [part for of in fetched.responses for part in of.partitions]
    assert [(part.partition_index, bool(part.records)) for part in parts] == [(0, True), (1, False), (2, True)]


def test_a_fetch_waits_no_longer_than_its_client(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2])])
    world.read((0, 0))
    assert (world.replica().watcher_count, world.answers) == (1, [])
    world.client_goes()
    assert [(part.error_code, part.records) for part in world.fetched()] == [(ErrorCode.NONE, b"")]
    assert world.replica().watcher_count == 0
    assert all(timer.is_cancelled for timer in world.runtime.timers)


# --- disks ------------------------------------------------------------------------------------------------------------


def in_two_directories(tmp_path: Path) -> BrokerWorld:
    """Two partitions that this broker leads alone, each in a directory of its own."""
    world = BrokerWorld(
        tmp_path, [topic("clicks"), replicas(index=0), replicas(index=1)], log_paths=("first", "second")
    )  # fmt: skip
    assert [directory.path for directory in map(world.logs.directory_of, names(world)) if directory is not None] == [
        "first",
        "second",
    ]
    return world


def names(world: BrokerWorld) -> list[TopicPartition]:
    return [world.replica(index).name for index in (0, 1)]


def fail_syncs(world: BrokerWorld, directory: str) -> None:
    world.files.failing_syncs |= {f"{directory}/{name}" for name in world.files.list_directory(directory)}


@pytest.mark.parametrize("acks", [1, -1])
def test_a_disk_that_fails_ends_what_waits_for_it_and_nothing_else(tmp_path: Path, acks: int) -> None:
    world = in_two_directories(tmp_path)
    world.read((0, 0))
    world.read((1, 0), min_bytes=1_000_000)
    fail_syncs(world, "first/clicks-0")
    world.send((0, batch(1)), (1, batch(1)), acks=acks)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    world.partitions.check_logs()
    assert [part.error_code for part in world.fetched()] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.answers == []
    assert [world.replica(index).watcher_count for index in (0, 1)] == [0, 1]
    world.send((0, batch(1)), (1, batch(1)), acks=acks)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert world.high_watermark(1) == 2


def test_a_disk_that_is_full_refuses_and_takes_records_again_when_there_is_room(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.send((0, batch(1)))
    world.runtime.run()
    world.files.space_limit = world.files.used_bytes() + 10
    for acks in (-1, 1):
        world.send((0, batch(1)), acks=acks)
        world.runtime.run()
        assert world.produced_codes() == [ErrorCode.KAFKA_STORAGE_ERROR]
    world.partitions.check_logs()
    world.read((0, 0))
    assert [part.error_code for part in world.fetched()] == [ErrorCode.NONE]
    world.answers.clear()
    world.files.space_limit = None
    world.send((0, batch(1)))
    world.runtime.run()
    assert [part.base_offset for part in world.produced()] == [1]
    assert world.high_watermark() == 2


def test_what_a_full_disk_kept_from_being_flushed_is_flushed_when_there_is_room(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.send((0, batch(1)))
    world.files.space_limit = world.files.used_bytes()
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.KAFKA_STORAGE_ERROR]
    world.partitions.check_logs()
    world.runtime.run()
    assert world.high_watermark() == 0
    world.files.space_limit = None
    world.partitions.check_logs()
    world.runtime.run()
    assert world.high_watermark() == 1


def test_a_partition_that_is_deleted_in_the_middle_of_its_flush_leaves_its_successor_alone(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.send((0, batch(3)))
    world.commit(*MADE_ANEW)
    assert world.produced_codes() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    world.send((0, batch(1)), number=2)
    world.runtime.run()
    assert [part.base_offset for part in world.produced()] == [0]
    assert world.high_watermark(number=2) == 1
    world.send((0, batch(1)), number=1)
    assert world.produced_codes() == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_broker_that_leads_again_goes_on_with_what_waits(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2])])
    world.send((0, batch(1)))
    world.runtime.run()
    world.commit(replicas(on=[1, 2], isr=[1], epoch=1))
    assert world.produced_codes() == [ErrorCode.NONE]
    assert world.replica().watcher_count == 0
    assert world.replica().online_log().epochs.entries() == ((0, 0), (1, 1))


def test_a_broker_shows_after_a_kill_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    records = [topic("clicks"), replicas()]
    world = BrokerWorld(tmp_path, records)
    world.send((0, batch(2)), acks=1)
    world.files.end_process()
    again = BrokerWorld(tmp_path / "again", records, files=world.files)
    assert again.high_watermark() == 2
