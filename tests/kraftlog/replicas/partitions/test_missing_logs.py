"""A broker is started without the log directory of a replica, which was left out, not mounted, or replaced (DB-89)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ErrorCode
from kraftbase.files.files import read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from kraftpb.v1.metadata_pb2 import MetadataRecord
from tests.kraftlog.broker.broker_world import ME, BrokerWorld, replicas, topic
from tests.kraftlog.replicas.partitions.test_damaged_replicas import Followed
from tests.kraftlog.storage.builders import batch

OTHERS = (ME, 2, 3)
DAMAGED_ID = UUID(bytes=DAMAGED_DIRECTORY)
LOST_ID = UUID(bytes=LOST_DIRECTORY)


class Disks:
    """A broker with some log directories, of which a start may lack one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.files = MemoryFileSystem()
        self._starts = 0

    def started(self, paths: Sequence[str], *records: MetadataRecord) -> BrokerWorld:
        self._starts += 1
        self.files.end_process()
        path = self._directory / str(self._starts)
        path.mkdir()
        return BrokerWorld(path, [topic("clicks"), *records], log_paths=paths, files=self.files)

    def with_records(self, *, on: Sequence[int] = (ME,)) -> bytes:
        """A start with three records in `a`; the id of that directory."""
        world = self.started(["a"], replicas(on=on))
        for _ in range(3):
            world.send((0, batch(1)), acks=1)
            world.runtime.run()
        (directory,) = world.logs.directories
        directory.close(broker_epoch=1)
        return directory.directory_id.bytes


def ends(world: BrokerWorld) -> int | None:
    """Where the log ends, None if it is offline."""
    log = world.replica().log
    return None if log is None else log.log_end_offset


@pytest.mark.parametrize("paths", [["b"], ["b", "c"]])
def test_db89_the_only_replica_is_offline_without_its_directory_and_as_it_was_with_it(
    tmp_path: Path, paths: list[str]
) -> None:
    """DB-89."""
    disks = Disks(tmp_path)
    directory = disks.with_records()
    with capture_logs() as lines:
        world = disks.started(paths, replicas(directory=directory), replicas(index=1, directory=directory))
    assert ends(world) is None
    assert world.placed == [("clicks-0", DAMAGED_ID), ("clicks-1", DAMAGED_ID)]
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert "not started with their log directory" in line["event"]
    assert line["directories"] == paths
    world.send((0, batch(1)), acks=1)
    assert world.produced_codes() == [ErrorCode.KAFKA_STORAGE_ERROR]
    with capture_logs() as lines:
        world.partitions.check_logs()
        world.commit(replicas(leader=-1, epoch=1, directory=DAMAGED_DIRECTORY))
    assert not lines, "it has been said"
    assert ends(world) is None
    again = disks.started(["a", *paths], replicas(leader=-1, epoch=1, directory=DAMAGED_DIRECTORY))
    assert ends(again) == 3
    assert again.placed == [("clicks-0", UUID(bytes=directory))]


def test_db89_it_stays_offline_at_the_next_start_without_its_directory(tmp_path: Path) -> None:
    """DB-89."""
    disks = Disks(tmp_path)
    disks.with_records()
    world = disks.started(["b"], replicas(leader=-1, epoch=1, directory=DAMAGED_DIRECTORY))
    assert ends(world) is None
    assert world.placed == []
    world.commit(replicas(epoch=2, isr=[ME], directory=DAMAGED_DIRECTORY))
    assert ends(world) == 0, "it was elected uncleanly"
    assert world.placed == [("clicks-0", world.logs.directories[0].directory_id)]


def test_db89_a_log_that_was_damaged_and_is_gone_with_its_disk_is_not_new(tmp_path: Path) -> None:
    """DB-89."""
    disks = Disks(tmp_path)
    assert ends(disks.started(["b"], replicas(leader=-1, epoch=1, directory=DAMAGED_DIRECTORY))) is None


def test_db89_it_is_copied_from_another_one_that_leads(tmp_path: Path) -> None:
    """DB-89."""
    disks = Disks(tmp_path)
    directory = disks.with_records(on=OTHERS)
    world = disks.started(["b"], replicas(on=OTHERS, isr=[2], leader=2, epoch=1, directory=directory))
    assert ends(world) == 0
    assert world.placed == [("clicks-0", world.logs.directories[0].directory_id)]


