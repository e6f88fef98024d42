"""Opening a damaged log: a torn tail is cut and reported, damage to durable data is refused and not touched."""

from __future__ import annotations

from random import Random

import pytest

from kraftbase.checksum import crc32c
from kraftbase.errors import CorruptLog, StorageError
from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, Offset
from raft.storage.batch import encode_batch, encode_body
from raft.storage.frame import HEAD, HEAD_BYTES, MAGIC, encode_frames
from tests.effort import some
from tests.raft.storage.builders import (
    BIG,
    SMALL,
    all_batches,
    batches_from,
    data_batch,
    flip,
    open_log,
    overwrite,
    segment_paths,
)

BATCHES = batches_from(0, 8)
FIRST = "data/log/00000000000000000000.log"


def log_on_disk(flushed: int, *, with_marker: bool = False, unflushed: int = 0) -> MemoryFileSystem:
    """One segment: `flushed` batches, flushed one by one, then more in one append; as if all had reached the disk."""
    files = MemoryFileSystem()
    log = open_log(files, BIG)
    for batch in BATCHES[:flushed]:
        log.append([batch])
        log.flush()
    if with_marker:
        log.write_marker()
    log.append(BATCHES[flushed : flushed + unflushed])
    files.crash(kept_unsynced_bytes=10**9)
    return files


def frame_starts(count: int) -> list[int]:
    """Where the first frames of a segment of BATCHES without markers start, and where the last of them ends."""
    starts = [0]
    for batch in BATCHES[:count]:
        starts.append(starts[-1] + HEAD_BYTES + len(batch.data))
    return starts


def assert_refused(files: MemoryFileSystem, *words: str, minimum_durable_offset: int = 0) -> None:
    """Opening raises CorruptLog with these words, and changes no byte."""
    before = {path: read_whole(files, path) for path in segment_paths(files)}
    operations: list[str] = []
    files.before_operation = lambda operation, path: operations.append(operation)
    with pytest.raises(CorruptLog) as caught:
        open_log(files, BIG, minimum_durable_offset)
    files.before_operation = None
    for word in (*words, "Nothing of the log was changed"):
        assert word in str(caught.value)
    assert operations == []
    assert {path: read_whole(files, path) for path in segment_paths(files)} == before


@pytest.mark.parametrize("unflushed", [1, 2, 3])
def test_a_tail_torn_at_any_byte_is_cut_and_reported(unflushed: int) -> None:
    starts = frame_starts(4 + unflushed)
    for torn_at in some(range(starts[4], starts[-1] + 1)):
        files = log_on_disk(4, unflushed=unflushed)
        overwrite(files, FIRST, torn_at, bytes(starts[-1] - torn_at))
        log = open_log(files, BIG)
        whole = sum(start <= torn_at for start in starts[1:])
        torn_bytes = len(read_whole(log_on_disk(4, unflushed=unflushed), FIRST)[starts[whole] : torn_at].rstrip(b"\0"))
        assert all_batches(log) == BATCHES[:whole]
        assert log.recovery.torn_bytes == torn_bytes
        assert str(log.recovery).endswith(
            f"cut a torn tail of {torn_bytes} bytes at byte {starts[whole]} of {FIRST}" if torn_bytes else "intact"
        )
        log.append(BATCHES[whole:])
        log.close()
        assert all_batches(open_log(files, BIG)) == BATCHES


def test_a_torn_tail_is_cut_once_and_for_all() -> None:
    files = log_on_disk(4, unflushed=1)
    overwrite(files, FIRST, frame_starts(5)[-1] - 3, b"\0\0\0")
    assert open_log(files, BIG).recovery.torn_bytes > 0
    files.crash()
    assert open_log(files, BIG).recovery.torn_bytes == 0


