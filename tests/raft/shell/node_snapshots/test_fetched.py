"""A node fetches a snapshot from another node, in pieces (SN-05, SN-12, SN-13)."""

from __future__ import annotations

import pytest

from kraftbase.errors import FlushFailed
from kraftbase.files.files import join
from kraftbase.files.memory import MemoryFileSystem
from raft.core.types import OffsetAndEpoch
from raft.shell.node_snapshots import REFUSAL_PAUSE_MS
from snapshot.names import snapshot_name
from snapshot.store import SnapshotStore
from tests.raft.shell.node_snapshots.desk import ALL, Desk, Fetch
from tests.snapshot.builders import DIRECTORY, HEADER_OF_TESTS, an_id, snapshot_bytes


def test_sn12_a_snapshot_comes_in_pieces_and_is_there_when_it_is_frozen(fetch: Fetch, desk: Desk) -> None:
    data = snapshot_bytes(an_id())
    for position in range(0, len(data), 50):
        fetch.append(1, data[position : position + 50])
        assert fetch.told[-1] == min(position + 50, len(data))
        assert fetch.snapshots.latest is None
    fetch.freeze(1)
    assert fetch.told[-1] == "received"
    assert fetch.snapshots.latest == an_id()
    assert desk.names() == [snapshot_name(an_id())]
    assert desk.descriptors() == set()
    with desk.store.open_whole(an_id()) as reader:
        assert reader.read_at(0, ALL) == data


def test_sn12_it_is_listed_before_it_is_said_to_be_received(fetch: Fetch, desk: Desk) -> None:
    fetch.append(1, snapshot_bytes(an_id()))
    seen: list[OffsetAndEpoch | None] = []
    fetch.snapshots.freeze(1, lambda: seen.append(fetch.snapshots.latest), fetch.refused)
    desk.runtime.run()
    assert seen == [an_id()]


def test_sn12_a_new_attempt_drops_what_the_last_one_wrote(fetch: Fetch, desk: Desk) -> None:
    data = snapshot_bytes(an_id())
    fetch.append(1, data[:100])
    (first,) = desk.part_names()
    fetch.append(2, data[:30])
    assert fetch.told == [100, 30]
    (second,) = desk.part_names()
    assert second != first
    fetch.append(2, data[30:])
    fetch.freeze(2)
    assert fetch.snapshots.latest == an_id()
    assert desk.names() == [snapshot_name(an_id())]


def test_sn13_a_download_that_is_dropped_leaves_no_part_file(fetch: Fetch, desk: Desk) -> None:
    fetch.append(1, snapshot_bytes(an_id())[:100])
    fetch.snapshots.drop()
    desk.runtime.run()
    assert desk.names() == []
    assert desk.descriptors() == set()
    fetch.snapshots.drop()
    desk.runtime.run()
    fetch.append(2, snapshot_bytes(an_id())[:40])
    assert fetch.told == [100, 40]


@pytest.mark.parametrize("whole", [False, True])
def test_sn05_damage_is_refused_after_a_pause_and_leaves_no_part_file(fetch: Fetch, desk: Desk, whole: bool) -> None:
    data = bytearray(snapshot_bytes(an_id()))
    data[120] ^= 1
    fetch.append(1, bytes(data) if whole else bytes(data[:200]))
    assert desk.names() == []
    desk.runtime.advance(REFUSAL_PAUSE_MS - 1)
    assert fetch.told == []
    desk.runtime.advance(1)
    assert fetch.told == ["refused"]
    fetch.append(2, snapshot_bytes(an_id()))
    fetch.freeze(2)
    assert fetch.told[1:] == [len(data), "received"]


def test_a_snapshot_of_another_cluster_is_refused(fetch: Fetch, desk: Desk) -> None:
    foreign = SnapshotStore(MemoryFileSystem(), DIRECTORY)
    writer = foreign.create(an_id(), HEADER_OF_TESTS._replace(cluster_id="another"))
    assert writer is not None
    with writer:
        writer.freeze()
    with foreign.open(an_id()) as reader:
        fetch.append(1, reader.read_at(0, ALL))
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert fetch.told == ["refused"]
    assert desk.names() == []


def test_sn05_what_lacks_its_end_is_no_snapshot(fetch: Fetch, desk: Desk) -> None:
    fetch.append(1, snapshot_bytes(an_id())[:-1])
    fetch.freeze(1)
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert fetch.told[1:] == ["refused"]
    assert (desk.names(), fetch.snapshots.latest) == ([], None)


@pytest.mark.parametrize("appended", [0, 1])
def test_sn12_an_attempt_that_was_given_up_is_not_frozen(fetch: Fetch, desk: Desk, appended: int) -> None:
    if appended:
        fetch.append(appended, snapshot_bytes(an_id()))
    fetch.freeze(2)
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert fetch.told[-1] == "refused"
    assert (desk.names(), fetch.snapshots.latest) == ([], None)


def test_sn12_a_file_of_that_name_is_replaced(fetch: Fetch, desk: Desk) -> None:
    desk.damage(an_id())
    fetch.append(1, snapshot_bytes(an_id()))
    fetch.freeze(1)
    assert fetch.told[-1] == "received"
    desk.store.open_whole(an_id()).close()


def test_a_full_disk_refuses_after_a_pause_and_leaves_no_part_file() -> None:
    files = MemoryFileSystem()
    desk = Desk(files)
    fetch = Fetch(desk, desk.open())
    data = snapshot_bytes(an_id())
    fetch.append(1, data[:50])
    files.space_limit = 80
    fetch.append(1, data[50:])
    assert desk.names() == []
    assert fetch.told == [50]
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert fetch.told == [50, "refused"]
    files.space_limit = None
    fetch.append(2, data)
    fetch.freeze(2)
    assert fetch.told[2:] == [len(data), "received"]


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_snapshot_that_could_not_be_synced_ends_the_process(what: str) -> None:
    files = MemoryFileSystem()
    desk = Desk(files)
    fetch = Fetch(desk, desk.open())
    fetch.append(1, snapshot_bytes(an_id()))
    (part,) = desk.part_names()
    files.failing_syncs.add(join(DIRECTORY, part) if what == "file" else DIRECTORY)
    fetch.freeze(1)
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert [type(error) for error in desk.fatal] == [FlushFailed]
    assert fetch.told == [len(snapshot_bytes(an_id()))]


def test_nothing_is_told_after_the_close_and_a_half_fetched_snapshot_is_let_go_of(desk: Desk) -> None:
    snapshots = desk.open()
    fetch = Fetch(desk, snapshots)
    fetch.append(1, snapshot_bytes(an_id())[:100])
    snapshots.append(1, an_id(), snapshot_bytes(an_id())[100:], fetch.told.append, fetch.refused)
    snapshots.close()
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert fetch.told == [100]
    assert desk.descriptors() == set()
    assert desk.part_names() == []


def test_a_close_before_an_error_of_the_disk_tells_nothing(desk: Desk) -> None:
    snapshots = desk.open()
    fetch = Fetch(desk, snapshots)
    snapshots.freeze(1, lambda: fetch.told.append("received"), fetch.refused)
    snapshots.close()
    desk.runtime.advance(REFUSAL_PAUSE_MS)
    assert (fetch.told, desk.fatal) == ([], [])
