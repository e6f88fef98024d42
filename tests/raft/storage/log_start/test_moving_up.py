"""A log's start advances to the end of a snapshot (KIP-630; SN-42, SN-43, SN-54)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode, InvariantViolation, OutOfSpace
from kraftbase.files.files import FileSystem, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Offset
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import OffsetAndEpoch
from tests.raft.storage.builders import batches_from, data_batch, segment_paths
from tests.raft.storage.log_start.builders import (
    BATCHES,
    END,
    assert_empty_at,
    assert_holds,
    bases,
    contents,
    filled,
    opened,
    point,
)


@pytest.mark.parametrize("offset", range(1, END + 1))
def test_the_log_starts_at_any_batch_and_goes_on_from_there(files: FileSystem, offset: int) -> None:
    log = filled(files)
    log.advance_start(point(offset))
    for _ in range(2):
        assert_holds(log, point(offset))
        assert log.log_end_offset == log.flushed_end_offset == END
        log.close()
        log = opened(files)
    assert not log.recovery.has_begun_anew
    more = batches_from(END, 9, epoch=4)
    for batch in more:
        log.append([batch])
    log.flush()
    log.close()
    assert_holds(opened(files), point(offset), BATCHES + more)


@pytest.mark.parametrize(("offset", "left"), [(3, [0, 4, 8]), (4, [4, 8]), (7, [4, 8]), (8, [8]), (12, [8])])
def test_sn_42_whole_segments_below_go_and_the_one_that_holds_the_start_stays_whole(
    files: FileSystem, offset: int, left: list[int]
) -> None:
    log = filled(files)
    log.advance_start(point(offset))
    assert bases(files) == left
    held_bytes = sum(len(read_whole(files, path).rstrip(b"\0")) for path in segment_paths(files))
    assert log.size_bytes == held_bytes


def test_an_epoch_that_goes_on_behind_the_start_has_no_entry_of_its_own(files: FileSystem) -> None:
    log = filled(files)
    log.advance_start(point(6))
    for _ in range(2):
        assert log.epochs.entries() == [(3, 8)]
        assert log.epochs.epoch_before(Offset(6)) == 2
        log = opened(files)


def test_nothing_below_the_start_is_read(files: FileSystem) -> None:
    held = filled(files)
    held.advance_start(point(6))
    for log in (held, opened(files)):
        for offset in (0, 4, 5):  # 4 and 5 are in a segment that is still there
            with pytest.raises(ApiError, match="log start offset 6") as caught:
                log.read_batches(Offset(offset), 1000)
            assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.read_batches(Offset(6), 1) == (BATCHES[6],)


def test_the_start_moves_up_several_times_and_never_back(files: FileSystem) -> None:
    log = filled(files)
    for offset in (1, 1, 3, 9):
        log.advance_start(point(offset))
        assert_holds(log, point(offset))
    with pytest.raises(InvariantViolation):
        log.advance_start(point(8))
    assert_holds(log, point(9))


def test_the_same_start_again_writes_nothing() -> None:
    files = MemoryFileSystem()
    log = filled(files)
    log.advance_start(point(5))
    operations: list[str] = []
    files.before_operation = lambda operation, path: operations.append(operation)
    log.advance_start(point(5))
    open_at_zero = opened(MemoryFileSystem())
    open_at_zero.advance_start(LOG_BEGINNING)
    assert operations == []


def test_sn_43_the_start_is_never_above_what_is_flushed() -> None:
    files = MemoryFileSystem()
    log = filled(files, is_flushed=False)
    assert log.flushed_end_offset == 8
    with pytest.raises(InvariantViolation):
        log.advance_start(point(9))
    log.advance_start(point(8))
    files.crash()
    assert_empty_at(opened(files), point(8))


@pytest.mark.parametrize("start", [point(6, 1), point(6, 3), point(4, 2), point(13, 3)])
def test_a_start_that_is_not_of_this_log_is_refused(files: FileSystem, start: OffsetAndEpoch) -> None:
    log = filled(files)
    before = contents(files)
    with pytest.raises(InvariantViolation):
        log.advance_start(start)
    assert contents(files) == before
    assert_holds(log, LOG_BEGINNING)


def test_a_start_within_a_batch_is_refused_and_is_boundary_says_so(files: FileSystem) -> None:
    log = opened(files)
    log.append([data_batch(0, record_count=3), data_batch(3, record_count=2)])
    log.flush()
    log.write_marker()
    with pytest.raises(InvariantViolation):
        log.advance_start(point(2, 1))
    log.advance_start(point(3, 1))
    assert [log.is_boundary(Offset(offset)) for offset in range(7)] == [False] * 3 + [True, False, True, False]


def test_without_room_for_the_file_the_start_stays() -> None:
    files = MemoryFileSystem()
    log = filled(files)
    files.space_limit = files.used_bytes()
    with pytest.raises(OutOfSpace):
        log.advance_start(point(6))
    with pytest.raises(OutOfSpace):
        log.truncate_fully_and_start_at(point(20, 3))
    files.space_limit = None
    assert_holds(log, LOG_BEGINNING)
    assert_holds(opened(files), LOG_BEGINNING)


@pytest.mark.parametrize("offset", [6, 8, 12])
def test_a_log_is_cut_at_its_start_and_never_below(files: FileSystem, offset: int) -> None:
    log = filled(files)
    log.advance_start(point(offset))
    with pytest.raises(InvariantViolation):
        log.truncate(Offset(offset - 1))
    log.truncate(Offset(offset))
    assert log.epochs.entries() == []
    assert log.epochs.last_epoch == point(offset).epoch
    more = data_batch(offset, epoch=5)
    log.append([more])
    log.flush()
    assert_holds(opened(files), point(offset), [more])


def test_a_flush_that_is_under_way_keeps_the_file_of_a_segment_that_goes(files: FileSystem) -> None:
    """The log may have rolled to new segments since the flush began."""
    log = opened(files)
    log.append(BATCHES[:2])
    pending = log.start_flush()
    for batch in BATCHES[2:]:
        log.append([batch])
    log.advance_start(point(8))
    assert bases(files) == [8]
    pending.run()
    assert log.finish_flush(pending) == 8
    log.flush()
    assert_holds(opened(files), point(8))
