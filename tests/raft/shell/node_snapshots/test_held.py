"""Which snapshots a node has: found, created, and deleted (SN-05, SN-06, SN-51)."""

from __future__ import annotations

import pytest

from kraftbase.errors import StorageError
from raft.shell.node_snapshots import DELETE_DELAY_MS
from snapshot.names import DELETED_SUFFIX, snapshot_name
from tests.raft.shell.node_snapshots.desk import Desk
from tests.snapshot.builders import HEADER_OF_TESTS, TIMESTAMP_MS, an_id, snapshot_bytes, write_snapshot


def test_what_the_store_holds_is_there_from_the_start(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(20))
    write_snapshot(desk.store, an_id(10))
    snapshots = desk.open()
    assert snapshots.latest == an_id(20)
    oldest, newest = snapshots.stored()
    assert (oldest.snapshot_id, newest.snapshot_id) == (an_id(10), an_id(20))
    assert oldest.size_bytes == len(snapshot_bytes(an_id(10)))
    assert oldest.timestamp_ms == newest.timestamp_ms == TIMESTAMP_MS
    assert newest.eligible_since_ms is None
    assert desk.told == []


def test_sn51_after_a_restart_a_snapshot_is_eligible_since_the_last_record_of_the_newer_one(desk: Desk) -> None:
    """The time for which the log start waits for readers keeps running over restarts of the node."""
    day_ms = 24 * 3_600_000
    now_ms = desk.runtime.wall_clock_ms()
    for days_ago, offset in ((8, 10), (7, 20), (-1, 30), (0, 40)):
        store = desk.store
        writer = store.create(
            an_id(offset), HEADER_OF_TESTS._replace(last_contained_log_timestamp_ms=now_ms - days_ago * day_ms)
        )
        assert writer is not None
        with writer:
            writer.freeze()
    for _ in range(2):
        snapshots = desk.open()
        since = [stored.eligible_since_ms for stored in snapshots.stored()]
        snapshots.close()
        start_ms = int(desk.runtime.now_ms())
        assert since == [1_000 - 7 * day_ms, start_ms, 1_000, None], "a clock that was ahead makes no wait longer"
        desk.runtime.advance(5_000)


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
    desk.files.remove(desk.store.path_of(an_id(10)))  # by an operator
    snapshots.delete_surplus(an_id(20))
    assert [stored.snapshot_id for stored in snapshots.stored()] == [an_id(20)]
    with pytest.raises(StorageError):
        desk.store.open(an_id(10))
