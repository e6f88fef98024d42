"""A full disk: appends are refused before they are accepted, none is half-written, and it works again with room."""

from __future__ import annotations

from random import Random

import pytest

from kraftbase.errors import OutOfSpace
from kraftbase.files.files import FileSystem
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Offset
from raft.storage.segmented_log import LogConfig, SegmentedLog
from tests.raft.storage.builders import (
    all_batches,
    batches_from,
    data_batch,
    no_more_room,
    open_log,
    room_for,
    segment_paths,
)

CONFIG = LogConfig(segment_bytes=4000, preallocate_bytes=1024, reserve_bytes=512, tail_cache_bytes=300)


def fill(log: SegmentedLog, files: MemoryFileSystem, space_limit: int) -> None:
    """Append, as a node does, until a reservation is refused."""
    files.space_limit = space_limit
    for _ in range(1000):
        batch = data_batch(log.log_end_offset)
        try:
            log.reserve(len(batch.data))
        except OutOfSpace:
            return
        log.append([batch])
    raise AssertionError("the disk never got full")


@pytest.mark.parametrize("space_limit", range(1600, 12_000, 333))
def test_a_full_disk_refuses_a_reservation_and_keeps_everything(space_limit: int) -> None:
    files = MemoryFileSystem()
    log = open_log(files, CONFIG)
    fill(log, files, space_limit)
    before, names, used = all_batches(log), segment_paths(files), files.used_bytes()
    with pytest.raises(OutOfSpace):
        log.reserve(100)
    assert (all_batches(log), segment_paths(files), files.used_bytes()) == (before, names, used)
    log.flush()
    log.write_marker()
    files.crash()
    log = open_log(files, CONFIG)
    assert all_batches(log) == before
    files.space_limit = None
    log.reserve(5000)
    log.append([data_batch(log.log_end_offset)])
    assert len(all_batches(log)) == len(before) + 1


@pytest.mark.parametrize("space_limit", range(1600, 12_000, 333))
def test_control_batches_still_find_room_on_a_full_disk(space_limit: int) -> None:
    files = MemoryFileSystem()
    log = open_log(files, CONFIG)
    fill(log, files, space_limit)
    for _ in range(3):
        log.append([data_batch(log.log_end_offset)])
    before = all_batches(log)
    log.flush()
    files.crash()
    assert all_batches(open_log(files, CONFIG)) == before


def test_what_was_reserved_is_written_though_the_disk_is_full_by_then(files: FileSystem) -> None:
    log = open_log(files, CONFIG)
    batches = batches_from(0, 20)
    log.reserve(sum(len(batch.data) for batch in batches))
    with no_more_room(files):
        for batch in batches:
            log.append([batch])
        log.flush()
    assert all_batches(log) == batches


def test_a_reservation_larger_than_a_segment_goes_into_one(files: FileSystem) -> None:
    log = open_log(files, CONFIG)
    log.append([data_batch(0)])
    batches = batches_from(1, 100)
    log.reserve(sum(len(batch.data) for batch in batches))
    assert len(segment_paths(files)) == 2
    with no_more_room(files):
        log.append(batches)
    assert len(segment_paths(files)) == 2


def test_an_append_without_reservation_on_a_full_disk_is_refused_and_changes_nothing(files: FileSystem) -> None:
    log = open_log(files, CONFIG)
    log.append([data_batch(0)])
    with room_for(files, 1024), pytest.raises(OutOfSpace):
        log.append([data_batch(1, size=2000)])
    assert all_batches(log) == [data_batch(0)]
    log.append([data_batch(1, size=2000)])
    assert all_batches(log) == [data_batch(0), data_batch(1, size=2000)]


@pytest.mark.parametrize("seed", range(12))
def test_a_write_that_fails_though_room_was_reserved_leaves_no_trace(seed: int) -> None:
    """As on a file system that copies on write, where a reservation is not kept."""
    files = MemoryFileSystem()
    log = open_log(files, CONFIG)
    log.append(batches_from(0, 2))
    log.flush()
    end_position = len(files.open(segment_paths(files)[0]).read_at(0, 1024).rstrip(b"\0"))

    def lose_the_room(operation: str, path: str) -> None:
        if operation == "write_at":
            files.before_operation = None
            files.open(path).truncate(end_position)
            files.space_limit = end_position + 150

    files.before_operation = lose_the_room
    with pytest.raises(OutOfSpace):
        log.append(batches_from(3, 4))
    files.space_limit = None
    files.crash(random=Random(seed))
    log = open_log(files, CONFIG)
    assert all_batches(log) == batches_from(0, 2)
    assert log.recovery.torn_bytes == 0
    log.append(batches_from(3, 1, epoch=2))
    assert log.log_end_offset == Offset(4)


def test_a_new_segment_has_room_for_control_batches_too(files: FileSystem) -> None:
    log = open_log(files, LogConfig(segment_bytes=300, preallocate_bytes=1, reserve_bytes=3000))
    log.append(batches_from(0, 2))
    batches = batches_from(3, 20)
    log.reserve(sum(len(batch.data) for batch in batches))
    with no_more_room(files):
        log.append(batches)
        log.append([data_batch(33, size=2500)])
    assert all_batches(log) == [*batches_from(0, 2), *batches, data_batch(33, size=2500)]