def test_db89_it_is_copied_when_another_one_leads(tmp_path: Path) -> None:
    """DB-89."""
    disks = Disks(tmp_path)
    directory = disks.with_records(on=OTHERS)
    world = disks.started(["b"], replicas(on=OTHERS, isr=[2], leader=-1, epoch=1, directory=directory))
    world.partitions._followers = followed = Followed()
    assert (ends(world), world.placed) == (None, [("clicks-0", DAMAGED_ID)])
    world.commit(replicas(on=OTHERS, isr=[2], leader=2, epoch=2, directory=DAMAGED_DIRECTORY))
    assert ends(world) == 0
    assert followed.calls[-1] == ("follow", 2)


def test_db89_it_leaves_the_isr_before_it_is_copied(tmp_path: Path) -> None:
    """DB-89."""
    disks = Disks(tmp_path)
    directory = disks.with_records(on=OTHERS)
    world = disks.started(["b"], replicas(on=OTHERS, isr=[ME, 2], leader=2, epoch=1, directory=directory))
    assert (ends(world), world.placed) == (None, [("clicks-0", LOST_ID)])


def test_db89_an_eligible_replica_gives_up_its_records_before_it_is_copied(tmp_path: Path) -> None:
    """DB-89."""
    disks = Disks(tmp_path)
    record = replicas(on=OTHERS, isr=[2], leader=2, epoch=1, directory=disks.with_records(on=OTHERS))
    record.partition.eligible_leader_replicas.append(ME)
    world = disks.started(["b"], record)
    assert world.placed == [("clicks-0", LOST_ID)]
    told = replicas(on=OTHERS, isr=[2], leader=2, epoch=2, directory=LOST_DIRECTORY)
    told.partition.eligible_leader_replicas.append(ME)
    world.commit(told)
    assert (ends(world), world.placed[-1]) == (None, ("clicks-0", world.logs.directories[0].directory_id))


@pytest.mark.parametrize("directory", [None, UNASSIGNED_DIRECTORY, LOST_DIRECTORY])
def test_db89_a_replica_that_was_in_no_directory_is_new(tmp_path: Path, directory: bytes | None) -> None:
    """DB-89."""
    assert ends(Disks(tmp_path).started(["b"], replicas(directory=directory))) == 0


def test_db89_a_topic_that_is_deleted_leaves_nothing_missing(tmp_path: Path) -> None:
    """DB-89."""
    disks = Disks(tmp_path)
    world = disks.started(["b"], replicas(directory=disks.with_records()))
    world.commit(replicas(on=(2,), epoch=1))  # it is reassigned away, and back
    world.commit(replicas(on=(ME,), isr=[ME], epoch=2, directory=UNASSIGNED_DIRECTORY))
    assert ends(world) == 0


def test_db89_a_directory_that_cannot_be_opened_may_have_it(tmp_path: Path) -> None:
    """DB-89: its id is not known, so the controller is told nothing, and its disk may be repaired."""
    disks = Disks(tmp_path)
    directory = disks.with_records()
    disks.files.failing_reads |= {"a/meta.properties"}
    world = disks.started(["a", "b"], replicas(directory=directory))
    assert (ends(world), world.placed) == (None, [])


@pytest.mark.parametrize("leader", [ME, 2, -1])
def test_db89_an_old_log_is_not_used_in_the_place_of_one_in_a_directory_that_is_not_there(
    tmp_path: Path, leader: int
) -> None:
    """DB-89: the partition was copied into `b` while `a` was away, and now `b` is. It follows with the old one."""
    disks = Disks(tmp_path)
    disks.with_records(on=OTHERS)
    world = disks.started(["b"], replicas(on=OTHERS, isr=[2], leader=2, epoch=1, directory=UNASSIGNED_DIRECTORY))
    (copied,) = world.logs.directories
    copied.close(broker_epoch=2)
    isr = [2] if leader == 2 else [ME]
    with capture_logs() as lines:
        world = disks.started(
            ["a"], replicas(on=OTHERS, isr=isr, leader=leader, epoch=2, directory=copied.directory_id.bytes)
        )
    if leader == 2:
        assert ends(world) == 3
        return
    assert (ends(world), world.placed) == (None, [("clicks-0", DAMAGED_ID)])
    (line,) = [line for line in lines if "an old log is set aside" in line["event"]]
    assert disks.files.exists(f"a/{line['kept_as']}")
    again = disks.started(["a", "b"], replicas(on=OTHERS, isr=isr, leader=-1, epoch=3, directory=DAMAGED_DIRECTORY))
    assert (ends(again), again.placed) == (0, [("clicks-0", copied.directory_id)])


