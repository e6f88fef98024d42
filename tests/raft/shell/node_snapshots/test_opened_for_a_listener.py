"""A node's newest snapshot that is whole is opened for a listener (SN-60)."""

from __future__ import annotations

from kraftbase.files.memory import MemoryFileSystem
from raft.shell.node_snapshots import NodeSnapshots
from snapshot.names import DELETED_SUFFIX, snapshot_name
from snapshot.reader import SnapshotReader
from tests.raft.shell.node_snapshots.desk import Desk
from tests.snapshot.builders import CONTENT, an_id, write_snapshot


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
