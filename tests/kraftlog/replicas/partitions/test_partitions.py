"""Which replicas a broker has, and what becomes of their logs, as the metadata changes."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import CorruptLog, ErrorCode, StorageError
from kraftbase.ids import UNASSIGNED_DIRECTORY
from kraftlog.storage.config import PartitionLogConfig
from kraftpb.v1.metadata_pb2 import MetadataRecord
from tests.kraftlog.broker.broker_world import BrokerWorld, replicas, topic
from tests.kraftlog.storage.builders import batch
from tests.statemachine.builders import an_id, config, remove_topic
from tests.statemachine.builders import batch as metadata_batch


def test_a_partition_of_a_topic_that_was_elsewhere_comes_to_this_broker(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(index=0, on=[2])])
    world.commit(replicas(index=1))
    world.send((1, batch(1)), acks=1)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]
    assert list(world.partitions) == [world.replica(1)]


def test_configs_that_a_snapshot_brings_apply_to_the_logs_that_are_open(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.tables.apply([metadata_batch(2, [config("clicks", "max.message.bytes", "10")])])
    world.begin_anew()
    world.send((0, batch(1)))
    assert world.produced_codes() == [ErrorCode.MESSAGE_TOO_LARGE]


def world_with_two_directories(tmp_path: Path, *parts: MetadataRecord) -> BrokerWorld:
    return BrokerWorld(tmp_path, [topic("clicks"), *parts], log_paths=("first", "second"))


def restarted(world: BrokerWorld, tmp_path: Path, *parts: MetadataRecord) -> BrokerWorld:
    """The broker after a kill, with what is on its disks."""
    world.files.end_process()
    return BrokerWorld(
        tmp_path / "again", [topic("clicks"), *parts], log_paths=("first", "second"), files=world.files
    )  # fmt: skip


@pytest.mark.parametrize("is_assigned", [True, False])
def test_a_partition_whose_directory_cannot_be_opened_is_offline_and_not_made_anew(
    tmp_path: Path, is_assigned: bool
) -> None:
    (tmp_path / "again").mkdir()
    world = world_with_two_directories(tmp_path, replicas())
    placed = world.placed[0][1]
    world.files.failing_reads.add("first/meta.properties")
    again = restarted(world, tmp_path, replicas(directory=placed.bytes if is_assigned else None))
    assert again.logs.failed
    again.send((0, batch(1)), acks=1)
    again.read((0, 0))
    assert [part.error_code for part in again.fetched()] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert again.produced_codes() == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert again.logs.directory_of(again.replica().name) is None
    assert again.placed == []


def test_a_new_partition_is_made_in_the_directory_that_is_left(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    world = world_with_two_directories(tmp_path)
    world.files.failing_reads.add("first/meta.properties")
    again = restarted(world, tmp_path, replicas(directory=UNASSIGNED_DIRECTORY))
    again.send((0, batch(1)), acks=1)
    again.runtime.run()
    assert again.produced_codes() == [ErrorCode.NONE]


def test_a_damaged_log_goes_with_its_topic(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.logs.directories[0].partition_damaged(world.replica().name, CorruptLog("damaged"))
    world.partitions.check_logs()
    world.read((0, 0))
    assert [part.error_code for part in world.fetched()] == [ErrorCode.KAFKA_STORAGE_ERROR]
    world.commit(remove_topic(1))
    world.logs.maintain()
    world.runtime.run()
    assert [name for name in world.files.list_directory("data") if name.startswith("clicks")] == []
    assert not world.logs.directories[0].damaged


def test_a_log_for_which_there_was_no_room_is_made_when_there_is(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    world.files.space_limit = world.files.used_bytes()
    world.commit(topic("clicks"), replicas(epoch=4))
    world.send((0, batch(1)), acks=1)
    assert world.produced_codes() == [ErrorCode.KAFKA_STORAGE_ERROR]
    world.partitions.check_logs()
    world.send((0, batch(1)), acks=1)
    assert world.produced_codes() == [ErrorCode.KAFKA_STORAGE_ERROR]
    world.files.space_limit = None
    world.partitions.check_logs()
    world.send((0, batch(1)), acks=1)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]
    assert world.replica().online_log().epochs.entries() == ((4, 0),)
    assert [(epoch, leads) for _, _, epoch, leads in world.leaderships] == [(4, True)]


def started_again(tmp_path: Path, world: BrokerWorld, *records: MetadataRecord) -> BrokerWorld:
    """The broker after a kill, with other metadata."""
    (tmp_path / "again").mkdir()
    world.files.end_process()
    return BrokerWorld(tmp_path / "again", records, files=world.files)


def test_a_topic_that_was_made_anew_while_the_broker_was_down_begins_empty(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.send((0, batch(3)), acks=1)
    world.runtime.run()
    again = started_again(tmp_path, world, topic("clicks", 2), replicas(2))
    assert again.replica(number=2).online_log().log_end_offset == 0
    again.send((0, batch(1)), number=2)
    again.runtime.run()
    assert [part.base_offset for part in again.produced()] == [0]


def test_db86_a_log_whose_partition_has_gone_while_the_broker_was_down_is_kept_aside_and_named(tmp_path: Path) -> None:
    """DB-86."""
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(index=0), replicas(index=1)])
    with capture_logs() as lines:
        again = started_again(tmp_path, world, topic("clicks"), replicas(index=1))
    (line,) = [line for line in lines if "stray log is set aside" in line["event"]]
    assert line["log"] == "clicks-0"
    again.logs.maintain()
    names = [name for name in again.files.list_directory("data") if name.startswith("clicks")]
    assert sorted(names) == sorted(["clicks-1", line["kept_as"]])
    assert again.files.list_directory(f"data/{line['kept_as']}"), "its files are there"


def test_a_topic_is_made_though_a_log_with_its_name_is_on_a_disk_that_has_failed(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    world = world_with_two_directories(tmp_path, replicas())
    failed = world.logs.directory_of(world.replica().name)
    assert failed is not None
    failed.fail(StorageError("the disk is gone"))
    world.commit(remove_topic(1))
    world.commit(topic("clicks", 2), replicas(2, directory=UNASSIGNED_DIRECTORY))
    world.send((0, batch(2)), number=2)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]
    # The disk is back at the next start: its log is of the topic that was deleted.
    world.files.end_process()
    again = BrokerWorld(
        tmp_path / "again", [topic("clicks", 2), replicas(2)], log_paths=("first", "second"), files=world.files
    )
    assert again.replica(number=2).online_log().log_end_offset == 2
    assert not again.files.exists("first/clicks-0")


def test_what_is_left_of_a_log_that_could_not_be_deleted_is_not_another_topics(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.send((0, batch(3)), acks=1)
    world.runtime.run()
    world.logs.directories[0].logs.clear()  # as a deletion leaves it for whose rename there was no room
    world.commit(remove_topic(1))
    world.commit(topic("clicks", 2), replicas(2))
    assert world.replica(number=2).online_log().log_end_offset == 0


@pytest.mark.parametrize("chosen", [0, 1])
def test_a_log_is_made_in_the_directory_that_the_controller_has_chosen(tmp_path: Path, chosen: int) -> None:
    world = world_with_two_directories(tmp_path)
    directory = world.logs.directories[chosen]
    world.commit(replicas(index=0, directory=directory.directory_id.bytes))
    world.commit(replicas(index=1, directory=directory.directory_id.bytes))
    assert len(directory.logs) == 2


def test_a_log_of_another_topic_with_the_name_is_set_aside(tmp_path: Path) -> None:
    """It was in a second directory, and the topic was deleted and made again."""
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.send((0, batch(1)), acks=1)
    world.runtime.run()
    name = world.replica().name
    world.commit(remove_topic(1))
    world.logs.create_log(name, UUID(bytes=an_id(1)), PartitionLogConfig())
    world.commit(topic("clicks", 2), replicas(2))
    directory = world.logs.directory_of(name)
    assert directory is not None
    assert directory.records.topic_ids[name] == UUID(bytes=an_id(2))
    assert world.replica(number=2).online_log().log_end_offset == 0
    assert [found for found in world.files.list_directory("data") if found.endswith("-stray")]


def test_an_old_copy_is_not_used_while_the_directory_that_the_metadata_names_is_offline(tmp_path: Path) -> None:
    """It was moved to the second directory while the first one was away; now the second one is."""
    (tmp_path / "again").mkdir()
    world = world_with_two_directories(tmp_path, replicas())
    first, second = world.logs.directories
    used, other = (first, second) if world.placed[0][1] == first.directory_id else (second, first)
    world.files.failing_reads.add(f"{other.path}/meta.properties")
    again = restarted(world, tmp_path, replicas(directory=other.directory_id.bytes))
    again.send((0, batch(1)), acks=1)
    assert again.produced_codes() == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert again.placed == []
    assert used.directory_id != other.directory_id


@pytest.mark.parametrize(("partition_epoch", "is_made"), [(0, True), (3, False)])
def test_without_an_assigned_directory_only_a_new_log_is_made_while_a_directory_is_offline(
    tmp_path: Path, partition_epoch: int, is_made: bool
) -> None:
    (tmp_path / "again").mkdir()
    world = world_with_two_directories(tmp_path)
    world.files.failing_reads.add("first/meta.properties")
    again = restarted(world, tmp_path, replicas(epoch=partition_epoch, directory=UNASSIGNED_DIRECTORY))
    assert (again.logs.directory_of(again.replica().name) is not None) == is_made
