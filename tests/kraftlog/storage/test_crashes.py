"""Crashes that the model of hypothesis found, each as a case of its own: what was unsynced is lost, kept, or mixed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from kraftbase.errors import ApiError
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import run_at_once
from tests.effort import all_cases, some
from tests.kraftlog.storage.agreement import check_agreement
from tests.kraftlog.storage.builders import CLICKS, NOW_MS, all_batches, append, batch, log_in, open_directory

LOG = "data/clicks-0/00000000000000000000.log"
OPERATIONS_MAX = 200
"""A deed ends after fewer operations on files."""


class Killed(BaseException):
    """The process ends here."""


def kill_before(files: MemoryFileSystem, operation: str, path: str, deed: Callable[[], object]) -> None:
    """Do something, in a process that is killed before an operation on a path."""

    def stop(at: str, on: str) -> None:
        if (at, on) == (operation, path):
            raise Killed

    files.before_operation = stop
    with pytest.raises(Killed):
        deed()
    files.before_operation = None
    files.end_process()


def kill_after(files: MemoryFileSystem, operations: int, deed: Callable[[], object], *, loses_power: bool) -> bool:
    """Do something, in a process that is killed after some operations, if it comes to that, or loses its power.

    Returns whether it came to that.
    """
    left = operations

    def stop(_: str, __: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    files.before_operation = stop
    try:
        deed()
        was_killed = False
    except Killed:
        was_killed = True
    files.before_operation = None
    if loses_power:
        files.crash()
    else:
        files.end_process()
    return was_killed


def flushed(
    count: int, config: PartitionLogConfig | None = None
) -> tuple[MemoryFileSystem, LogDirectory, PartitionLog]:
    """A log of batches of one record, flushed, with that in the checkpoint."""
    files = MemoryFileSystem()
    directory = open_directory(files, config=config)
    log = log_in(directory, config)
    for _ in range(count):
        append(log, batch(1))
    log.flush()
    run_at_once(directory.checkpoint())
    return files, directory, log


def test_an_epoch_that_was_cut_off_and_began_again_earlier_begins_there_after_a_kill() -> None:
    files, _, log = flushed(5)
    append(log, batch(1), epoch=2)
    log.flush()
    log.truncate(3)
    append(log, batch(1), epoch=2)
    files.end_process()
    assert log_in(open_directory(files)).epochs.entries() == ((0, 0), (2, 3))


def test_a_batch_that_a_killed_process_had_cut_off_does_not_come_back_under_the_offset_of_another() -> None:
    files, _, log = flushed(3)
    first = all_batches(log)[:2]
    kill_before(files, "fsync", LOG, lambda: log.truncate(2))
    log = log_in(open_directory(files))
    assert append(log, batch(1, value=b"another")) == 2
    files.crash()
    assert all_batches(log_in(open_directory(files))) == first


def test_a_segment_that_a_killed_process_had_deleted_does_not_come_back() -> None:
    files, _, log = flushed(2)
    log.roll(NOW_MS)
    append(log, batch(1))
    log.flush()
    log.advance_high_watermark(3)
    log.delete_records(2)
    kill_before(files, "fsync_directory", "data/clicks-0", lambda: log.delete_old_segments(NOW_MS))
    log = log_in(open_directory(files))
    files.crash()
    assert log_in(open_directory(files))._segments.first.base_offset == log._segments.first.base_offset


@pytest.mark.parametrize("what", ["truncate", "truncate_fully_and_start_at"])
@pytest.mark.parametrize("loses_power", [False, True])
def test_a_log_that_is_emptied_does_not_begin_below_its_start_after_a_kill(what: str, loses_power: bool) -> None:
    """Only the first segment's name says where retention has moved the start to, and for a while there is none."""
    config = PartitionLogConfig(retention_ms=1)
    for operations in range(OPERATIONS_MAX):
        files, _, log = flushed(2, config)
        log.advance_high_watermark(2)
        log.delete_old_segments(NOW_MS + 2)
        append(log, batch(1))
        was_killed = kill_after(files, operations, partial(getattr(log, what), 2), loses_power=loses_power)
        log = log_in(open_directory(files, config=config), config)
        assert log.log_start_offset == 2, operations
        assert append(log, batch(1)) >= 2, operations
        if not was_killed:
            return
    raise AssertionError(f"{what} takes more operations")


