"""A node's snapshots: given out, fetched, deleted (SN-02 to SN-13, SN-42), on every file system alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raft.core.errors import ErrorCode, FlushFailed, InvariantViolation, StorageError
from raft.core.types import OffsetAndEpoch
from raft.snapshots import DELETE_DELAY_MS, READ_THROUGH_FOR_MS, READS_WAITING_MAX, REFUSAL_PAUSE_MS, NodeSnapshots
from raft.storage.files import FileSystem, join
from raft.storage.memory import MemoryFileSystem
from raft.storage.posix import PosixFileSystem
from snapshot.names import DELETED_SUFFIX, snapshot_name
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from tests.raft.by_hand import HandRuntime
from tests.snapshot.builders import (
    CONTENT,
    DIRECTORY,
    HEADER_OF_TESTS,
    TIMESTAMP_MS,
    an_id,
    put,
    snapshot_bytes,
    write_snapshot,
)

Answer = tuple[ErrorCode, int, bytes]

NOT_FOUND: Answer = (ErrorCode.SNAPSHOT_NOT_FOUND, 0, b"")
OUT_OF_RANGE: Answer = (ErrorCode.POSITION_OUT_OF_RANGE, 0, b"")
ALL = 1_000_000


class Desk:
    """The snapshots of a node that does nothing else, and what they tell it."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files
        self._tokens = iter(range(1_000))
        self.store = SnapshotStore(files, DIRECTORY, token=lambda: f"{next(self._tokens):08x}")
        self.runtime = HandRuntime()
        self.told: list[str] = []
        self.fatal: list[BaseException] = []
        self.opened: list[OffsetAndEpoch] = []

    def open(self) -> NodeSnapshots:
        return NodeSnapshots(
            self.store,
            HEADER_OF_TESTS.cluster_id,
            self.runtime,
            on_changed=lambda: self.told.append("changed"),
            on_damaged=lambda: self.told.append("damaged"),
            on_fatal=self.fatal.append,
        )

    def names(self) -> list[str]:
        return self.files.list_directory(DIRECTORY)

    def part_names(self) -> list[str]:
        return [name for name in self.names() if name.endswith(".part")]

    def damage(self, snapshot_id: OffsetAndEpoch, position: int = -10) -> None:
        data = bytearray(snapshot_bytes(snapshot_id))
        data[position] ^= 0xFF
        put(self.files, bytes(data), snapshot_id)

    def descriptors(self) -> set[str]:
        """What this process has open in the directory; of the file system in memory there is none to see."""
        if not isinstance(self.files, PosixFileSystem):
            return set()
        base = Path.cwd().resolve() / DIRECTORY
        targets = []
        for link in Path("/proc/self/fd").iterdir():
            try:
                targets.append(link.readlink())
            except OSError:  # the one that lists them
                continue
        return {target.name.removesuffix(" (deleted)") for target in targets if target.is_relative_to(base)}


@pytest.fixture
def desk(files: FileSystem) -> Iterator[Desk]:
    desk = Desk(files)
    yield desk
    assert not desk.fatal


def read(
    snapshots: NodeSnapshots, snapshot_id: OffsetAndEpoch, position: int = 0, max_bytes: int = ALL
) -> list[Answer]:
    answers: list[Answer] = []
    snapshots.read(snapshot_id, position, max_bytes, lambda *answer: answers.append(answer))
    return answers


# --- which there are --------------------------------------------------------------------------------------------------


def test_what_the_store_holds_is_there_from_the_start(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(20))
    write_snapshot(desk.store, an_id(10))
    snapshots = desk.open()
    assert snapshots.latest == an_id(20)
    oldest, newest = snapshots.stored()
    assert (oldest.snapshot_id, newest.snapshot_id) == (an_id(10), an_id(20))
    assert oldest.size_bytes == len(snapshot_bytes(an_id(10)))
    assert oldest.timestamp_ms == newest.timestamp_ms == TIMESTAMP_MS
    assert (oldest.eligible_since_ms, newest.eligible_since_ms) == (1_000, None)
    assert desk.told == []


def test_an_empty_store_has_no_newest_snapshot(desk: Desk) -> None:
    snapshots = desk.open()
    assert (snapshots.latest, snapshots.stored()) == (None, ())


