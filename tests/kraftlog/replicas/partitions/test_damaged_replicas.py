"""A log is damaged, and other replicas of its partition are sound (DB-88)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ErrorCode
from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY
from kraftlog.replicas.partitions.damaged_replicas import Step, next_step
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.storage.slices import run_at_once
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from tests.kraftlog.broker.broker_world import ME, BrokerWorld, replicas, topic
from tests.kraftlog.storage.builders import all_batches, batch

ONLINE_DIRECTORY = bytes(range(16))
DAMAGED_ID = UUID(bytes=DAMAGED_DIRECTORY)
LOST_ID = UUID(bytes=LOST_DIRECTORY)
FIRST = "data/clicks-0/00000000000000000000.log"
OTHERS = (ME, 2, 3)


@pytest.mark.parametrize(
    ("isr", "eligible", "leader", "directory", "was_damaged_at_start", "step"),
    [
        ([ME], [], ME, ONLINE_DIRECTORY, True, Step.STAND_DOWN),  # the only copy
        ([], [ME], -1, ONLINE_DIRECTORY, False, Step.STAND_DOWN),
        ([ME], [], -1, DAMAGED_DIRECTORY, True, Step.WAIT),  # for an operator
        ([ME], [], ME, DAMAGED_DIRECTORY, False, Step.ACCEPT_LOSS),  # it was elected uncleanly
        ([2], [ME], 2, DAMAGED_DIRECTORY, True, Step.LEAVE),  # replica 2 was
        ([2], [], 2, DAMAGED_DIRECTORY, True, Step.COPY_ANEW),
        ([ME], [2], ME, ONLINE_DIRECTORY, False, Step.LEAVE),  # replica 2 is elected then
        ([ME, 2], [], ME, ONLINE_DIRECTORY, False, Step.LEAVE),
        ([ME, 2], [], 2, ONLINE_DIRECTORY, True, Step.LEAVE),
        ([ME, 2], [], 2, LOST_DIRECTORY, True, Step.WAIT),  # the controller has been told
        ([2], [ME], 2, ONLINE_DIRECTORY, True, Step.LEAVE),
        ([2], [ME], 2, LOST_DIRECTORY, True, Step.GIVE_UP_RECORDS),
        ([2], [ME], -1, LOST_DIRECTORY, True, Step.STAND_DOWN),  # it stays eligible
        ([], [ME, 2], -1, ONLINE_DIRECTORY, True, Step.STAND_DOWN),
        ([2], [], 2, ONLINE_DIRECTORY, True, Step.COPY_ANEW),
        ([2], [], 2, LOST_DIRECTORY, True, Step.COPY_ANEW),
        ([2], [], 2, LOST_DIRECTORY, False, Step.WAIT),  # a Fetch may be under way
        ([2], [], -1, LOST_DIRECTORY, True, Step.STAND_DOWN),  # nobody to copy from
        ([], [2], -1, LOST_DIRECTORY, True, Step.STAND_DOWN),
        ([2], [], -1, DAMAGED_DIRECTORY, True, Step.WAIT),
        ([], [], -1, LOST_DIRECTORY, True, Step.STAND_DOWN),
    ],
)
def test_db88_what_is_done_about_a_damaged_replica(
    isr: Sequence[int], eligible: Sequence[int], leader: int, directory: bytes, was_damaged_at_start: bool, step: Step
) -> None:
    """DB-88."""
    record = PartitionRecord(replicas=OTHERS, isr=isr, eligible_leader_replicas=eligible, leader=leader)
    assert next_step(record, ME, directory, was_damaged_at_start=was_damaged_at_start) is step


class Followed:
    """Whom the replicas here follow."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def follow(self, partition: Partition) -> None:
        self.calls.append(("follow", partition.record.leader))

    def unfollow(self, partition: Partition) -> None:
        self.calls.append(("unfollow", partition.record.leader))


def leading(tmp_path: Path) -> BrokerWorld:
    """A leader with two followers in sync, and four batches."""
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=OTHERS)])
    for _ in range(4):
        world.send((0, batch(1)), acks=1)
        world.runtime.run()
    return world


