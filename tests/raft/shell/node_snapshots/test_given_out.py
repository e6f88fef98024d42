"""A node serves its snapshots to other replicas, whole ones only (SN-10, SN-42)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftbase.errors import ErrorCode, InvariantViolation
from kraftbase.files.memory import MemoryFileSystem
from raft.shell.node_snapshots import (
    DELETE_DELAY_MS,
    FETCHED_DELETED_MAX,
    FETCHED_DELETED_MS_MAX,
    READ_THROUGH_FOR_MS,
    READS_WAITING_MAX,
    NodeSnapshots,
)
from snapshot.names import DELETED_SUFFIX, snapshot_name
from tests.raft.shell.node_snapshots.desk import ALL, NOT_FOUND, OUT_OF_RANGE, Desk, read
from tests.snapshot.builders import an_id, snapshot_bytes, write_snapshot


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
    desk.runtime.advance(DELETE_DELAY_MS - 1)
    assert read(snapshots, an_id(10), 3, 4) == [(ErrorCode.NONE, len(data), data[3:7])], "a replica is fetching it"
    desk.runtime.advance(DELETE_DELAY_MS)
    assert read(snapshots, an_id(10), 3, 4) == [NOT_FOUND]
    assert desk.names() == [snapshot_name(an_id(20))]
    assert desk.descriptors() == set()


def test_sn42_a_deleted_snapshot_is_given_out_to_a_slow_reader_for_a_bounded_time(desk: Desk) -> None:
    write_snapshot(desk.store, an_id(10))
    write_snapshot(desk.store, an_id(20))
    snapshots = desk.open()
    read(snapshots, an_id(10))
    desk.runtime.run()
    snapshots.delete_surplus(an_id(20))
    elapsed_ms = 0
    while read(snapshots, an_id(10), 1, 1)[0][0] is ErrorCode.NONE:
        desk.runtime.advance(DELETE_DELAY_MS // 2)
        elapsed_ms += DELETE_DELAY_MS // 2
        assert elapsed_ms <= FETCHED_DELETED_MS_MAX
    assert elapsed_ms == FETCHED_DELETED_MS_MAX
    assert desk.descriptors() == set()


def test_sn42_only_so_many_deleted_snapshots_are_given_out_and_the_oldest_goes_first(desk: Desk) -> None:
    offsets = list(range(10, 10 + FETCHED_DELETED_MAX + 1))
    for offset in [*offsets, 90]:
        write_snapshot(desk.store, an_id(offset))
    snapshots = desk.open()
    for offset in offsets:
        read(snapshots, an_id(offset))
        desk.runtime.run()
    snapshots.delete_surplus(an_id(90))
    desk.runtime.advance(DELETE_DELAY_MS - 1)
    for offset in offsets:
        read(snapshots, an_id(offset), 1, 1)
    desk.runtime.advance(1)
    given = [read(snapshots, an_id(offset), 1, 1)[0][0] for offset in offsets]
    assert given == [ErrorCode.SNAPSHOT_NOT_FOUND] + [ErrorCode.NONE] * FETCHED_DELETED_MAX
    snapshots.close()


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
    assert read(snapshots, an_id(), 1, 1)[0][0] is ErrorCode.NONE, "a transfer continues, and fails at its end"
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
    assert desk.runtime.aside, "it is verified again"
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
