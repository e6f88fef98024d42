"""A node's log and snapshots are consistent after its start, whatever a crash or an operator left (SN-43, SN-44)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftbase.errors import CorruptLog, StorageError
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.election_state import ElectionState
from raft.core.types import OffsetAndEpoch
from raft.shell.open_log import open_log
from raft.storage.batch import encode_batch, encode_body
from raft.storage.directory import DataDirectory
from raft.storage.segmented_log import LogConfig, SegmentedLog
from snapshot.store import SnapshotStore
from tests.raft.snapshot_nodes import numbered, snapshot_cluster
from tests.snapshot.builders import CONTENT, HEADER_OF_TESTS, an_id
from tests.statemachine.waiting import until

EPOCH = 3
VOTED = ElectionState(epoch=Epoch(EPOCH), leader_id=None, voted_key=None)
LOG = LogConfig(segment_bytes=600, preallocate_bytes=1)


class Disk:
    """The files of a node that is down: a log of batches of two records, all of epoch 3, and snapshots."""

    def __init__(self, log_end: int = 40, log_start: int = 0) -> None:
        self.files = MemoryFileSystem()
        cluster_id = HEADER_OF_TESTS.cluster_id
        DataDirectory.format(self.files, "data", cluster_id=cluster_id, node_id=NodeId(1))
        self.directory = DataDirectory.open(self.files, "data")
        self.store = SnapshotStore(self.files, self.directory.snapshots_path)
        self.applied = 0
        self.applied_epoch = EPOCH
        self.log: SegmentedLog | None = None
        with_log = SegmentedLog.open(self.files, self.directory.log_path, config=LOG)
        while with_log.log_end_offset < log_end:
            with_log.append((encode_batch(with_log.log_end_offset, Epoch(EPOCH), encode_body([b"a", b"b"]), 2, 0),))
        with_log.flush()
        if log_start:
            with_log.advance_start(an_id(log_start))
        with_log.close()

    def write(self, *snapshot_ids: OffsetAndEpoch, cluster_id: str = HEADER_OF_TESTS.cluster_id) -> None:
        for snapshot_id in snapshot_ids:
            writer = self.store.create(snapshot_id, HEADER_OF_TESTS._replace(cluster_id=cluster_id))
            assert writer is not None
            with writer:
                for records in CONTENT:
                    writer.append(encode_body(records), len(records))
                writer.freeze()

    def damage(self, snapshot_id: OffsetAndEpoch, position: int = -5) -> None:
        path = self.store.path_of(snapshot_id)
        with self.store.open(snapshot_id) as reader:
            self.files.damage(path, position % reader.size_bytes, b"\xff\xff")

    def open(
        self, *, has_others: bool = True, minimum: int = 0, election_state: ElectionState | None = VOTED
    ) -> SegmentedLog:
        applied = max(minimum, self.applied)
        self.log = open_log(
            self.directory,
            LOG,
            self.store,
            election_state=election_state,
            has_others=has_others,
            applied=OffsetAndEpoch(epoch=Epoch(self.applied_epoch if applied else 0), offset=Offset(applied)),
        )
        return self.log

    def content(self) -> dict[str, bytes]:
        return {
            f"{path}/{name}": bytes(file.data).rstrip(b"\0")  # unused reserved room is released
            for path in (self.directory.log_path, self.directory.snapshots_path)
            for name, file in self.files.durable_files(path).items()
        }


@pytest.fixture
def make_disk() -> Iterator[Callable[..., Disk]]:
    disks: list[Disk] = []

    def make(**how: int) -> Disk:
        disks.append(Disk(**how))
        return disks[-1]

    yield make
    for disk in disks:
        if disk.log is not None:
            disk.log.close()
        disk.directory.close()


MakeDisk = Callable[..., Disk]


def extent(log: SegmentedLog) -> tuple[int, int]:
    return log.log_start_offset, log.log_end_offset


# --- consistent files stay --------------------------------------------------------------------------------------------


def test_a_log_and_its_snapshots_stay_as_they_are(make_disk: MakeDisk) -> None:
    disk = make_disk(log_start=10)
    disk.write(an_id(10), an_id(20), an_id(40))
    before = disk.content()
    log = disk.open()
    assert extent(log) == (10, 40)
    assert disk.content() == before
    assert log.recovering is None


def test_sn44_what_is_no_snapshot_is_removed(make_disk: MakeDisk) -> None:
    disk = make_disk()
    disk.write(an_id(10), an_id(20))
    disk.store.delete(an_id(10))
    unfinished = disk.store.receive(an_id(30), HEADER_OF_TESTS.cluster_id)
    assert unfinished is not None
    unfinished.append(b"")
    disk.open()
    names = disk.files.list_directory(disk.directory.snapshots_path)
    assert names == [disk.store.path_of(an_id(20)).rpartition("/")[2]]


# --- a snapshot past the log ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "snapshot_id", [an_id(42), an_id(1_000), an_id(1_000, 7)], ids=["just past it", "far past it", "a later epoch"]
)
def test_sn44_the_log_begins_anew_behind_a_snapshot_past_its_end(
    make_disk: MakeDisk, snapshot_id: OffsetAndEpoch
) -> None:
    disk = make_disk(log_start=10)
    disk.write(an_id(10), an_id(20), snapshot_id)
    log = disk.open()
    assert (log.start, log.end) == (snapshot_id, snapshot_id)
    assert disk.store.ids() == (snapshot_id,)
    assert log.recovering is None
    log.append((encode_batch(snapshot_id.offset, Epoch(9), encode_body([b"next"]), 1, 0),))


def test_sn44_a_log_that_was_never_written_begins_behind_a_snapshot(make_disk: MakeDisk) -> None:
    disk = make_disk(log_end=0)
    disk.write(an_id(20))
    assert disk.open().start == an_id(20)


def test_sn44_a_snapshot_at_the_logs_end_replaces_nothing(make_disk: MakeDisk) -> None:
    disk = make_disk()
    disk.write(an_id(40))
    assert extent(disk.open()) == (0, 40)
    assert disk.store.ids() == (an_id(40),)


def test_sn44_a_snapshot_at_the_logs_end_and_of_another_epoch_replaces_it(make_disk: MakeDisk) -> None:
    disk = make_disk()
    disk.write(an_id(40, 4))
    assert disk.open().start == an_id(40, 4)


def test_sn44_a_damaged_newest_snapshot_is_deleted_and_the_one_before_replaces_the_log(make_disk: MakeDisk) -> None:
    disk = make_disk()
    disk.write(an_id(20), an_id(50), an_id(60))
    disk.damage(an_id(60))
    log = disk.open()
    assert (log.start, log.end) == (an_id(50), an_id(50))
    assert disk.store.ids() == (an_id(50),)


def test_sn44_a_damaged_newest_snapshot_is_deleted_and_the_log_stays(make_disk: MakeDisk) -> None:
    disk = make_disk()
    disk.write(an_id(20), an_id(60))
    disk.damage(an_id(60))
    assert extent(disk.open()) == (0, 40)
    assert disk.store.ids() == (an_id(20),)


# --- unusable snapshots -----------------------------------------------------------------------------------------------


def test_sn44_snapshots_below_the_start_are_deleted(make_disk: MakeDisk) -> None:
    disk = make_disk(log_start=20)
    disk.write(an_id(4), an_id(18), an_id(20), an_id(30))
    assert extent(disk.open()) == (20, 40)
    assert disk.store.ids() == (an_id(20), an_id(30))


def test_sn44_snapshots_below_the_start_are_deleted_whatever_their_epoch(make_disk: MakeDisk) -> None:
    disk = make_disk(log_start=20)
    disk.write(an_id(20), an_id(18, 9))
    assert extent(disk.open()) == (20, 40)
    assert disk.store.ids() == (an_id(20),)


@pytest.mark.parametrize("foreign", [an_id(20, 2), an_id(21)], ids=["another epoch", "within a batch"])
def test_sn44_a_snapshot_of_another_history_is_deleted(make_disk: MakeDisk, foreign: OffsetAndEpoch) -> None:
    disk = make_disk()
    disk.write(an_id(10), foreign)
    assert extent(disk.open()) == (0, 40)
    assert disk.store.ids() == (an_id(10),)


def test_a_snapshot_of_another_cluster_does_not_take_the_logs_place(make_disk: MakeDisk) -> None:
    disk = make_disk()
    disk.write(an_id(10))
    disk.write(an_id(60), cluster_id="5L6g3nShT-eMCtK--X86sw")
    assert extent(disk.open()) == (0, 40)
    assert disk.store.ids() == (an_id(10),)


# --- a start without its snapshot -------------------------------------------------------------------------------------


@pytest.mark.parametrize("applied", [0, 15, 40])
def test_sn44_a_start_without_its_snapshot_moves_up_to_the_next_one(make_disk: MakeDisk, applied: int) -> None:
    disk = make_disk(log_start=10)
    disk.applied = applied
    disk.write(an_id(20), an_id(30))
    assert disk.open().start == an_id(20)
    assert disk.store.ids() == (an_id(20), an_id(30))


@pytest.mark.parametrize("applied", [0, 40])
def test_sn44_the_start_does_not_move_up_to_a_damaged_snapshot(make_disk: MakeDisk, applied: int) -> None:
    disk = make_disk(log_start=10)
    disk.applied = applied
    disk.write(an_id(20), an_id(30))
    disk.damage(an_id(20))
    assert disk.open().start == an_id(30)
    assert disk.store.ids() == (an_id(30),)


def test_sn44_what_the_state_machine_needs_stays_if_the_only_snapshot_is_damaged(make_disk: MakeDisk) -> None:
    disk = make_disk(log_start=10)
    disk.applied = 15
    disk.write(an_id(20))
    disk.damage(an_id(20))
    log = disk.open(has_others=False)
    assert extent(log) == (10, 40)
    assert len(log.read_batches(Offset(15), 1)) == 1


@pytest.mark.parametrize("applied", [10, 15, 40])
def test_sn44_a_state_machine_that_holds_what_is_below_needs_no_snapshot(make_disk: MakeDisk, applied: int) -> None:
    disk = make_disk(log_start=10)
    disk.applied = applied
    log = disk.open(has_others=False)
    assert (extent(log), log.recovering) == ((10, 40), None)


# --- nothing covers the start -----------------------------------------------------------------------------------------


def lose_the_snapshot(disk: Disk, how: str) -> None:
    if how == "damaged":
        disk.write(an_id(10))
        disk.damage(an_id(10))
    elif how == "deleted":
        disk.write(an_id(10))
        disk.store.delete(an_id(10))
    disk.applied = 9


@pytest.mark.parametrize("how", ["missing", "damaged", "deleted"])
def test_sn44_a_sole_voter_whose_start_nothing_covers_is_refused_and_its_log_is_unchanged(
    make_disk: MakeDisk, how: str
) -> None:
    disk = make_disk(log_start=10)
    lose_the_snapshot(disk, how)
    before = {path: data for path, data in disk.content().items() if path.startswith(disk.directory.log_path)}
    for _ in range(2):
        with pytest.raises(StorageError, match="starts at offset 10") as refused:
            disk.open(has_others=False)
        assert "Delete nothing" in str(refused.value)
    after = {path: data for path, data in disk.content().items() if path.startswith(disk.directory.log_path)}
    assert after == before
    disk.write(an_id(10))
    assert extent(disk.open(has_others=False)) == (10, 40), "a snapshot was restored"


@pytest.mark.parametrize("how", ["missing", "damaged", "deleted"])
def test_sn44_a_voter_among_others_whose_start_nothing_covers_recovers_from_the_beginning(
    make_disk: MakeDisk, how: str
) -> None:
    disk = make_disk(log_start=10)
    lose_the_snapshot(disk, how)
    log = disk.open()
    assert extent(log) == (0, 0)
    assert log.recovering is not None
    assert log.recovering.known_until_offset == 40
    assert log.recovering.epoch == EPOCH
    assert "starts at offset 10" in log.recovering.reason
    log.close()
    assert extent(disk.open()) == (0, 0)
    assert disk.log is not None
    assert disk.log.recovering == log.recovering


def test_a_snapshot_that_cannot_be_read_now_is_not_deleted_when_nothing_else_covers_the_start(
    make_disk: MakeDisk,
) -> None:
    disk = make_disk(log_start=10)
    disk.write(an_id(10))
    path = disk.store.path_of(an_id(10))
    disk.files.failing_reads.add(path)
    with pytest.raises(StorageError, match="starts at offset 10"):
        disk.open(has_others=False)
    disk.files.failing_reads.clear()
    assert extent(disk.open(has_others=False)) == (10, 40)
    assert disk.store.ids() == (an_id(10),)


def test_a_log_without_a_quorum_state_is_refused_and_unchanged(make_disk: MakeDisk) -> None:
    disk = make_disk()
    disk.write(an_id(10))
    before = disk.content()
    with pytest.raises(StorageError, match="no quorum state"):
        disk.open(election_state=None)
    assert disk.content() == before


def test_a_log_that_ends_below_what_was_durable_is_damaged_although_a_snapshot_covers_it(make_disk: MakeDisk) -> None:
    disk = make_disk()
    disk.write(an_id(50))
    with pytest.raises(CorruptLog):
        disk.open(has_others=False, minimum=41)


def test_sn44_a_crash_between_a_snapshot_and_the_log_that_it_replaces_is_gone_on_from(make_disk: MakeDisk) -> None:
    for stop_at in range(1, 30):
        disk = make_disk(log_start=10)
        disk.write(an_id(10), an_id(60))
        disk.files.before_operation = _stop_at(stop_at)
        try:
            disk.open()
        except (_Stop, IndexError):  # a log that stopped in the middle cannot be closed
            pass
        else:
            assert stop_at > 5
            return
        disk.files.before_operation = None
        disk.files.crash()
        disk.directory = DataDirectory.open(disk.files, "data")
        disk.store = SnapshotStore(disk.files, disk.directory.snapshots_path)
        log = disk.open()
        assert (log.start, log.end, log.recovering) == (an_id(60), an_id(60), None)
        assert disk.store.ids() == (an_id(60),)
    raise AssertionError("it never ended")


class _Stop(Exception):
    pass


def _stop_at(count: int) -> Callable[[str, str], None]:
    done = 0

    def before(operation: str, path: str) -> None:
        nonlocal done
        done += 1
        if done == count:
            raise _Stop

    return before


# --- in a cluster -----------------------------------------------------------------------------------------------------


async def test_sn44_a_voter_that_lost_what_is_below_its_start_fetches_everything_again_and_votes(
    tmp_path: Path,
) -> None:
    async with snapshot_cluster(tmp_path) as cluster:
        await cluster.append(0, 10)
        cluster.snapshot_everywhere()
        await cluster.append(10, 20)
        cluster.snapshot_everywhere()
        await until(lambda: all(client.log_start_offset > 0 for client in cluster.clients.values()))
        leader_id = (await cluster.leader()).node_key.node_id
        victim, third = (node_id for node_id in cluster.nodes if node_id != leader_id)
        await cluster.stop(victim)
        shutil.rmtree(tmp_path / f"node-{victim}" / "snapshots")
        await cluster.up(victim)
        recovering = cluster.nodes[victim].log.recovering
        assert recovering is not None
        assert "starts at offset" in recovering.reason
        await until(lambda: not cluster.nodes[victim].replica.is_recovering)
        await cluster.recorders[victim].has_records(20)
        assert cluster.recorders[victim].records == numbered(20)
        assert cluster.nodes[victim].log.log_start_offset > 0
        await cluster.stop(third)  # now its vote is needed
        await cluster.append(20, 21)
        assert cluster.recorders[victim].records == numbered(21)


# --- applied records were committed -----------------------------------------------------------------------------------


def test_a_log_that_is_shorter_than_what_was_applied_recovers(make_disk: MakeDisk) -> None:
    disk = make_disk()
    disk.applied = 44
    log = disk.open()
    assert log.recovering is not None
    assert (log.log_end_offset, log.recovering.known_until_offset) == (40, None)


def test_a_log_with_other_records_than_those_that_were_applied_recovers(make_disk: MakeDisk) -> None:
    """It may have grown past that offset again: the epoch shows the difference."""
    disk = make_disk()
    disk.applied, disk.applied_epoch = 30, EPOCH + 1
    log = disk.open()
    assert log.recovering is not None
    assert (log.log_end_offset, log.recovering.known_until_offset) == (40, None)
    log.close()
    assert disk.open().recovering == log.recovering, "and at the next start"


@pytest.mark.parametrize(("applied", "epoch"), [(44, EPOCH), (30, EPOCH + 1)])
def test_a_sole_voter_whose_log_lacks_what_was_applied_is_refused_and_nothing_changes(
    make_disk: MakeDisk, applied: int, epoch: int
) -> None:
    disk = make_disk()
    disk.applied, disk.applied_epoch = applied, epoch
    before = disk.content()
    with pytest.raises(StorageError, match=r"no other voter.*Delete nothing"):
        disk.open(has_others=False)
    assert disk.content() == before
