"""What is durable when: flushes on the log's thread and on another one, markers, and failing syncs."""

from __future__ import annotations

import threading

import pytest

from kraftbase.errors import FlushFailed, InvariantViolation
from kraftbase.files.files import FileSystem
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Offset
from tests.raft.storage.builders import BIG, all_batches, batches_from, open_log, segment_paths


def test_a_flush_in_another_thread_covers_what_was_appended_before_it_started(files: FileSystem) -> None:
    log = open_log(files, BIG)
    log.append(batches_from(0, 2))
    pending = log.start_flush()
    log.append(batches_from(3, 2))
    thread = threading.Thread(target=pending.run)
    thread.start()
    log.append(batches_from(6, 2))
    thread.join()
    assert log.finish_flush(pending) == 3
    assert log.flush() == 9


def test_only_one_flush_is_under_way(files: FileSystem) -> None:
    log = open_log(files)
    log.append(batches_from(0, 2))
    pending = log.start_flush()
    with pytest.raises(InvariantViolation, match="one flush"):
        log.start_flush()
    pending.run()
    log.finish_flush(pending)
    with pytest.raises(InvariantViolation, match="in progress"):
        log.finish_flush(pending)


def test_a_flush_that_a_cut_overtakes_covers_only_what_was_left(files: FileSystem) -> None:
    log = open_log(files)
    batches = batches_from(0, 14)
    for batch in batches:
        log.append([batch])
    pending = log.start_flush()
    log.truncate(Offset(3))
    log.append(batches_from(3, 14, epoch=2))
    flushed_by_rolling = log.flushed_end_offset
    pending.run()
    assert log.finish_flush(pending) == flushed_by_rolling
    assert log.flush() == log.log_end_offset == 24
    assert all_batches(log) == batches[:2] + batches_from(3, 14, epoch=2)


def test_a_flush_that_a_new_segment_overtakes_takes_nothing_back(files: FileSystem) -> None:
    log = open_log(files)
    log.append(batches_from(0, 2))
    pending = log.start_flush()
    log.append(batches_from(3, 10))
    assert log.flushed_end_offset == 3
    log.append(batches_from(18, 1))
    assert log.flushed_end_offset == 18
    pending.run()
    assert log.finish_flush(pending) == 18


def test_what_is_flushed_survives_a_crash_and_what_is_not_may_go(memory_files: MemoryFileSystem) -> None:
    log = open_log(memory_files)
    log.append(batches_from(0, 2))
    log.flush()
    log.append(batches_from(3, 2))
    memory_files.crash()
    assert all_batches(open_log(memory_files)) == batches_from(0, 2)


def test_what_a_reopened_log_holds_is_durable(memory_files: MemoryFileSystem) -> None:
    log = open_log(memory_files)
    log.append(batches_from(0, 4))
    log = open_log(memory_files)  # as after kill -9: nothing is lost, but nothing was flushed
    assert log.flushed_end_offset == 6
    memory_files.crash()
    assert all_batches(open_log(memory_files)) == batches_from(0, 4)


def test_what_a_failed_flush_may_have_lost_is_written_again_on_opening(memory_files: MemoryFileSystem) -> None:
    log = open_log(memory_files, BIG)
    log.append(batches_from(0, 2))
    log.flush()
    log.append(batches_from(3, 2))
    writes: list[tuple[str, str]] = []
    memory_files.before_operation = lambda operation, path: writes.append((operation, path))
    assert open_log(memory_files, BIG).log_end_offset == 6
    assert writes[:2] == [("write_at", segment_paths(memory_files)[0]), ("fsync", segment_paths(memory_files)[0])]


def test_a_failing_flush_ends_everything_and_promises_nothing(memory_files: MemoryFileSystem) -> None:
    log = open_log(memory_files)
    log.append(batches_from(0, 2))
    memory_files.failing_syncs = set(segment_paths(memory_files))
    with pytest.raises(FlushFailed):
        log.flush()
    assert log.flushed_end_offset == 0


@pytest.mark.parametrize(
    "failing", ["data/log", "data/log/00000000000000000000.log", "data/log/00000000000000000006.log"]
)
def test_a_sync_that_fails_on_the_way_to_a_new_segment_ends_everything(
    memory_files: MemoryFileSystem, failing: str
) -> None:
    log = open_log(memory_files)
    log.append(batches_from(0, 4))
    memory_files.failing_syncs = {failing}
    with pytest.raises(FlushFailed):
        log.append(batches_from(6, 4))


def test_a_sync_that_fails_while_cutting_ends_everything(memory_files: MemoryFileSystem) -> None:
    log = open_log(memory_files)
    log.append(batches_from(0, 4))
    memory_files.failing_syncs = {"data/log/00000000000000000000.log"}
    with pytest.raises(FlushFailed):
        log.truncate(Offset(3))


def test_a_marker_is_written_once_after_a_flush_and_never_flushed(memory_files: MemoryFileSystem) -> None:
    log = open_log(memory_files)
    log.append(batches_from(0, 2))
    operations: list[str] = []
    memory_files.before_operation = lambda operation, path: operations.append(operation)
    log.write_marker()
    assert operations == [], "a frame records everything that is flushed yet"
    log.flush()
    log.write_marker()
    log.write_marker()
    assert operations == ["fdatasync", "write_at"]
    log.append(batches_from(3, 2))
    log.write_marker()
    assert operations == ["fdatasync", "write_at", "write_at"]
    assert all_batches(open_log(memory_files)) == batches_from(0, 4)[:2] + batches_from(3, 2)


def test_markers_do_not_get_in_the_way_of_reading_cutting_and_rolling(files: FileSystem) -> None:
    log = open_log(files)
    batches = batches_from(0, 14)
    for batch in batches:
        log.append([batch])
        log.flush()
        log.write_marker()
    assert all_batches(log) == batches
    log.truncate(batches[9].base_offset)
    log.write_marker()
    log.close()
    log = open_log(files)
    assert all_batches(log) == batches[:9]
    assert log.recovery.torn_bytes == 0


def test_a_segment_that_begins_with_a_marker_goes_on(files: FileSystem) -> None:
    log = open_log(files)
    log.append(batches_from(0, 3))
    log.reserve(400)
    assert len(segment_paths(files)) == 2
    log.write_marker()
    log.append(batches_from(4, 20))
    log.close()
    assert all_batches(open_log(files)) == batches_from(0, 3) + batches_from(4, 20)
