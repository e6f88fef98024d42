"""A log that starts above offset 0, where a snapshot ends (KIP-630; SN-14, SN-42 to SN-44)."""

from __future__ import annotations

import pytest

from raft.core.epochs import LOG_BEGINNING
from raft.core.errors import CorruptLog, ErrorCode, InvariantViolation, OutOfSpace, ProtocolError, StorageError
from raft.core.types import UNKNOWN_UNTIL_OFFSET, Batch, Epoch, Offset, OffsetAndEpoch
from raft.storage.checksum import crc32c
from raft.storage.files import FileSystem, read_whole, write_new_file
from raft.storage.frame import encode_frames
from raft.storage.log_start import (
    LOG_START_NAME,
    decode_log_start,
    encode_log_start,
    read_log_start,
    write_log_start,
)
from raft.storage.memory import MemoryFileSystem
from raft.storage.recovering import DAMAGED_SUFFIX, begin_anew, read_recovering
from raft.storage.segment import parse_segment_name, segment_name
from raft.storage.segmented_log import LogConfig, SegmentedLog
from tests.raft.storage.builders import (
    BIG,
    all_batches,
    batches_from,
    data_batch,
    flip,
    open_log,
    overwrite,
    segment_paths,
)

LOG = "data/log"
BATCHES = [data_batch(offset, epoch=1 + offset // 4) for offset in range(12)]
"""Offsets 0 to 3 are of epoch 1, 4 to 7 of epoch 2, 8 to 11 of epoch 3."""
END = Offset(12)
EPOCH = Epoch(7)
FOURS = LogConfig(segment_bytes=500, preallocate_bytes=512, reserve_bytes=0, tail_cache_bytes=1000)
"""Four of BATCHES fill a segment."""


def point(offset: int, epoch: int | None = None) -> OffsetAndEpoch:
    """A start in BATCHES, of the epoch before it unless told."""
    return OffsetAndEpoch(epoch=Epoch(1 + (offset - 1) // 4) if epoch is None else Epoch(epoch), offset=Offset(offset))


def opened(files: FileSystem, minimum_durable_offset: int = 0) -> SegmentedLog:
    return open_log(files, FOURS, minimum_durable_offset)


def filled(files: FileSystem, *, is_flushed: bool = True) -> SegmentedLog:
    """A log of BATCHES in several segments."""
    log = opened(files)
    for batch in BATCHES:
        log.append([batch])
    if is_flushed:
        log.flush()
        log.write_marker()
    assert bases(files) == [0, 4, 8]
    return log


def bases(files: FileSystem) -> list[int]:
    """The base offsets of the segments that there are."""
    found = (parse_segment_name(name) for name in files.list_directory(LOG))
    return [base for base in found if base is not None]


def contents(files: FileSystem) -> dict[str, bytes]:
    return {name: read_whole(files, f"{LOG}/{name}") for name in files.list_directory(LOG)}


def on_disk(start: OffsetAndEpoch | None = None) -> MemoryFileSystem:
    """A closed log of BATCHES, and, if told so, the start that was written down just before a crash."""
    files = MemoryFileSystem()
    filled(files).close()
    files.crash(kept_unsynced_bytes=10**9)
    if start is not None:
        write_log_start(files, LOG, start)
    return files


def accepting(files: FileSystem, minimum_durable_offset: int = 0) -> SegmentedLog:
    """The log opened by a replica that has others to fetch from."""
    return SegmentedLog.open(
        files,
        LOG,
        config=FOURS,
        minimum_durable_offset=Offset(minimum_durable_offset),
        accept_damage_in_epoch=EPOCH,
        may_create=False,
    )


def assert_empty_at(log: SegmentedLog, start: OffsetAndEpoch) -> None:
    assert log.start == start
    assert log.log_start_offset == log.log_end_offset == log.flushed_end_offset == start.offset
    assert log.epochs.entries() == []
    assert log.epochs.last_epoch == start.epoch
    assert log.size_bytes == 0
    assert all_batches(log) == []


def assert_holds(log: SegmentedLog, start: OffsetAndEpoch, held: list[Batch] = BATCHES) -> None:
    assert log.start == start
    assert all_batches(log) == [batch for batch in held if batch.base_offset >= start.offset]
    assert all(offset >= start.offset and epoch > start.epoch for epoch, offset in log.epochs.entries())


# --- the file -----------------------------------------------------------------------------------------------------


def test_the_file_says_what_it_was_told(files: FileSystem) -> None:
    files.make_directories(LOG)
    assert read_log_start(files, LOG) == LOG_BEGINNING
    for start in (point(3, 2), point(2**62, 2**31 - 1)):
        write_log_start(files, LOG, start)
        assert read_log_start(files, LOG) == start


def test_the_file_is_lines_of_text() -> None:
    lines = b"version=1\nstart.offset=41\nstart.epoch=7\n"
    assert encode_log_start(point(41, 7)) == lines + b"crc32c=%08x\n" % crc32c(lines)


def test_a_file_that_is_damaged_in_any_byte_stops_the_start_and_nothing_changes() -> None:
    files = on_disk(point(4))
    path = f"{LOG}/{LOG_START_NAME}"
    for position in range(len(read_whole(files, path))):
        flip(files, path, position)
        before = contents(files)
        with pytest.raises(StorageError, match=r"data/log/log-start is damaged.*Nothing was changed.*backup"):
            opened(files)
        assert contents(files) == before
        flip(files, path, position)
    assert opened(files).start == point(4)


def test_a_file_of_another_version_is_refused_by_name() -> None:
    lines = b"version=2\nstart.offset=41\nstart.epoch=7\n"
    with pytest.raises(StorageError, match="here has format version 2; this program knows version 1"):
        decode_log_start(lines + b"crc32c=%08x\n" % crc32c(lines), "here")


# --- moving the start up ------------------------------------------------------------------------------------------


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
            with pytest.raises(ProtocolError, match="log start offset 6") as caught:
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
        log.start_anew(point(20, 3))
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
    """The log may have gone on to further segments since the flush began."""
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


# --- beginning anew -----------------------------------------------------------------------------------------------

REPLACEMENTS = [point(13, 3), point(500, 9), point(500, 2), point(12, 4), point(8, 4), point(6, 4), point(3, 9)]
"""Past the log's end, or of a higher epoch than its last, in the middle of a segment or where one begins."""


@pytest.mark.parametrize("start", REPLACEMENTS)
def test_sn_14_a_snapshot_takes_the_logs_place(files: FileSystem, start: OffsetAndEpoch) -> None:
    log = filled(files)
    log.start_anew(start)
    assert bases(files) == [start.offset]
    for _ in range(2):
        assert_empty_at(log, start)
        log.close()
        log = opened(files)
    assert not log.recovery.has_begun_anew
    more = batches_from(start.offset, 9, epoch=9)
    for batch in more:
        log.append([batch])
    log.flush()
    log.write_marker()
    for _ in range(2):
        assert_holds(log, start, more)
        log.close()
        log = opened(files)


def test_a_log_begins_anew_more_than_once(files: FileSystem) -> None:
    log = filled(files)
    log.advance_start(point(6))
    log.start_anew(point(20, 3))
    log.append([data_batch(20, epoch=4), data_batch(21, epoch=4)])
    log.start_anew(point(21, 5))
    log.start_anew(point(30, 5))
    assert_empty_at(log, point(30, 5))
    assert_empty_at(opened(files), point(30, 5))


@pytest.mark.parametrize("start", [point(12, 3), point(11, 3), point(4, 1), point(6, 9), point(5, 9)])
def test_sn_14_a_snapshot_that_is_not_past_the_log_is_refused(files: FileSystem, start: OffsetAndEpoch) -> None:
    log = filled(files)
    log.advance_start(point(6))
    before = contents(files)
    with pytest.raises(InvariantViolation):
        log.start_anew(start)
    assert contents(files) == before
    assert_holds(log, point(6))


@pytest.mark.parametrize("start", [point(500, 3), point(3, 9)])
def test_a_flush_that_is_under_way_makes_nothing_durable_that_is_not_there(
    files: FileSystem, start: OffsetAndEpoch
) -> None:
    log = filled(files, is_flushed=False)
    pending = log.start_flush()
    log.start_anew(start)
    log.append([data_batch(start.offset, epoch=9)])
    pending.run()
    assert log.finish_flush(pending) == start.offset
    assert log.flush() == start.offset + 1
    assert_holds(opened(files), start, [data_batch(start.offset, epoch=9)])


# --- opening ------------------------------------------------------------------------------------------------------


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
    assert str(log.recovery).endswith("begun anew where a snapshot ends")
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
    for position in range(200):
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
    """Below the start, too: what is behind it was durable and is lost with it."""
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
    """A lost sector explains only what was not flushed, and what is below the start was."""
    files = MemoryFileSystem()
    log = open_log(files, BIG)
    batches = [data_batch(offset, size=600) for offset in range(4)]
    for batch in batches:
        log.append([batch])
    log.flush()
    log.advance_start(point(2, 1))
    files.crash(kept_unsynced_bytes=10**9)
    overwrite(files, segment_paths(files)[0], 512, bytes(512))
    with pytest.raises(CorruptLog, match="a valid frame follows behind the log's start 2"):
        open_log(files, BIG)


@pytest.mark.parametrize("start", [point(6, 1), point(2, 0)])
def test_a_start_that_belongs_to_another_log_is_refused(start: OffsetAndEpoch) -> None:
    files = on_disk(start)
    before = contents(files)
    with pytest.raises(StorageError, match=r"log-start says that .* not of one log\. Nothing was changed"):
        opened(files)
    assert contents(files) == before


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


# --- giving up what nothing below holds -----------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [4, 6, 12])
def test_a_log_without_its_snapshot_begins_at_0_and_recovers(files: FileSystem, offset: int) -> None:
    log = filled(files)
    log.advance_start(point(offset))
    log.close()
    begin_anew(files, LOG, epoch=EPOCH, reason="no snapshot")
    log = accepting(files)
    assert_empty_at(log, LOG_BEGINNING)
    assert log.recovering == (END, EPOCH, "no snapshot")
    log.append(BATCHES)
    log.flush()
    log.end_recovering()
    log.close()
    assert_holds(accepting(files), LOG_BEGINNING)
    assert files.list_directory(LOG) == [path.rpartition("/")[2] for path in segment_paths(files)]


def test_an_empty_log_that_begins_at_0_again_recovers_what_the_snapshot_had(files: FileSystem) -> None:
    log = filled(files)
    log.start_anew(point(500, 9))
    log.close()
    begin_anew(files, LOG, epoch=EPOCH, reason="no snapshot")
    recovering = read_recovering(files, LOG)
    assert recovering is not None
    assert recovering.until_offset == 500


def test_how_far_a_log_went_that_ends_below_its_start_is_not_known() -> None:
    files = on_disk(point(500, 9))
    begin_anew(files, LOG, epoch=EPOCH, reason="no snapshot")
    recovering = read_recovering(files, LOG)
    assert recovering is not None
    assert recovering.until_offset == UNKNOWN_UNTIL_OFFSET


def test_a_log_that_recovers_already_is_held_to_what_was_said_first(files: FileSystem) -> None:
    log = filled(files)
    log.advance_start(point(6))
    log.close()
    begin_anew(files, LOG, epoch=EPOCH, reason="first")
    log = accepting(files)
    log.start_anew(point(4, 2))
    log.close()
    begin_anew(files, LOG, epoch=Epoch(8), reason="again")
    assert read_recovering(files, LOG) == (END, EPOCH, "first")
    assert_empty_at(accepting(files), LOG_BEGINNING)


def test_what_is_left_under_the_temporary_name_means_nothing(files: FileSystem) -> None:
    filled(files).close()
    write_new_file(files, f"{LOG}/{LOG_START_NAME}.tmp", encode_log_start(point(8)))
    log = opened(files)
    assert_holds(log, LOG_BEGINNING)
    log.advance_start(point(4))
    assert_holds(opened(files), point(4))