def corrupt(files: MemoryFileSystem) -> None:
    """Another magic in the first batch's header, on the disk."""
    files.damage(FIRST, 16, b"\7")


def started_again(tmp_path: Path, world: BrokerWorld, *records: MetadataRecord) -> BrokerWorld:
    (tmp_path / "again").mkdir(exist_ok=True)
    world.files.end_process()
    path = tmp_path / "again" / str(len(list((tmp_path / "again").iterdir())))
    path.mkdir()
    return BrokerWorld(path, [topic("clicks"), *records], files=world.files)


def is_damaged(world: BrokerWorld) -> bool:
    return bool(world.logs.directories[0].damaged)


def test_a_leader_whose_log_is_damaged_says_that_it_is_in_no_directory(tmp_path: Path) -> None:
    world = leading(tmp_path)
    corrupt(world.files)
    world.read((0, 0))
    world.partitions.check_logs()
    assert is_damaged(world)
    assert world.placed[-1] == ("clicks-0", LOST_ID)
    assert world.files.exists(FIRST + ".damaged")
    assert not world.files.exists(FIRST)
    world.send((0, batch(1)), acks=1)
    assert world.produced_codes() == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_the_only_copy_stands_down_and_goes_on_when_it_is_elected_uncleanly(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    for _ in range(3):
        world.send((0, batch(1)), acks=1)
        world.runtime.run()
    corrupt(world.files)
    world.read((0, 0))
    world.partitions.check_logs()
    assert is_damaged(world)
    assert world.placed[-1] == ("clicks-0", DAMAGED_ID)
    again = started_again(tmp_path, world, replicas())
    assert is_damaged(again)
    assert again.placed == [("clicks-0", DAMAGED_ID)]
    again.commit(replicas(leader=-1, epoch=1, directory=DAMAGED_DIRECTORY))
    assert is_damaged(again)
    with capture_logs() as lines:
        again.commit(replicas(epoch=2, directory=DAMAGED_DIRECTORY))
    assert not is_damaged(again)
    (line,) = [line for line in lines if "continues without" in line["event"]]
    assert line["lost"] == ["0 to 0"]
    log = again.replica().online_log()
    assert (log.log_end_offset, len(all_batches(log))) == (3, 2)
    assert again.placed[-1] == ("clicks-0", again.logs.directories[0].directory_id)
    assert again.files.exists(FIRST + ".lost")
    again.send((0, batch(1)), acks=1)
    again.runtime.run()
    assert again.produced_codes() == [ErrorCode.NONE]


def test_the_only_copy_is_as_it_was_when_its_segment_is_put_back(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    for _ in range(3):
        world.send((0, batch(1)), acks=1)
        world.runtime.run()
    right = read_whole(world.files, FIRST)
    corrupt(world.files)
    world.read((0, 0))
    assert is_damaged(world)
    world.files.rename(FIRST + ".damaged", FIRST)
    world.files.damage(FIRST, 0, right)
    again = started_again(tmp_path, world, replicas(leader=-1, epoch=1, directory=DAMAGED_DIRECTORY))
    assert again.replica().online_log().log_end_offset == 3
    assert again.placed == [("clicks-0", again.logs.directories[0].directory_id)]


def test_what_was_found_while_it_ran_is_copied_anew_by_the_next_start_only(tmp_path: Path) -> None:
    world = leading(tmp_path)
    corrupt(world.files)
    world.read((0, 0))
    world.partitions.check_logs()
    out_of_it = replicas(on=OTHERS, isr=[2, 3], leader=2, epoch=1, directory=LOST_DIRECTORY)
    world.commit(out_of_it)
    assert is_damaged(world)
    with capture_logs() as lines:
        again = started_again(tmp_path, world, out_of_it)
    assert not is_damaged(again)
    assert again.replica().online_log().log_end_offset == 0
    assert again.placed == [("clicks-0", again.logs.directories[0].directory_id)]
    (line,) = [line for line in lines if "copied again" in line["event"]]
    assert again.files.exists(f"data/{line['kept_as']}/{FIRST.rpartition('/')[2]}.damaged")


def test_it_follows_as_soon_as_others_are_in_sync_without_it(tmp_path: Path) -> None:
    world = leading(tmp_path)
    world.files.end_process()
    corrupt(world.files)
    again = started_again(tmp_path, world, replicas(on=OTHERS, isr=[ME, 2], leader=2, epoch=1))
    again.partitions._followers = followed = Followed()
    assert is_damaged(again)
    assert again.placed == [("clicks-0", LOST_ID)]
    again.commit(replicas(on=OTHERS, isr=[2], leader=2, epoch=1, directory=LOST_DIRECTORY))
    assert followed.calls == []
    out_of_it = replicas(on=OTHERS, isr=[2], leader=2, epoch=1, directory=LOST_DIRECTORY)
    out_of_it.partition.partition_epoch = 2  # who leads, and in which epoch, has not changed
    again.commit(out_of_it)
    assert followed.calls == [("follow", 2)]
    assert again.replica().online_log().log_end_offset == 0
    assert again.placed[-1] == ("clicks-0", again.logs.directories[0].directory_id)


def test_a_controller_that_hears_of_the_damage_late_is_told_where_the_log_is_again(tmp_path: Path) -> None:
    world = leading(tmp_path)
    directory_id = world.logs.directories[0].directory_id
    world.commit(replicas(on=OTHERS, epoch=1, directory=LOST_DIRECTORY))
    assert world.placed[-1] == ("clicks-0", directory_id)


def test_one_damaged_copy_is_kept_and_not_more(tmp_path: Path) -> None:
    """A disk that goes bad would fill itself."""
    world = leading(tmp_path)
    out_of_it = replicas(on=OTHERS, isr=[2, 3], leader=2, epoch=1)
    for _ in range(3):
        world.files.end_process()
        corrupt(world.files)
        world = started_again(tmp_path, world, out_of_it)
        assert not is_damaged(world)
        log = world.replica().online_log()
        assert log.log_end_offset == 0, "it is copied again"
        log.append_as_follower(batch(1), 0)
        log.append_as_follower(batch(1, base_offset=1), 0)
        log.flush()
        run_at_once(world.logs.directories[0].checkpoint())
    names = world.files.list_directory("data")
    assert len([name for name in names if name.endswith("-stray")]) == 1
    world.logs.maintain()
    world.runtime.run()
    assert not [name for name in world.files.list_directory("data") if name.endswith("-delete")]


def lose_segment(world: BrokerWorld) -> None:
    world.files.end_process()
    world.files.remove(FIRST)
    world.files.fsync_directory("data/clicks-0")


def test_db89_a_sole_replica_that_lacks_a_segment_answers_nothing_and_keeps_what_it_has(tmp_path: Path) -> None:
    """DB-89."""
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.send((0, batch(1)), acks=1)
    world.runtime.run()
    lose_segment(world)
    left = world.files.list_directory("data/clicks-0")
    again = started_again(tmp_path, world, replicas())
    assert is_damaged(again)
    again.send((0, batch(1)), acks=1)
    assert again.produced_codes() == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert [name for name in again.files.list_directory("data/clicks-0") if name in left] == left


def test_db89_a_replica_that_lacks_a_segment_is_copied_anew_when_others_are_in_sync(tmp_path: Path) -> None:
    """DB-89, DB-88."""
    world = leading(tmp_path)
    lose_segment(world)
    again = started_again(tmp_path, world, replicas(on=OTHERS, isr=[ME, 2], leader=2, epoch=1))
    assert is_damaged(again)
    assert again.placed == [("clicks-0", LOST_ID)]
    out_of_it = replicas(on=OTHERS, isr=[2], leader=2, epoch=1, directory=LOST_DIRECTORY)
    out_of_it.partition.partition_epoch = 2
    again.commit(out_of_it)
    assert again.replica().online_log().log_end_offset == 0


def test_db89_what_is_missing_of_a_topic_that_was_made_again_is_no_damage(tmp_path: Path) -> None:
    """DB-89."""
    world = leading(tmp_path)
    lose_segment(world)
    (tmp_path / "new").mkdir()
    again = BrokerWorld(tmp_path / "new", [topic("clicks", 2), replicas(2)], files=world.files)
    assert not is_damaged(again)
    assert again.replica(number=2).online_log().log_end_offset == 0
