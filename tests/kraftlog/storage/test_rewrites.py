"""Segments take the place of others: all of them or none, whatever happens in between (DB-117)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import pairwise

import pytest

from kraftbase.errors import ApiError, ErrorCode, InvariantViolation, OutOfSpace
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.indexes import AbortedTransaction
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import run_at_once
from tests.effort import all_cases, some
from tests.kraftlog.storage.agreement import check_agreement
from tests.kraftlog.storage.builders import (
    CLICKS,
    NOW_MS,
    TRANSACTIONAL,
    all_batches,
    append,
    batch,
    log_in,
    marker,
    open_directory,
    produced,
    rewrite,
)
from tests.kraftlog.storage.test_sound_after_crashes import images, is_new, states

DIRECTORY = "data/clicks-0"
CONFIG = PartitionLogConfig(index_interval_bytes=0)
MERGED = (range(9), [0])
SPLIT = (range(3, 6), [3, 4, 5])
SHIFTED = (range(9), [0, 2, 4])
CHANGES = [MERGED, SPLIT, SHIFTED]


def path_of(base_offset: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{base_offset:020d}{suffix}"


def filled() -> tuple[MemoryFileSystem, LogDirectory, PartitionLog]:
    """Segments at 0, 3, 6 and 9; the first two have an aborted transaction each, and 9 has one batch."""
    files = MemoryFileSystem()
    directory = open_directory(files, config=CONFIG)
    log = log_in(directory, CONFIG)
    for producer_id in (7, 8):
        append(log, produced(producer_id, 0, 1, attributes=TRANSACTIONAL))
        append(log, batch(1, value=b"%d" % producer_id))
        append(log, marker(producer_id, aborts=True))
        log.roll(NOW_MS)
    for _ in range(3):
        append(log, produced(9, log.log_end_offset - 6, 1))
    log.roll(NOW_MS)
    append(log, batch(1))
    log.flush()
    log.advance_high_watermark(10)
    run_at_once(directory.checkpoint())
    return files, directory, log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log._segments.from_offset(0)]


def aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return log.reader.aborted_transactions(0, 100)


def unfinished(files: MemoryFileSystem) -> list[str]:
    """What a replacement needs only while it is under way."""
    return [name for name in files.list_directory(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]


def expected_bases(change: tuple[range, list[int]]) -> list[int]:
    return sorted({*(base for base in (0, 3, 6, 9) if base not in change[0]), *change[1]})


@pytest.mark.parametrize("change", CHANGES)
def test_segments_are_replaced_and_readers_and_a_start_find_the_same_records(change: tuple[range, list[int]]) -> None:
    files, directory, log = filled()
    before, aborted_before = all_batches(log), aborted(log)
    assert len(aborted_before) == 2
    assert rewrite(log, *change).finish()
    for _ in range(2):
        assert bases(log) == expected_bases(change)
        assert all_batches(log) == before
        assert aborted(log) == aborted_before
        assert unfinished(files) == []
        check_agreement(log)
        append(log, batch(1))
        log.flush()
        before = all_batches(log)
        log.advance_high_watermark(log.log_end_offset)
        directory.close(broker_epoch=1)
        directory = open_directory(files, config=CONFIG)
        log = log_in(directory, CONFIG)
        log.advance_high_watermark(log.log_end_offset)


@pytest.mark.parametrize(
    "change", [SHIFTED, *(pytest.param(change, marks=pytest.mark.slow) for change in (MERGED, SPLIT))]
)
def test_db117_a_crash_leaves_all_the_old_segments_or_all_the_new_ones(change: tuple[range, list[int]]) -> None:
    files, _, log = filled()
    before, aborted_before, old_bases = all_batches(log), aborted(log), bases(log)

    seen: set[object] = set()
    found: set[tuple[int, ...]] = set()
    seeds = range(4 if all_cases() else 1)

    def check(image: MemoryFileSystem, what: str) -> None:
        found.add(tuple(bases(checked(deepcopy(image), before, aborted_before, what))))

    for operation, state in enumerate(states(files, rewrite(log, *change).finish)):
        for what, image in images(state, seeds):
            if is_new(image, seen):
                check(image, f"{what} before {operation}")
                if not unfinished(image) or (operation % 5 and not all_cases()):
                    continue
                for start in some(killed_starts(image)):
                    if is_new(start, seen):
                        check(start, f"{what} before {operation}, and the start was killed")
    assert found == {tuple(old_bases), tuple(expected_bases(change))}


def killed_starts(image: MemoryFileSystem) -> list[MemoryFileSystem]:
    """What is left if the start, too, is killed, or loses power."""
    files = deepcopy(image)
    return [
        left
        for state in states(files, lambda: open_directory(files, config=CONFIG))
        for _, left in images(state, range(1 if all_cases() else 0))
    ]


def checked(
    files: MemoryFileSystem, before: list[bytes], aborted_before: Iterable[AbortedTransaction], what: str
) -> PartitionLog:
    directory = open_directory(files, config=CONFIG)
    assert directory.damaged == {}, what
    log = log_in(directory, CONFIG)
    assert all_batches(log) == before, what
    assert log.log_start_offset == 0, what
    log.advance_high_watermark(log.log_end_offset)
    assert aborted(log) == list(aborted_before), what
    assert unfinished(files) == [], what
    check_agreement(log)
    return log


def test_db117_names_are_durable_before_what_relies_on_them_whatever_order_a_disk_keeps() -> None:
    """The file system of these tests keeps changes to names in their order, as a journal does. Not every disk does."""
    files, _, log = filled()
    under_way = rewrite(log, range(9), [0, 4])
    done: list[str] = []

    def note(operation: str, path: str) -> None:
        if path.startswith(DIRECTORY) and operation in ("rename", "remove", "fsync_directory"):
            done.append(f"{operation} {path.rpartition('.')[2]}" if operation == "rename" else operation)

    files.before_operation = note
    assert under_way.finish()
    files.before_operation = None
    assert [what for what, later in pairwise([*done, ""]) if what != later] == [
        "remove", "fsync_directory",
        "rename cleaned", "fsync_directory", "rename cleaned", "fsync_directory",
        "remove", "fsync_directory",
        # Of each of the two, the index of aborted transactions comes last.
        "rename swap", "fsync_directory", "rename swap", "fsync_directory",
        "rename swap", "fsync_directory", "rename swap", "fsync_directory",
    ]  # fmt: skip


# --- readers ----------------------------------------------------------------------------------------------------------


def test_a_reader_finishes_the_slice_of_an_old_segment_and_no_handle_of_it_remains() -> None:
    files, _, log = filled()
    found = log.reader.locate(3, 10_000, 6)
    assert found is not None
    expected = log.reader.read_slice(found)
    held = log.reader.open_slice(found)
    merged = rewrite(log, range(9), [0])
    assert merged.finish()
    assert held.read() == expected
    handles = log._handles
    assert handles._retired == {held._file}
    held.close()
    assert not handles._retired
    assert not handles._pins
    assert all(files.exists(path) for path in handles._open)


def test_a_path_that_is_used_again_has_the_new_file_also_while_the_old_one_is_read() -> None:
    _, _, log = filled()
    found = log.reader.locate(0, 10_000, 3)
    assert found is not None
    old = log.reader.open_slice(found)
    expected = old.read()
    assert rewrite(log, range(9), [0]).finish()
    found = log.reader.locate(0, 100_000, 9)
    assert found is not None
    new = log.reader.open_slice(found)
    assert len(new.read()) > len(expected)
    new.close()
    assert old.read() == expected, "it is another file, which its reader still has"
    old.close()


def test_a_pinned_file_is_closed_when_the_last_one_lets_go_of_it_and_not_before() -> None:
    files = MemoryFileSystem()
    files.make_directories("data")
    handles = FileHandles(files)
    handles.create("data/a").write_at(0, b"old")
    first, second = handles.pin("data/a"), handles.pin("data/a")
    handles.create("data/b").write_at(0, b"new")
    handles.rename("data/b", "data/a")
    later = handles.pin("data/a")
    handles.unpin(first)
    assert second.read_at(0, 3) == b"old"
    assert later.read_at(0, 3) == handles.get("data/a").read_at(0, 3) == b"new"
    handles.unpin(second)
    assert not handles._retired
    handles.unpin(later)
    assert handles.get("data/a") is later


# --- what is left as it was -------------------------------------------------------------------------------------------


def cut(log: PartitionLog) -> None:
    log.truncate(7)


def cut_and_rolled(log: PartitionLog) -> None:
    """As many segments as before, and other ones."""
    log.truncate(4)
    for _ in range(5):
        append(log, batch(1, value=b"another"))
        if log.log_end_offset in (6, 9):
            log.roll(NOW_MS)
    append(log, batch(1))
    log.flush()


def removed(log: PartitionLog) -> None:
    log.delete_records(4)
    log.delete_old_segments(NOW_MS)


@pytest.mark.parametrize("change", [cut, cut_and_rolled, removed])
def test_a_rewrite_of_segments_that_have_changed_is_left(change: Callable[[PartitionLog], None]) -> None:
    files, _, log = filled()
    under_way = rewrite(log, range(9), [0])
    change(log)
    before, old_bases = all_batches(log), bases(log)
    assert not under_way.finish()
    assert (all_batches(log), bases(log), unfinished(files)) == (before, old_bases, [])


def test_what_was_appended_meanwhile_is_there() -> None:
    _, _, log = filled()
    under_way = rewrite(log, range(9), [0])
    append(log, batch(1, value=b"meanwhile"))
    before = all_batches(log)
    assert under_way.finish()
    assert all_batches(log) == before


@pytest.mark.parametrize("operation", ["write", "rename"])
def test_without_room_the_log_is_as_it_was(operation: str) -> None:
    files, _, log = filled()
    before = all_batches(log)
    under_way = rewrite(log, range(9), [0, 6])

    def refuse(at: str, path: str) -> None:
        if at.startswith(operation) and path.endswith(".cleaned") and "006" not in path:
            raise OutOfSpace(f"no space left for {path}")

    files.before_operation = refuse
    with pytest.raises(ApiError) as raised:
        under_way.finish()
    files.before_operation = None
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (all_batches(log), bases(log), unfinished(files)) == (before, [0, 3, 6, 9], [])
    assert rewrite(log, range(9), [0, 6]).finish()
    assert all_batches(log) == before


def test_a_rewrite_that_is_abandoned_leaves_nothing() -> None:
    files, _, log = filled()
    rewrite(log, range(9), [0, 6]).abandon()
    assert unfinished(files) == []
    assert bases(log) == [0, 3, 6, 9]


def test_only_closed_and_flushed_segments_are_rewritten_one_range_at_a_time() -> None:
    _, _, log = filled()
    log.roll(NOW_MS)
    append(log, batch(1))
    log.flush()
    append(log, batch(1))
    log.roll(NOW_MS)
    assert log.rewrites.end_offset == 10
    for wrong in (range(12), range(4, 9), range(3, 5), range(3, 3)):
        with pytest.raises(InvariantViolation):
            log.rewrites.begin(wrong, NOW_MS)
    log.rewrites.begin(range(3), NOW_MS)
    with pytest.raises(InvariantViolation):
        log.rewrites.begin(range(3, 6), NOW_MS)


@pytest.mark.parametrize(("bases_of_new", "what"), [([3], "begins where"), ([0, 0], "overlap"), ([], "begins where")])
def test_segments_that_do_not_fit_are_refused(bases_of_new: list[int], what: str) -> None:
    _, _, log = filled()
    under_way = log.rewrites.begin(range(9), NOW_MS)
    for base_offset in bases_of_new:
        under_way.add(base_offset)
    with pytest.raises(InvariantViolation):
        under_way.finish()
    assert bases(log) == [0, 3, 6, 9]


def test_snapshots_of_producers_at_which_no_segment_begins_go() -> None:
    files, directory, log = filled()
    assert rewrite(log, range(9), [0, 6]).finish()
    names = [name for name in files.list_directory(DIRECTORY) if name.endswith(".snapshot")]
    assert names == [f"{offset:020d}.snapshot" for offset in (6, 9)]
    directory.close(broker_epoch=1)
    log = log_in(open_directory(files, config=CONFIG), CONFIG)
    assert log.append_as_leader(produced(9, 2, 1), 0, NOW_MS).is_duplicate


# --- what Kafka leaves ------------------------------------------------------------------------------------------------


def stopped(suffixes: dict[int, str], removed: Iterable[int] = ()) -> MemoryFileSystem:
    """The files of a broker that was killed, with copies of the segments at 0 and 6 under other names.

    Kafka has no inventory.
    """
    files, _, log = filled()
    whole, replaced = deepcopy(files), log
    assert rewrite(replaced, range(9), [0, 6]).finish()
    for base_offset, suffix in suffixes.items():
        for kind in (".log", ".index", ".timeindex", ".txnindex"):
            if files.exists(path_of(base_offset, kind)):
                data = files.open_to_read(path_of(base_offset, kind))
                whole.end_process()
                copy = whole.open(path_of(base_offset, kind) + suffix, create=True)
                copy.write_at(0, data.read_at(0, data.size()))
    for base_offset in removed:
        for kind in (".log", ".index", ".timeindex"):
            whole.rename(path_of(base_offset, kind), path_of(base_offset, kind) + ".deleted")
    whole.end_process()
    whole.remove("data/kraftlog-inventory")
    return whole


@pytest.mark.parametrize(
    ("suffixes", "removed", "found"),
    [
        ({0: ".cleaned"}, (), [0, 3, 6, 9]),
        ({0: ".cleaned", 6: ".cleaned"}, (), [0, 3, 6, 9]),
        ({0: ".cleaned", 6: ".swap"}, (), [0, 3, 6, 9]),
        ({0: ".swap", 6: ".swap"}, (), [0, 6, 9]),
        ({0: ".swap", 6: ".swap"}, (0,), [0, 6, 9]),
        ({0: ".swap", 6: ".swap"}, (0, 3, 6), [0, 6, 9]),
    ],
)
def test_what_a_stopped_kafka_has_left_is_finished_or_undone(
    suffixes: dict[int, str], removed: Iterable[int], found: list[int]
) -> None:
    expected = all_batches(filled()[2])
    files = stopped(suffixes, removed)
    log = log_in(open_directory(files, config=CONFIG), CONFIG)
    assert bases(log) == found
    assert all_batches(log) == expected
    assert unfinished(files) == []


def test_a_new_segment_that_does_not_read_back_takes_the_partition_offline_and_nothing_goes() -> None:
    files = stopped({0: ".swap"})
    file = files.open(path_of(0) + ".swap")
    file.write_at(16, b"\7")
    files.end_process()
    names = files.list_directory(DIRECTORY)
    assert "its magic is 7" in open_directory(files, config=CONFIG).damaged[CLICKS]
    assert files.list_directory(DIRECTORY) == names