def test_garbage_behind_the_end_is_a_torn_tail() -> None:
    files = log_on_disk(4)
    overwrite(files, FIRST, frame_starts(4)[-1] + 700, b"garbage")
    log = open_log(files, BIG)
    assert log.recovery.torn_bytes == 707
    assert all_batches(log) == BATCHES[:4]


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_flip_in_any_byte_that_a_marker_vouches_for_is_refused(mask: int) -> None:
    files = log_on_disk(3, with_marker=True)
    starts = frame_starts(3)
    for position in some(range(starts[-1])):
        flip(files, FIRST, position, mask)
        damaged = sum(start <= position for start in starts) - 1
        assert_refused(
            files, FIRST, f"damaged at byte {starts[damaged]}", f"offset {BATCHES[damaged].base_offset}", "below 4 were"
        )
        flip(files, FIRST, position, mask)
    assert all_batches(open_log(files, BIG)) == BATCHES[:3]


def test_a_last_frame_that_ends_in_a_zero_vouches_for_those_before_it() -> None:
    files = MemoryFileSystem()
    log = open_log(files, BIG)
    for batch in (data_batch(0), data_batch(1), data_batch(2)):
        log.append([batch])
        log.flush()
    log.append([encode_batch(Offset(3), Epoch(1), encode_body([b"ends in a zero\0"]), 1, 1)])
    files.crash(kept_unsynced_bytes=10**9)

    flip(files, FIRST, HEAD_BYTES + len(data_batch(0).data) + 5)
    assert_refused(files, "damaged at byte", "offset 1", "below 3 were durable")


def test_a_flip_in_a_marker_loses_nothing_but_the_marker() -> None:
    for position in some(range(frame_starts(3)[-1], frame_starts(3)[-1] + HEAD_BYTES)):
        files = log_on_disk(3, with_marker=True)
        flip(files, FIRST, position)
        log = open_log(files, BIG)
        assert all_batches(log) == BATCHES[:3]
        assert log.recovery.torn_bytes == HEAD_BYTES


def test_a_flip_in_a_flushed_batch_that_a_later_one_vouches_for_is_refused() -> None:
    for position in some(range(frame_starts(3)[-1])):
        files = log_on_disk(4)
        flip(files, FIRST, position)
        assert_refused(files, FIRST, "below 4 were durable")


def test_a_flip_in_an_unflushed_append_with_a_valid_frame_behind_is_refused() -> None:
    for position in some(range(frame_starts(2)[-1], frame_starts(3)[-1])):
        files = log_on_disk(2, unflushed=2)
        flip(files, FIRST, position)
        assert_refused(files, "a valid frame follows at byte")


def test_a_flip_in_the_last_batch_is_refused_if_the_caller_knows_that_it_was_durable() -> None:
    files = log_on_disk(4)
    flip(files, FIRST, frame_starts(4)[-1] - 1)
    assert_refused(files, "below 6 were durable", minimum_durable_offset=6)
    assert open_log(files, BIG, minimum_durable_offset=4).log_end_offset == 4


def test_a_log_that_ends_too_early_is_refused() -> None:
    files = log_on_disk(4)
    overwrite(files, FIRST, frame_starts(3)[-1], bytes(HEAD_BYTES + len(BATCHES[3].data)))
    assert open_log(files, BIG, minimum_durable_offset=4).log_end_offset == 4
    assert_refused(files, "below 5 were durable", minimum_durable_offset=5)