@pytest.mark.parametrize(
    ("has_old_segments", "cut", "loses_power"),
    [
        (has_old_segments, cut, loses_power)
        for has_old_segments in (True, False)
        for cut in range(8)
        for loses_power in (False, True)
        if all_cases() or (cut // 2 + has_old_segments + loses_power) % 2 == 0
    ],
)
def test_a_log_that_is_killed_while_it_is_cut_below_its_start_does_not_begin_behind_the_cut(
    has_old_segments: bool, cut: int, loses_power: bool
) -> None:
    """Else it would fetch from its old start on, from a leader that has appended meanwhile, and lack what is below."""
    for operations in range(OPERATIONS_MAX):
        files, _, log = flushed(0)
        for _ in range(5):
            append(log, batch(2))
            log.roll(NOW_MS)
        log.flush()
        log.advance_high_watermark(10)
        log.delete_records(9)
        if not has_old_segments:
            log.delete_old_segments(NOW_MS)
        was_killed = kill_after(files, operations, partial(log.truncate, cut), loses_power=loses_power)
        found = log_in(open_directory(files))
        assert found.log_start_offset <= cut or found.log_end_offset == 10, operations
        if not was_killed:
            return
    raise AssertionError("the cut takes more operations")


def test_what_was_written_of_a_refused_append_is_not_mixed_with_the_next_ones() -> None:
    for seed in some(range(500)):
        files, _, log = flushed(1)
        files.space_limit = files.used_bytes() + 2_000
        with pytest.raises(ApiError, match="no space left"):
            append(log, batch(1, value=b"x" * 5_000))
        files.space_limit = None
        append(log, batch(1, value=b"y" * 700))
        append(log, batch(1, value=b"z" * 300))
        files.crash(random=Random(seed))
        directory = open_directory(files)
        assert directory.damaged == {}, "a torn tail is no damage"
        assert directory.logs[CLICKS].log_end_offset >= 1


def test_what_is_acknowledged_in_a_new_segment_is_there_with_the_name_of_the_segment() -> None:
    files, _, log = flushed(2)
    log.roll(NOW_MS)
    append(log, batch(1))
    log.flush()
    files.crash()
    assert log_in(open_directory(files)).log_end_offset == 3


def test_a_flush_covers_the_segments_that_were_closed_since_the_last_one() -> None:
    files, _, log = flushed(2)
    for _ in range(3):
        append(log, batch(1))
        log.roll(NOW_MS)
    log.flush()
    files.crash()
    assert log_in(open_directory(files)).log_end_offset == 5


@pytest.mark.parametrize("seed", some(range(60)))
def test_the_indexes_of_a_segment_whose_batches_were_all_flushed_are_durable_when_there_is_a_next_one(
    seed: int,
) -> None:
    config = PartitionLogConfig(index_interval_bytes=0)
    files, _, log = flushed(250, config)
    log.roll(NOW_MS)
    files.crash(random=Random(seed))
    log = log_in(open_directory(files, config=config))
    log.advance_high_watermark(log.log_end_offset)
    assert log.log_end_offset == 250
    check_agreement(log)


def test_db89_retention_of_what_was_not_flushed_leaves_no_damage() -> None:
    """The inventory must not have the segment at which the log begins then, before its name is durable."""
    for operations in range(OPERATIONS_MAX):
        files, config = MemoryFileSystem(), PartitionLogConfig(segment_bytes=100, retention_bytes=200)
        log = log_in(open_directory(files, config=config), config)
        for _ in range(6):
            append(log, batch(1))
        log.advance_high_watermark(6)
        was_killed = kill_after(files, operations, partial(log.delete_old_segments, NOW_MS), loses_power=True)
        directory = open_directory(files, config=config)
        assert not directory.damaged, operations
        assert log_in(directory, config).log_start_offset in (0, 3, 4), operations
        if not was_killed:
            return
    raise AssertionError("retention takes more operations")


def test_db89_a_start_that_is_killed_while_it_begins_anew_leaves_no_damage() -> None:
    """Of a log that was deleted up to an offset that was not flushed, power took what was below."""
    for operations in range(OPERATIONS_MAX):
        files = MemoryFileSystem()
        directory = open_directory(files)
        log = log_in(directory)
        append(log, batch(5))
        log.flush()
        run_at_once(directory.checkpoint())
        append(log, batch(5))
        log.advance_high_watermark(10)
        log.delete_records(10)
        files.crash()
        was_killed = kill_after(files, operations, partial(open_directory, files), loses_power=False)
        directory = open_directory(files)
        assert not directory.damaged, operations
        assert log_in(directory).log_start_offset == 10, operations
        if not was_killed:
            return
    raise AssertionError("the start takes more operations")
