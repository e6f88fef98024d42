"""Appending, reading, cutting and reopening a log, over every file system."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ConfigurationError, ErrorCode, InvariantViolation
from kraftbase.files.files import FileSystem
from kraftbase.types import Offset
from raft.storage.batch import decode_batches
from raft.storage.segmented_log import LogConfig
from tests.raft.storage.builders import BIG, SMALL, all_batches, batches_from, data_batch, open_log, segment_paths


def test_a_new_log_is_empty(files: FileSystem) -> None:
    log = open_log(files)
    assert (log.log_start_offset, log.log_end_offset, log.flushed_end_offset) == (0, 0, 0)
    assert log.read(Offset(0), 100) == b""
    assert log.epochs.entries() == []
    assert log.flush() == 0
    assert str(log.recovery) == "log of 1 segments and 0 batches, offsets 0 to 0, intact"


def test_what_is_appended_is_read_at_once_and_counts_as_flushed_after_a_flush(files: FileSystem) -> None:
    log = open_log(files)
    log.append(batches_from(0, 3))
    assert all_batches(log) == batches_from(0, 3)
    assert (log.log_end_offset, log.flushed_end_offset) == (4, 0)
    assert log.flush() == 4
    assert log.flushed_end_offset == 4


def test_appends_go_on_over_many_segments_and_survive_reopening(files: FileSystem) -> None:
    log = open_log(files)
    batches = batches_from(0, 20)
    for batch in batches:
        log.append([batch])
    log.flush()
    assert len(segment_paths(files)) >= 4
    assert all_batches(log) == batches
    log.close()
    log = open_log(files)
    assert all_batches(log) == batches
    assert (log.log_end_offset, log.flushed_end_offset) == (30, 30)
    assert log.recovery.batch_count == 20
    assert log.recovery.torn_bytes == 0


def test_one_append_goes_into_one_segment_however_long_it_is(files: FileSystem) -> None:
    log = open_log(files)
    log.append(batches_from(0, 40))
    assert len(segment_paths(files)) == 1
    log.append(batches_from(60, 1))
    assert segment_paths(files)[-1] == "data/log/00000000000000000060.log"


def test_appending_nothing_changes_nothing(files: FileSystem) -> None:
    log = open_log(files)
    log.append([])
    assert log.log_end_offset == 0


def test_an_append_that_does_not_go_on_with_the_log_is_a_violation_and_changes_nothing(files: FileSystem) -> None:
    log = open_log(files)
    log.append(batches_from(0, 2, epoch=2))
    for wrong in (
        [data_batch(2, 2)],
        [data_batch(4, 2)],
        [data_batch(3, 1)],
        [data_batch(3, 3), data_batch(5, 3)],
        [data_batch(3, 3), data_batch(4, 2)],
    ):
        with pytest.raises(InvariantViolation, match="starts at the log end"):
            log.append(wrong)
    assert all_batches(log) == batches_from(0, 2, epoch=2)
    assert log.epochs.entries() == [(2, 0)]


def test_the_epoch_cache_follows_appends_cuts_and_reopening(files: FileSystem) -> None:
    log = open_log(files)
    log.append(batches_from(0, 4, epoch=1))
    log.append(batches_from(6, 4, epoch=3) + batches_from(12, 2, epoch=7))
    assert log.epochs.entries() == [(1, 0), (3, 6), (7, 12)]
    log.truncate(Offset(12))
    assert log.epochs.entries() == [(1, 0), (3, 6)]
    log.close()
    assert open_log(files).epochs.entries() == [(1, 0), (3, 6)]


@pytest.mark.parametrize("config", [SMALL, BIG])
def test_a_read_starts_with_the_batch_that_holds_the_offset(files: FileSystem, config: LogConfig) -> None:
    log = open_log(files, config)
    batches = batches_from(0, 30)
    for batch in batches:
        log.append([batch])
    for batch in batches:
        for offset in range(batch.base_offset, batch.end_offset):
            assert log.read_batches(Offset(offset), 1) == (batch,)
            assert log.read(Offset(offset), 1) == batch.data


@pytest.mark.parametrize("config", [SMALL, BIG])
def test_a_read_gives_at_most_max_bytes_but_at_least_one_batch(files: FileSystem, config: LogConfig) -> None:
    log = open_log(files, config)
    batches = batches_from(0, 30)
    log.append(batches)
    lengths = [len(batch.data) for batch in batches]
    assert log.read_batches(Offset(0), sum(lengths[:3])) == tuple(batches[:3])
    assert log.read_batches(Offset(0), sum(lengths[:3]) - 1) == tuple(batches[:2])
    assert log.read_batches(Offset(0), 0) == tuple(batches[:1])
    assert decode_batches(log.read(Offset(0), 10_000)) == tuple(batches)


@pytest.mark.parametrize("config", [SMALL, BIG])
def test_a_read_stops_at_the_end_offset(files: FileSystem, config: LogConfig) -> None:
    log = open_log(files, config)
    batches = batches_from(0, 6)
    log.append(batches)
    assert log.read_batches(Offset(0), 10_000, Offset(3)) == tuple(batches[:2])
    assert log.read_batches(Offset(2), 10_000, Offset(3)) == (batches[1],)
    assert log.read_batches(Offset(3), 10_000, Offset(3)) == ()
    assert log.read_batches(Offset(4), 10_000, Offset(3)) == ()
    assert log.read_batches(Offset(0), 10_000, Offset(99)) == tuple(batches)
    assert log.read_batches(Offset(0), 10_000, Offset(0)) == ()


def test_a_read_outside_the_log_is_out_of_range(files: FileSystem) -> None:
    log = open_log(files)
    log.append(batches_from(0, 2))
    assert log.read_batches(Offset(3), 100) == ()
    for offset in (-1, 4):
        with pytest.raises(ApiError, match=f"offset {offset} is not between") as caught:
            log.read(Offset(offset), 100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_longer_than_the_read_and_the_cache_comes_whole(files: FileSystem) -> None:
    log = open_log(files)
    batches = [data_batch(0), data_batch(1, size=100_000), data_batch(2)]
    for batch in batches:
        log.append([batch])
    assert log.read_batches(Offset(1), 10) == (batches[1],)
    assert all_batches(log) == batches


def test_a_log_can_be_cut_at_every_batch_and_go_on(files: FileSystem) -> None:
    batches = batches_from(0, 14)
    for kept in range(len(batches) + 1):
        log = open_log(files)
        log.truncate(log.log_start_offset)
        for batch in batches:
            log.append([batch])
        log.flush()
        log.write_marker()
        end_offset = batches[kept].base_offset if kept < len(batches) else batches[-1].end_offset
        log.truncate(end_offset)
        assert (log.log_end_offset, log.flushed_end_offset) == (end_offset, end_offset)
        assert all_batches(log) == batches[:kept]
        other = batches_from(end_offset, 3, epoch=5)
        log.append(other)
        assert all_batches(log) == batches[:kept] + other
        log.close()
        log = open_log(files)
        assert all_batches(log) == batches[:kept] + other
        log.close()


def test_a_cut_within_a_batch_or_outside_the_log_is_a_violation_and_changes_nothing(files: FileSystem) -> None:
    log = open_log(files)
    batches = batches_from(0, 14)
    for batch in batches:
        log.append([batch])
    paths = segment_paths(files)
    for offset in (2, 5, 22, -1):
        with pytest.raises(InvariantViolation):
            log.truncate(Offset(offset))
    assert segment_paths(files) == paths
    assert all_batches(log) == batches


def test_a_log_without_a_cache_reads_from_its_files(files: FileSystem) -> None:
    log = open_log(files, LogConfig(tail_cache_bytes=0))
    batches = batches_from(0, 200, size=200)
    log.append(batches)
    assert all_batches(log) == batches
    assert log.read_batches(batches[150].base_offset, 100_000) == tuple(batches[150:])


def test_what_is_cut_and_replaced_is_found_where_it_is_now(files: FileSystem) -> None:
    log = open_log(files, LogConfig(tail_cache_bytes=0))
    log.append(batches_from(0, 40, size=900))
    log.truncate(Offset(15))
    batches = batches_from(0, 10, size=900) + batches_from(15, 200, epoch=2, size=300)
    log.append(batches[10:])
    for batch in batches:
        assert log.read_batches(batch.base_offset, 1) == (batch,)


def test_reserved_room_is_given_back_on_closing(files: FileSystem) -> None:
    log = open_log(files, BIG)
    log.append(batches_from(0, 2))
    log.flush()
    (path,) = segment_paths(files)
    assert files.open(path).size() == BIG.preallocate_bytes
    log.close()
    assert files.open(path).size() < 300


@pytest.mark.parametrize(
    ("name", "value"),
    [("segment_bytes", 0), ("segment_bytes", 2**32), ("preallocate_bytes", 0), ("reserve_bytes", -1),
     ("tail_cache_bytes", -1)],
)  # fmt: skip
def test_sizes_out_of_range_are_refused(name: str, value: int) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is {value}"):
        LogConfig(**{name: value})
