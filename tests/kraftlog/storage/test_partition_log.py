"""A partition's log, from end to end: append, read, start again, read (DB-66)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import FileSystem, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.batch_header import has_right_crc
from tests.kraftlog.storage.builders import (
    NOW_MS,
    all_batches,
    append,
    batch,
    header_of,
    log_in,
    open_directory,
    open_log,
)


def test_what_is_appended_is_read_before_and_after_a_clean_start(files: FileSystem) -> None:
    directory = open_directory(files)
    log = log_in(directory)
    assert [append(log, batch(3), epoch=5), append(log, batch(2), epoch=5)] == [0, 3]
    before = all_batches(log)
    assert [header_of(data).base_offset for data in before] == [0, 3]
    assert [header_of(data).leader_epoch for data in before] == [5, 5]
    assert all(has_right_crc(header_of(data), data) for data in before)
    directory.close(broker_epoch=7)
    again = open_directory(files)
    log = log_in(again)
    assert all_batches(log) == before
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 5, 5)
    assert log.epochs.entries() == ((5, 0),)
    assert append(log, batch(1), epoch=5) == 5


def test_a_process_that_is_killed_loses_nothing() -> None:
    files = MemoryFileSystem()
    log = open_log(files)
    for _ in range(5):
        append(log, batch(2))
    before = all_batches(log)
    files.end_process()
    log = open_log(files)
    assert all_batches(log) == before
    assert log.log_end_offset == 10
    assert log.recovery_point == 10, "a start makes durable what it has read"


def test_offset_and_epoch_are_written_into_the_callers_own_memory() -> None:
    log = open_log(MemoryFileSystem())
    append(log, batch(4))
    data = bytearray(batch(1))
    log.append_as_leader(memoryview(data), 9, NOW_MS)
    assert (header_of(data).base_offset, header_of(data).leader_epoch) == (4, 9)


def test_the_last_batch_is_in_the_file_as_it_was_sent_but_for_its_place(files: FileSystem) -> None:
    log = open_log(files)
    sent = batch(2, value=b"x" * 100)
    append(log, sent, epoch=3)
    stored = read_whole(files, "data/clicks-0/00000000000000000000.log")
    assert stored[:8] == bytes(8)
    assert stored[12:16] == bytes((0, 0, 0, 3))
    assert stored[8:12] + stored[16:] == sent[8:12] + sent[16:]


@pytest.mark.parametrize("offset", [-1, 6, 100])
def test_an_offset_outside_of_the_log_is_out_of_range(offset: int) -> None:
    log = open_log(MemoryFileSystem())
    append(log, batch(5))
    with pytest.raises(ApiError, match=rf"offset {offset} is out of range: .* has offsets 0 to 5") as raised:
        log.reader.read(offset, 100, 5)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_at_the_end_there_is_nothing_to_read() -> None:
    log = open_log(MemoryFileSystem())
    assert log.reader.read(0, 100, 0) == b""
    append(log, batch(5))
    assert log.reader.read(5, 100, 5) == b""


def test_db66_the_first_batch_is_whole_however_large() -> None:
    log = open_log(MemoryFileSystem())
    append(log, batch(3, value=b"x" * 500))
    append(log, batch(1))
    large, small = all_batches(log)
    assert log.reader.read(0, 1, 4) == large
    assert log.reader.read(1, 0, 4) == large
    assert log.reader.read(0, 0, 4, min_one_batch=False) == b""
    assert log.reader.read(0, 1, 4, min_one_batch=False) == b""
    assert log.reader.read(0, len(large) - 1, 4, min_one_batch=False) == b""
    assert log.reader.read(0, len(large), 4, min_one_batch=False) == large
    assert log.reader.read(0, len(large) + 10, 4, min_one_batch=False) == large + small[:10]
    assert log.reader.read(0, len(large) + 10, 4) == large + small[:10]
    assert log.reader.read(0, 10_000, 4) == large + small


def test_a_read_ends_where_the_batch_with_the_last_offset_begins() -> None:
    log = open_log(MemoryFileSystem())
    for _ in range(4):
        append(log, batch(2))
    batches = all_batches(log)
    assert log.reader.read(0, 10_000, 4) == b"".join(batches[:2])
    assert log.reader.read(2, 10_000, 8) == b"".join(batches[1:])
    assert log.reader.read(4, 10_000, 4) == b""


def test_log_append_time_takes_the_place_of_the_producers_and_has_a_crc_of_its_own() -> None:
    log = open_log(MemoryFileSystem(), PartitionLogConfig(has_log_append_time=True))
    appended = log.append_as_leader(batch(3, timestamp_ms=17), 0, NOW_MS)
    assert appended.append_time_ms == NOW_MS
    (stored,) = all_batches(log)
    header = header_of(stored)
    assert (header.max_timestamp_ms, header.attributes) == (NOW_MS, 0x08)
    assert has_right_crc(header, stored)


def test_a_follower_takes_batches_as_the_leader_has_them() -> None:
    leader, follower = open_log(MemoryFileSystem()), open_log(MemoryFileSystem())
    append(leader, batch(3), epoch=1)
    append(leader, batch(2), epoch=1)
    append(leader, batch(4), epoch=6)
    data = leader.reader.read(0, 10_000, 9)
    assert follower.append_as_follower(data[:-1], NOW_MS) == 5, "a part of a batch is left out"
    assert follower.append_as_follower(leader.reader.read(5, 10_000, 9), NOW_MS) == 9
    assert all_batches(follower) == all_batches(leader)
    assert follower.epochs.entries() == leader.epochs.entries() == ((1, 0), (6, 5))


@pytest.mark.parametrize("change", [0, 70])
def test_a_follower_refuses_what_is_damaged_or_out_of_place(change: int) -> None:
    leader, follower = open_log(MemoryFileSystem()), open_log(MemoryFileSystem())
    append(leader, batch(3))
    append(follower, batch(3))
    append(leader, batch(2))
    data = bytearray(leader.reader.read(3, 10_000, 5))
    data[change] ^= 0x80
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
        follower.append_as_follower(bytes(data), NOW_MS)
    with pytest.raises(ApiError, match="they must ascend from 3 or above"):
        follower.append_as_follower(leader.reader.read(0, 10_000, 5), NOW_MS)
    assert follower.log_end_offset == 3