def test_db89_a_log_that_was_moved_by_hand_is_used_though_the_directory_that_it_was_in_is_left_out(
    tmp_path: Path,
) -> None:
    """DB-89."""
    disks = Disks(tmp_path)
    directory = disks.with_records()
    (other,) = disks.started(["b"]).logs.directories
    other.close(broker_epoch=2)
    disks.files.make_directories("b/clicks-0")
    for name in disks.files.list_directory("a/clicks-0"):
        write_new_file(disks.files, f"b/clicks-0/{name}", read_whole(disks.files, f"a/clicks-0/{name}"))
    world = disks.started(["b"], replicas(directory=directory))
    assert (ends(world), world.placed) == (3, [("clicks-0", other.directory_id)])


def test_db89_a_log_of_which_nothing_was_flushed_is_as_it_was_when_its_directory_is_back(tmp_path: Path) -> None:
    """DB-89, DB-95: the power was lost, so that no more is left of it than a line in the inventory of `a`."""
    disks = Disks(tmp_path)
    (directory,) = disks.started(["a"], replicas()).logs.directories
    disks.files.crash()
    assert not disks.files.exists("a/clicks-0")
    world = disks.started(["b"], replicas(directory=directory.directory_id.bytes))
    assert (ends(world), world.placed) == (None, [("clicks-0", DAMAGED_ID)])
    again = disks.started(["b", "a"], replicas(leader=-1, epoch=1, directory=DAMAGED_DIRECTORY))
    assert (ends(again), again.placed) == (0, [("clicks-0", directory.directory_id)])


@pytest.mark.parametrize("leader", [2, -1])
def test_db89_nor_is_one_of_which_nothing_was_flushed_used_in_the_place_of_one_that_is_not_there(
    tmp_path: Path, leader: int
) -> None:
    """DB-89, DB-95: the partition was copied into `b` while `a` was away, and now `b` is, at two starts."""
    disks = Disks(tmp_path)
    disks.started(["a"], replicas(on=OTHERS))
    disks.files.crash()
    world = disks.started(["b"], replicas(on=OTHERS, isr=[2], leader=2, epoch=1, directory=UNASSIGNED_DIRECTORY))
    (copied,) = world.logs.directories
    copied.close(broker_epoch=2)
    in_b = replicas(on=OTHERS, isr=[ME, 2], leader=leader, epoch=2, directory=copied.directory_id.bytes)
    in_b.partition.isr[:] = [ME] if leader == -1 else [ME, 2]
    world = disks.started(["a"], in_b)
    assert (ends(world), world.placed) == (None, [("clicks-0", DAMAGED_ID if leader == -1 else LOST_ID)])
    again = disks.started(["a"], replicas(on=OTHERS, isr=[ME], leader=-1, epoch=3, directory=DAMAGED_DIRECTORY))
    assert (ends(again), again.placed) == (None, [])
    last = disks.started(["a", "b"], replicas(on=OTHERS, isr=[ME], leader=-1, epoch=3, directory=DAMAGED_DIRECTORY))
    assert (ends(last), last.placed) == (0, [("clicks-0", copied.directory_id)])


def test_db89_two_inventories_do_not_expect_one_log(tmp_path: Path) -> None:
    """DB-89, DB-95: made in `a`, and in `b` while `a` was away; a loss of power took both. Then both are here."""
    disks = Disks(tmp_path)
    disks.started(["a"], replicas(on=OTHERS))
    disks.files.crash()
    world = disks.started(["b"], replicas(on=OTHERS, isr=[2], leader=2, epoch=1, directory=UNASSIGNED_DIRECTORY))
    in_b = world.logs.directories[0].directory_id
    disks.files.crash()
    world = disks.started(["a", "b"], replicas(on=OTHERS, isr=[2], leader=2, epoch=2, directory=in_b.bytes))
    assert (ends(world), world.placed) == (0, [("clicks-0", in_b)])
    expecting = [of.path for of in world.logs.directories if of.records.partitions]
    assert expecting == ["b"]


def test_db89_it_does_not_stand_down_before_it_is_noted_that_what_is_here_is_old(tmp_path: Path) -> None:
    """DB-89, DB-95: the disk is full. The next start would not know that the log was in `b`."""
    disks = Disks(tmp_path)
    disks.files.space_limit = 2_000  # nothing is reserved for the inventory
    disks.started(["a"], replicas())
    disks.files.crash()
    disks.files.space_limit = disks.files.used_bytes()
    in_b = replicas(leader=-1, epoch=1, directory=UUID(int=7_777).bytes)
    world = disks.started(["a"], in_b)
    assert (ends(world), world.placed) == (None, [])
    assert "has no room" in world.replica().offline_reason
    disks.files.space_limit = None
    world.partitions.check_logs()
    assert (ends(world), world.placed) == (None, [("clicks-0", DAMAGED_ID)])