def test_a_stretch_that_was_never_written_is_a_torn_tail_though_valid_frames_follow() -> None:
    files = MemoryFileSystem()
    log = open_log(files, BIG)
    log.append(BATCHES[:4])
    log.flush()
    log.append(batches_from(6, 20))
    files.crash(kept_unsynced_bytes=10**9)
    end = frame_starts(4)[-1]
    sector_end = (end // 512 + 1) * 512
    overwrite(files, FIRST, end, bytes(sector_end - end))
    log = open_log(files, BIG)
    assert all_batches(log) == BATCHES[:4]
    assert log.recovery.torn_bytes > sector_end - end


def test_sectors_written_in_any_order_lose_nothing_flushed() -> None:
    for seed in some(range(150)):
        files = MemoryFileSystem()
        log = open_log(files, BIG)
        written = batches_from(0, 5, size=seed)
        log.append(written)
        log.flush()
        for _ in range(3):
            more = batches_from(log.log_end_offset, 6, size=seed * 3)
            log.append(more)
            written += more
        files.crash(random=Random(seed))
        log = open_log(files, BIG)
        assert log.log_end_offset >= written[4].end_offset
        assert all_batches(log) == [batch for batch in written if batch.end_offset <= log.log_end_offset]


def three_segments() -> MemoryFileSystem:
    files = MemoryFileSystem()
    log = open_log(files, SMALL)
    for batch in batches_from(0, 12):
        log.append([batch])
    log.flush()
    log.write_marker()
    files.crash(kept_unsynced_bytes=10**9)
    assert len(segment_paths(files)) == 3
    return files


@pytest.mark.parametrize("segment", [0, 1])
def test_a_flip_in_any_byte_of_an_earlier_segment_is_refused(segment: int) -> None:
    files = three_segments()
    path = segment_paths(files)[segment]
    for position in some(range(len(read_whole(files, path)))):
        flip(files, path, position)
        assert_refused(files, path, "the segment after it starts at offset")
        flip(files, path, position)


@pytest.mark.parametrize("segment", [0, 1])
def test_a_missing_segment_is_refused(segment: int) -> None:
    files = three_segments()
    files.remove(segment_paths(files)[segment])
    assert_refused(files, "00000000000000000000.log", "offset")


def test_a_missing_last_segment_is_refused_if_the_caller_knows_that_it_was_durable() -> None:
    files = three_segments()
    files.remove(segment_paths(files)[-1])
    assert_refused(files, "below 18 were durable", minimum_durable_offset=18)


def test_a_missing_log_is_refused_if_the_caller_knows_that_there_was_one() -> None:
    files = MemoryFileSystem()
    files.make_directories("data/log")
    assert_refused(files, "00000000000000000000.log is missing", minimum_durable_offset=1)


def test_a_segment_from_another_log_is_refused() -> None:
    files, others = three_segments(), MemoryFileSystem()
    log = open_log(others, SMALL)
    for batch in batches_from(0, 12, epoch=2):
        log.append([batch])
    path = segment_paths(files)[1]
    assert segment_paths(others)[1] == path
    overwrite(files, path, 0, read_whole(others, path)[: len(read_whole(files, path))])
    assert_refused(files, path, "damaged at byte 0")


def test_a_valid_frame_that_does_not_go_on_with_the_log_is_refused() -> None:
    files = log_on_disk(3)
    position = frame_starts(3)[-1]
    for batch, previous_crc, durable_before in (
        (data_batch(9), None, 0),
        (data_batch(4), 77, 0),
        (data_batch(4), None, 9),
    ):
        crc = int.from_bytes(read_whole(files, FIRST)[frame_starts(3)[-2] :][:4], "big")
        frame, _ = encode_frames([batch], position, previous_crc or crc, Offset(durable_before))
        overwrite(files, FIRST, position, frame)
        assert_refused(files, f"damaged at byte {position}")
        overwrite(files, FIRST, position, bytes(len(frame)))


def test_a_frame_of_an_unknown_version_is_refused_by_name() -> None:
    files = log_on_disk(3)
    position = frame_starts(3)[-1]
    covered = HEAD.pack(0, MAGIC, 9, 1, 0, HEAD_BYTES, position, 0, 0)[4:]
    overwrite(files, FIRST, position, crc32c(covered).to_bytes(4, "big") + covered)
    with pytest.raises(StorageError, match=f"{FIRST}: the frame at byte {position} has version 9"):
        open_log(files, BIG)


def test_damage_that_comes_while_the_log_is_open_is_noticed_when_read() -> None:
    for position in range(frame_starts(2)[1], frame_starts(2)[2]):
        files = log_on_disk(4)
        log = open_log(files, BIG)
        flip(files, FIRST, position)
        assert log.read_batches(Offset(0), 1) == (BATCHES[0],)
        with pytest.raises(CorruptLog, match=FIRST):
            all_batches(log)


def test_files_that_are_no_segments_are_left_alone(memory_files: MemoryFileSystem) -> None:
    """A segment's name is 20 digits and `.log`, nothing else (FM-01)."""
    memory_files.make_directories("data/log")
    for name in ("notes.log", "1.log", "00000000000000000000.log.tmp", "00000000000000000000"):
        memory_files.open(f"data/log/{name}", create=True).write_at(0, b"something")
    assert open_log(memory_files).log_end_offset == 0
    assert len(memory_files.list_directory("data/log")) == 5