def test_a_refresh_finds_what_was_written_and_tells_only_of_a_newer_one(desk: Desk) -> None:
    snapshots = desk.open()
    write_snapshot(desk.store, an_id(20))
    snapshots.refresh()
    assert (snapshots.latest, desk.told) == (an_id(20), ["changed"])
    snapshots.refresh()
    write_snapshot(desk.store, an_id(10))
    snapshots.refresh()
    assert (snapshots.latest, desk.told) == (an_id(20), ["changed"])
    assert len(snapshots.stored()) == 2


def test_sn51_a_snapshot_is_eligible_since_a_newer_one_came(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    snapshots = desk.open()
    for offset in (20, 30):
        desk.runtime.advance(500)
        write_snapshot(desk.store, an_id(offset))
        snapshots.refresh()
    assert [stored.eligible_since_ms for stored in snapshots.stored()] == [1_500, 2_000, None]


def test_sn06_a_snapshot_without_a_header_is_deleted_when_it_is_seen(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    desk.damage(an_id(20), position=5)
    snapshots = desk.open()
    assert snapshots.latest == an_id(10)
    assert desk.told == ["damaged"]
    assert snapshot_name(an_id(20)) not in desk.names()


def test_sn05_a_snapshot_is_created_with_the_clusters_id_and_its_timestamp(desk: Desk) -> None:
    snapshots = desk.open()
    writer = snapshots.create(an_id(10), TIMESTAMP_MS)
    assert writer is not None
    with writer:
        writer.freeze()
    with desk.store.open_whole(an_id(10)) as reader:
        assert reader.header == HEADER_OF_TESTS
    assert snapshots.create(an_id(10), TIMESTAMP_MS) is None


# --- giving them out --------------------------------------------------------------------------------------------------


def test_sn10_reads_give_exactly_the_bytes_that_were_asked_for(desk: Desk) -> None:
    write_snapshot(desk.store, an_id())
    data = snapshot_bytes(an_id())
    size = len(data)
    snapshots = desk.open()
    slices = [(0, ALL), (0, 1), (7, 50), (size - 1, ALL), (size - 3, 2), (0, size)]
    for position, max_bytes in slices:
        answers = read(snapshots, an_id(), position, max_bytes)
        desk.runtime.run()
        assert answers == [(ErrorCode.NONE, size, data[position : position + max_bytes])]
    assert b"".join(_walk(snapshots, desk, size, 100)) == data
    snapshots.close()
    assert desk.descriptors() == set()


def _walk(snapshots: NodeSnapshots, desk: Desk, size: int, step: int) -> Iterator[bytes]:
    for position in range(0, size, step):
        ((_, _, data),) = read(snapshots, an_id(), position, step)
        yield data


def test_sn10_what_is_not_there_is_not_found(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(500, epoch=3))
    snapshots = desk.open()
    for missing in (an_id(499), an_id(501), an_id(500, epoch=2), an_id(500, epoch=4)):
        assert read(snapshots, missing) == [NOT_FOUND]
    assert not desk.runtime.aside


@pytest.mark.parametrize("beyond", [0, 1, 2**62])
def test_sn10_a_position_at_the_end_or_past_it_is_out_of_range(desk: Desk, beyond: int) -> None:
    write_snapshot(desk.store, an_id())
    snapshots = desk.open()
    answers = read(snapshots, an_id(), len(snapshot_bytes(an_id())) + beyond)
    desk.runtime.run()
    assert answers == [OUT_OF_RANGE]
    snapshots.close()


def test_no_byte_leaves_before_the_snapshot_is_read_through_and_that_happens_once(desk: Desk) -> None:
    write_snapshot(desk.store, an_id())
    snapshots = desk.open()
    first, second = read(snapshots, an_id(), 0, 5), read(snapshots, an_id(), 5, 5)
    assert (first, second, len(desk.runtime.aside)) == ([], [], 1)
    desk.runtime.run()
    data = snapshot_bytes(an_id())
    assert first == [(ErrorCode.NONE, len(data), data[:5])]
    assert second == [(ErrorCode.NONE, len(data), data[5:10])]
    assert read(snapshots, an_id(), 10, 5) == [(ErrorCode.NONE, len(data), data[10:15])]
    assert not desk.runtime.aside
    snapshots.close()


def test_a_damaged_snapshot_is_deleted_and_all_who_wait_for_it_hear_that_there_is_none(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    desk.damage(an_id(20))
    snapshots = desk.open()
    assert snapshots.latest == an_id(20)
    answers = [read(snapshots, an_id(20), position) for position in (0, 5, ALL)]
    desk.runtime.run()
    assert answers == [[NOT_FOUND]] * 3
    assert snapshots.latest == an_id(10)
    assert sorted(desk.told) == ["changed", "damaged"]
    assert snapshot_name(an_id(20)) not in desk.names()
    assert read(snapshots, an_id(20)) == [NOT_FOUND]
    assert desk.descriptors() == set()


def test_so_many_reads_wait_and_one_more_is_refused(desk: Desk) -> None:
    write_snapshot(desk.store, an_id())
    snapshots = desk.open()
    waiting = [read(snapshots, an_id(), 0, 1) for _ in range(READS_WAITING_MAX)]
    assert read(snapshots, an_id(), 0, 1) == [(ErrorCode.THROTTLING_QUOTA_EXCEEDED, 0, b"")]
    desk.runtime.run()
    assert all([answer[0] for answer in answers] == [ErrorCode.NONE] for answers in waiting)
    assert read(snapshots, an_id(), 0, 1)[0][0] is ErrorCode.NONE
    snapshots.close()


def test_sn42_a_snapshot_that_is_deleted_while_it_is_read_stays_for_a_while_and_then_goes(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    write_snapshot(desk.store, an_id(20))
    data = snapshot_bytes(an_id(10))
    snapshots = desk.open()
    read(snapshots, an_id(10))
    desk.runtime.run()
    snapshots.delete_surplus(an_id(20))
    assert snapshots.stored()[0].snapshot_id == an_id(20)
    assert desk.names() == sorted([snapshot_name(an_id(10)) + DELETED_SUFFIX, snapshot_name(an_id(20))])
    desk.runtime.advance(DELETE_DELAY_MS - 1)
    assert read(snapshots, an_id(10), 3, 4) == [(ErrorCode.NONE, len(data), data[3:7])]
    desk.runtime.advance(1)
    assert read(snapshots, an_id(10), 3, 4) == [NOT_FOUND]
    assert desk.names() == [snapshot_name(an_id(20))]
    assert desk.descriptors() == set()


def test_sn42_a_snapshot_that_is_deleted_while_it_is_read_through_is_given_out_for_a_while(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    write_snapshot(desk.store, an_id(20))
    snapshots = desk.open()
    answers = read(snapshots, an_id(10))
    work, on_done = desk.runtime.aside.popleft()
    work()
    snapshots.delete_surplus(an_id(20))
    on_done(None)
    assert answers[0][0] is ErrorCode.NONE
    desk.runtime.advance(DELETE_DELAY_MS)
    assert read(snapshots, an_id(10)) == [NOT_FOUND]
    assert desk.descriptors() == set()


def test_a_snapshot_that_is_gone_when_it_would_be_read_through_is_not_found(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    write_snapshot(desk.store, an_id(20))
    snapshots = desk.open()
    answers = read(snapshots, an_id(10))
    snapshots.delete_surplus(an_id(20))
    desk.runtime.run()
    assert answers == [NOT_FOUND]
    assert desk.told == []


def test_one_that_was_deleted_and_came_again_is_not_forgotten_when_its_old_bytes_would_go(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    write_snapshot(desk.store, an_id(20))
    snapshots = desk.open()
    snapshots.delete_surplus(an_id(20))
    write_snapshot(desk.store, an_id(10))
    snapshots.refresh()
    read(snapshots, an_id(10))
    desk.runtime.advance(DELETE_DELAY_MS)
    assert read(snapshots, an_id(10), 1, 1)[0][0] is ErrorCode.NONE
    snapshots.close()


def test_one_that_rots_after_it_was_read_through_is_found_when_somebody_begins_with_it_later() -> None:
    files = MemoryFileSystem()
    desk = Desk(files)
    path = write_snapshot(desk.store, an_id())
    snapshots = desk.open()
    read(snapshots, an_id(), 0, 1)
    desk.runtime.run()
    files.damage(path, 20, b"rot")
    desk.runtime.advance(READ_THROUGH_FOR_MS)
    assert read(snapshots, an_id(), 0, 1)[0][0] is ErrorCode.NONE
    desk.runtime.advance(1)
    assert read(snapshots, an_id(), 1, 1)[0][0] is ErrorCode.NONE, "who has begun goes on, and finds out in the end"
    later = read(snapshots, an_id(), 0, 1)
    assert later == []
    desk.runtime.run()
    assert later == [NOT_FOUND]
    assert snapshots.latest is None
    assert "damaged" in desk.told


def test_a_snapshot_that_can_no_longer_be_read_is_not_found_and_ends_nothing() -> None:
    files = MemoryFileSystem()
    desk = Desk(files)
    path = write_snapshot(desk.store, an_id())
    snapshots = desk.open()
    read(snapshots, an_id(), 0, 1)
    desk.runtime.run()
    files.failing_reads.add(path)
    assert read(snapshots, an_id(), 0, 1) == [NOT_FOUND]
    again = read(snapshots, an_id(), 0, 1)
    assert desk.runtime.aside, "it is read through again"
    desk.runtime.run()
    assert again == [NOT_FOUND]
    files.failing_reads.clear()
    healed = read(snapshots, an_id(), 0, 1)
    desk.runtime.run()
    assert healed[0][0] is ErrorCode.NONE
    assert (desk.told, desk.fatal) == ([], [])


def test_what_is_no_error_of_files_ends_the_process_when_a_snapshot_is_read_through() -> None:
    files = MemoryFileSystem()
    desk = Desk(files)
    write_snapshot(desk.store, an_id())
    snapshots = desk.open()
    answers = read(snapshots, an_id())
    _, on_done = desk.runtime.aside.popleft()
    on_done(InvariantViolation("cannot be"))
    assert (answers, [str(error) for error in desk.fatal]) == ([], ["cannot be"])


def test_closing_lets_go_of_what_is_read_through_afterwards(desk: Desk) -> None:
    write_snapshot(desk.store, an_id())
    snapshots = desk.open()
    answers = read(snapshots, an_id())
    snapshots.close()
    desk.runtime.run()
    assert answers == []
    assert desk.descriptors() == set()


# --- the newest one, for a listener -----------------------------------------------------------------------------------


def open_latest(desk: Desk, snapshots: NodeSnapshots) -> list[SnapshotReader | None]:
    opened: list[SnapshotReader | None] = []
    snapshots.open_latest(opened.append)
    desk.runtime.run()
    return opened


def test_sn60_the_newest_snapshot_is_opened_whole(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    write_snapshot(desk.store, an_id(20))
    (reader,) = open_latest(desk, desk.open())
    assert reader is not None
    with reader:
        assert reader.snapshot_id == an_id(20)
        assert sum(batch.record_count for batch in reader.batches()) == sum(map(len, CONTENT))
    assert desk.descriptors() == set()


def test_sn60_damaged_ones_are_deleted_until_one_is_whole(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    desk.damage(an_id(20))
    desk.damage(an_id(30))
    snapshots = desk.open()
    (reader,) = open_latest(desk, snapshots)
    assert reader is not None
    reader.close()
    assert reader.snapshot_id == snapshots.latest == an_id(10)
    assert desk.told == ["damaged", "changed"] * 2
    assert [name for name in desk.names() if not name.endswith(DELETED_SUFFIX)] == [snapshot_name(an_id(10))]
    assert desk.descriptors() == set()


def test_sn60_without_a_whole_snapshot_there_is_none_to_open(desk: Desk) -> None:
    snapshots = desk.open()
    assert open_latest(desk, snapshots) == [None]
    desk.damage(an_id(20))
    snapshots.refresh()
    assert open_latest(desk, snapshots) == [None]
    assert snapshots.latest is None


def test_a_snapshot_that_cannot_be_read_now_is_left_where_it_is_and_the_one_before_is_opened() -> None:
    files = MemoryFileSystem()
    desk = Desk(files)
    write_snapshot(desk.store, an_id(10))
    path = write_snapshot(desk.store, an_id(20))
    snapshots = desk.open()
    files.failing_reads.add(path)
    (reader,) = open_latest(desk, snapshots)
    assert reader is not None
    assert reader.snapshot_id == an_id(10)
    assert snapshot_name(an_id(20)) in desk.names()
    assert "damaged" not in desk.told


# --- fetching one -----------------------------------------------------------------------------------------------------


class Download:
    """Gives pieces to `NodeSnapshots.append` and keeps what it says."""

    def __init__(self, desk: Desk, snapshots: NodeSnapshots) -> None:
        self.desk = desk
        self.snapshots = snapshots
        self.told: list[int | str] = []

    def append(self, attempt: int, data: bytes, snapshot_id: OffsetAndEpoch | None = None) -> None:
        self.snapshots.append(attempt, snapshot_id or an_id(), data, self.told.append, self.refused)
        self.desk.runtime.run()

    def freeze(self, attempt: int) -> None:
        self.snapshots.freeze(attempt, lambda: self.told.append("received"), self.refused)
        self.desk.runtime.run()

    def refused(self) -> None:
        self.told.append("refused")


@pytest.fixture
def download(desk: Desk) -> Iterator[Download]:
    snapshots = desk.open()
    yield Download(desk, snapshots)
    snapshots.close()
    desk.runtime.run()
    assert desk.descriptors() == set()


def test_sn12_a_snapshot_comes_in_pieces_and_is_there_when_it_is_frozen(download: Download, desk: Desk) -> None:
    data = snapshot_bytes(an_id())
    for position in range(0, len(data), 50):
        download.append(1, data[position : position + 50])
        assert download.told[-1] == min(position + 50, len(data))
        assert download.snapshots.latest is None
    download.freeze(1)
    assert download.told[-1] == "received"
    assert download.snapshots.latest == an_id()
    assert desk.names() == [snapshot_name(an_id())]
    assert desk.descriptors() == set()
    with desk.store.open_whole(an_id()) as reader:
        assert reader.read_at(0, ALL) == data


def test_sn12_it_is_listed_before_it_is_said_to_be_received(download: Download, desk: Desk) -> None:
    download.append(1, snapshot_bytes(an_id()))
    seen: list[OffsetAndEpoch | None] = []
    download.snapshots.freeze(1, lambda: seen.append(download.snapshots.latest), download.refused)
    desk.runtime.run()
    assert seen == [an_id()]


def test_sn12_a_new_attempt_drops_what_the_last_one_wrote(download: Download, desk: Desk) -> None:
    data = snapshot_bytes(an_id())
    download.append(1, data[:100])
    (first,) = desk.part_names()
    download.append(2, data[:30])
    assert download.told == [100, 30]
    (second,) = desk.part_names()
    assert second != first
    download.append(2, data[30:])
    download.freeze(2)
    assert download.snapshots.latest == an_id()
    assert desk.names() == [snapshot_name(an_id())]


def test_sn13_a_download_that_is_dropped_leaves_no_part_file(download: Download, desk: Desk) -> None:
    download.append(1, snapshot_bytes(an_id())[:100])
    download.snapshots.drop()
    desk.runtime.run()
    assert desk.names() == []
    assert desk.descriptors() == set()
    download.snapshots.drop()
    desk.runtime.run()
    download.append(2, snapshot_bytes(an_id())[:40])
    assert download.told == [100, 40]


@pytest.mark.parametrize("whole", [False, True])
def test_sn05_damage_is_refused_after_a_pause_and_leaves_no_part_file(
    download: Download, desk: Desk, whole: bool
) -> None:
    data = bytearray(snapshot_bytes(an_id()))
    data[120] ^= 1
    download.append(1, bytes(data) if whole else bytes(data[:200]))
    assert desk.names() == []
    desk.runtime.advance(REFUSAL_PAUSE_MS - 1)
    assert download.told == []
    desk.runtime.advance(1)
    assert download.told == ["refused"]
    download.append(2, snapshot_bytes(an_id()))
    download.freeze(2)
    assert download.told[1:] == [len(data), "received"]


def test_a_snapshot_of_another_cluster_is_refused(download: Download, desk: Desk) -> None:
    foreign = SnapshotStore(MemoryFileSystem(), DIRECTORY)
    writer = foreign.create(an_id(), HEADER_OF_TESTS._replace(cluster_id="another"))
    assert writer is not None
    with writer:
        writer.freeze()
    with foreign.open(an_id()) as reader:
        download.append(1, reader.read_at(0, ALL))
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert download.told == ["refused"]
    assert desk.names() == []


def test_sn05_what_lacks_its_end_is_no_snapshot(download: Download, desk: Desk) -> None:
    download.append(1, snapshot_bytes(an_id())[:-1])
    download.freeze(1)
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert download.told[1:] == ["refused"]
    assert (desk.names(), download.snapshots.latest) == ([], None)


@pytest.mark.parametrize("appended", [0, 1])
def test_sn12_an_attempt_that_was_given_up_is_not_frozen(download: Download, desk: Desk, appended: int) -> None:
    if appended:
        download.append(appended, snapshot_bytes(an_id()))
    download.freeze(2)
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert download.told[-1] == "refused"
    assert (desk.names(), download.snapshots.latest) == ([], None)


def test_sn12_a_file_of_that_name_is_replaced(download: Download, desk: Desk) -> None:
    desk.damage(an_id())
    download.append(1, snapshot_bytes(an_id()))
    download.freeze(1)
    assert download.told[-1] == "received"
    desk.store.open_whole(an_id()).close()


def test_a_full_disk_refuses_after_a_pause_and_leaves_no_part_file() -> None:
    files = MemoryFileSystem()
    desk = Desk(files)
    download = Download(desk, desk.open())
    data = snapshot_bytes(an_id())
    download.append(1, data[:50])
    files.space_limit = 80
    download.append(1, data[50:])
    assert desk.names() == []
    assert download.told == [50]
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert download.told == [50, "refused"]
    files.space_limit = None
    download.append(2, data)
    download.freeze(2)
    assert download.told[2:] == [len(data), "received"]


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_snapshot_that_could_not_be_synced_ends_the_process(what: str) -> None:
    files = MemoryFileSystem()
    desk = Desk(files)
    download = Download(desk, desk.open())
    download.append(1, snapshot_bytes(an_id()))
    (part,) = desk.part_names()
    files.failing_syncs.add(join(DIRECTORY, part) if what == "file" else DIRECTORY)
    download.freeze(1)
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert [type(error) for error in desk.fatal] == [FlushFailed]
    assert download.told == [len(snapshot_bytes(an_id()))]


def test_nothing_is_told_after_the_close_and_a_half_fetched_snapshot_is_let_go_of(desk: Desk) -> None:
    snapshots = desk.open()
    download = Download(desk, snapshots)
    download.append(1, snapshot_bytes(an_id())[:100])
    snapshots.append(1, an_id(), snapshot_bytes(an_id())[100:], download.told.append, download.refused)
    snapshots.close()
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert download.told == [100]
    assert desk.descriptors() == set()
    assert desk.part_names() == []


def test_a_close_before_an_error_of_the_disk_tells_nothing(desk: Desk) -> None:
    snapshots = desk.open()
    download = Download(desk, snapshots)
    snapshots.freeze(1, lambda: download.told.append("received"), download.refused)
    snapshots.close()
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert (download.told, desk.fatal) == ([], [])


def test_what_is_deleted_after_the_close_is_left_to_the_next_start(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    write_snapshot(desk.store, an_id(20))
    snapshots = desk.open()
    snapshots.delete_surplus(an_id(20))
    snapshots.close()
    desk.runtime.advance(DELETE_DELAY_MS)
    assert snapshot_name(an_id(10)) + DELETED_SUFFIX in desk.names()


def test_a_snapshot_that_cannot_be_deleted_is_none_of_the_nodes_any_more(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    write_snapshot(desk.store, an_id(20))
    snapshots = desk.open()
    desk.files.remove(desk.store.path_of(an_id(10)))  # an operator's hand
    snapshots.delete_surplus(an_id(20))
    assert [stored.snapshot_id for stored in snapshots.stored()] == [an_id(20)]
    with pytest.raises(StorageError):
        desk.store.open(an_id(10))
