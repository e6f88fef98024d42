"""A log that starts above offset 0 is opened after a crash, or with damage (SN-14, SN-44)."""

from __future__ import annotations

import pytest

from kraftbase.errors import CorruptLog, StorageError
from kraftbase.files.files import read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Offset
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import UNKNOWN_UNTIL_OFFSET, OffsetAndEpoch
from raft.storage.frame import encode_frames
from raft.storage.log_start_file import write_log_start
from raft.storage.recovering_file import DAMAGED_SUFFIX
from raft.storage.segment import segment_name
from tests.effort import some
from tests.raft.storage.builders import BIG, LOG, all_batches, data_batch, flip, open_log, overwrite, segment_paths
from tests.raft.storage.log_start.builders import (
    BATCHES,
    END,
    REPLACEMENTS,
    accepting,
    assert_empty_at,
    assert_holds,
    bases,
    contents,
    on_disk,
    opened,
    point,
)


@pytest.mark.parametrize("offset", range(1, END + 1))
def test_segments_that_a_crash_left_below_the_start_go_unread(offset: int) -> None:
    files = on_disk(point(offset))
    for path in segment_paths(files)[: (min(offset, END - 1)) // 4]:
        files.failing_reads.add(path)
    log = opened(files)
    assert_holds(log, point(offset))
    assert bases(files) == [base for base in (0, 4, 8) if base + 4 > offset or base == 8]
    assert str(log.recovery).endswith(f"offsets {offset} to 12, intact")


@pytest.mark.parametrize("start", REPLACEMENTS)
@pytest.mark.parametrize("left", [3, 2, 1, 0])
def test_sn_44_a_beginning_anew_that_a_crash_cut_short_is_finished(start: OffsetAndEpoch, left: int) -> None:
    files = on_disk(start)
    for path in segment_paths(files)[left:]:
        files.remove(path)
    log = opened(files, start.offset)
    assert_empty_at(log, start)
    assert bases(files) == [start.offset]
    assert log.recovery.has_begun_anew
    assert str(log.recovery).endswith("started over where a snapshot ends")
    log.close()
    assert not opened(files).recovery.has_begun_anew


@pytest.mark.parametrize("has_segments", [True, False])
def test_a_log_does_not_begin_anew_below_what_was_durable(has_segments: bool) -> None:
    files = on_disk(point(500, 9))
    for path in [] if has_segments else segment_paths(files):
        files.remove(path)
    before = contents(files)
    with pytest.raises(CorruptLog, match="offsets below 501 were durable"):
        opened(files, 501)
    assert contents(files) == before
    log = accepting(files, minimum_durable_offset=501)
    assert_empty_at(log, point(500, 9))
    assert log.recovering is not None
    assert log.recovering.until_offset == UNKNOWN_UNTIL_OFFSET
    log.close()
    assert accepting(files).recovering == log.recovering


def test_a_replaced_log_of_lower_epochs_does_not_begin_anew_below_what_was_durable() -> None:
    files = on_disk(point(6, 9))
    with pytest.raises(CorruptLog, match="offsets below 7 were durable"):
        opened(files, 7)
    log = accepting(files, minimum_durable_offset=7)
    assert_empty_at(log, point(6, 9))
    assert log.recovering is not None


def test_a_damaged_log_is_replaced_all_the_same_if_nothing_of_it_is_needed() -> None:
    for position in some(range(200), part=3):
        files = on_disk(point(500, 9))
        flip(files, segment_paths(files)[-1], position)
        assert_empty_at(opened(files), point(500, 9))


def test_a_replaced_log_of_lower_epochs_is_known_by_what_is_behind_damage() -> None:
    files = on_disk(point(9, 9))
    flip(files, segment_paths(files)[-1], 50)
    assert_empty_at(opened(files), point(9, 9))


def test_a_log_that_starts_below_its_first_segment_is_damaged() -> None:
    files = on_disk(point(3))
    files.remove(segment_paths(files)[0])
    with pytest.raises(CorruptLog, match=r"no segment in data/log has offset 3.*below 4 were durable"):
        opened(files)
    log = accepting(files)
    assert_empty_at(log, point(3))
    assert log.recovering is not None
    assert log.recovering.until_offset == END
    assert len([name for name in files.list_directory(LOG) if name.endswith(DAMAGED_SUFFIX)]) == 2


@pytest.mark.parametrize("offset", [5, 6, 7, 9, 10, 11])
def test_damage_anywhere_from_the_start_segment_on_is_found_and_recovered_from(offset: int) -> None:
    """Below the start, too: the data behind the damage was durable and is lost with it."""
    segment = offset // 4 - 1
    whole = on_disk(point(offset))
    opened(whole).close()
    size = len(read_whole(whole, segment_paths(whole)[0]).rstrip(b"\0"))
    for position in range(0, size - 1, 5):
        files = on_disk(point(offset))
        path = segment_paths(files)[segment + 1]
        flip(files, path, position)
        if segment == 1 and position >= size - 32:
            continue  # the last marker
        before = contents(files)
        with pytest.raises(CorruptLog):
            opened(files)
        assert contents(files) == before
        log = accepting(files)
        assert log.log_start_offset == offset
        held = all_batches(log)
        assert held == BATCHES[offset : offset + len(held)]
        assert log.recovering is not None
        assert log.recovering.until_offset in (END, UNKNOWN_UNTIL_OFFSET)
        log.close()
        log = accepting(files)
        assert all_batches(log) == held
        log.append(BATCHES[log.log_end_offset :])
        log.flush()
        log.end_recovering()
        assert_holds(accepting(files), point(offset))


def test_damage_below_the_start_with_records_behind_it_that_nothing_vouches_for_is_damage() -> None:
    """A lost sector explains only missing unflushed data, and data below the start was flushed."""
    files = MemoryFileSystem()
    log = open_log(files, BIG)
    batches = [data_batch(offset, size=600) for offset in range(4)]
    for batch in batches:
        log.append([batch])
    log.flush()
    log.advance_start(point(2, 1))
    files.crash(kept_unsynced_bytes=10**9)
    overwrite(files, segment_paths(files)[0], 512, bytes(512))
    with pytest.raises(CorruptLog, match="a valid frame with records above the log's start 2 follows"):
        open_log(files, BIG)


@pytest.mark.parametrize("start", [point(6, 1), point(2, 0)])
def test_a_start_that_belongs_to_another_log_is_refused(start: OffsetAndEpoch) -> None:
    files = on_disk(start)
    before = contents(files)
    with pytest.raises(StorageError, match=r"log-start has offset .* not of one log\. Nothing of the log was changed"):
        opened(files)
    assert contents(files) == before
    log = accepting(files)
    assert_empty_at(log, LOG_BEGINNING)
    assert log.recovering is not None, "with other voters to fetch from it recovers"


def test_sn14_a_log_that_ends_at_the_start_in_a_higher_epoch_is_replaced() -> None:
    files = on_disk(point(12, 2))
    log = opened(files)
    assert log.recovery.has_begun_anew
    assert (log.start, log.log_end_offset, log.end) == (point(12, 2), 12, point(12, 2))
    log.close()


def test_the_frame_before_the_first_one_is_not_asked_for_but_those_behind_are() -> None:
    files = on_disk(point(4))
    opened(files).close()
    assert bases(files) == [4, 8]
    others = MemoryFileSystem()
    log = opened(others)
    for offset in range(12):
        log.append([data_batch(offset, epoch=1 + offset // 4, size=19 if offset < 10 else 20)])
    path = segment_paths(files)[1]
    overwrite(files, path, 0, read_whole(others, f"{LOG}/{path.rpartition('/')[2]}")[:200])
    with pytest.raises(CorruptLog, match="damaged at byte 0"):
        opened(files)


def test_the_first_segment_at_offset_0_still_has_no_frame_before() -> None:
    for base_offset, is_sound in ((0, False), (4, True)):
        files = MemoryFileSystem()
        files.make_directories(LOG)
        frames, _ = encode_frames(BATCHES[base_offset:], 0, 77, Offset(0))
        write_new_file(files, f"{LOG}/{segment_name(Offset(base_offset))}", frames)
        write_log_start(files, LOG, point(5))
        if is_sound:
            assert_holds(opened(files), point(5))
            continue
        with pytest.raises(CorruptLog, match="damaged at byte 0"):
            opened(files)
