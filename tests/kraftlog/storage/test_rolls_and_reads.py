"""When a log goes on in a new segment, and how offsets and timestamps are found (DB-51)."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from kraftbase.files.files import FileSystem
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.kafka.record_batch import Compression
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.batch_header import read_header
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.segment import Segment
from kraftlog.storage.timestamps import FoundRecord, Search, result_of
from tests.kraftlog.broker.malformed_batches import CODECS as ENCODE
from tests.kraftlog.storage.agreement import check_agreement
from tests.kraftlog.storage.builders import (
    NOW_MS,
    all_batches,
    append,
    batch,
    log_in,
    open_directory,
    open_log,
    with_field,
)


def base_offsets(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log._segments.from_offset(0)]


def test_a_log_rolls_before_a_segment_gets_too_large() -> None:
    size = len(batch(1))
    log = open_log(MemoryFileSystem(), PartitionLogConfig(segment_bytes=2 * size))
    for _ in range(5):
        append(log, batch(1))
    assert base_offsets(log) == [0, 2, 4]


def test_a_log_rolls_when_its_batches_span_segment_ms_whatever_the_brokers_clock_says() -> None:
    log = open_log(MemoryFileSystem(), PartitionLogConfig(segment_ms=1_000))
    append(log, batch(1, timestamp_ms=NOW_MS), now_ms=NOW_MS)
    append(log, batch(1, timestamp_ms=NOW_MS + 1_000), now_ms=NOW_MS + 10**9)
    assert base_offsets(log) == [0]
    append(log, batch(1, timestamp_ms=NOW_MS + 1_001), now_ms=NOW_MS - 10**6)
    assert base_offsets(log) == [0, 2]


def test_batches_without_timestamps_roll_by_the_brokers_clock() -> None:
    log = open_log(MemoryFileSystem(), PartitionLogConfig(segment_ms=1_000))
    append(log, batch(1, timestamps=[-1]), now_ms=NOW_MS)
    append(log, batch(1, timestamps=[-1]), now_ms=NOW_MS + 1_000)
    append(log, batch(1, timestamps=[-1]), now_ms=NOW_MS + 1_001)
    assert base_offsets(log) == [0, 2]


def test_jitter_makes_a_segment_roll_earlier_by_less_than_it_and_the_same_each_time() -> None:
    config = PartitionLogConfig(segment_ms=1_000_000, segment_jitter_ms=900_000)
    segment = Segment(open_directory(MemoryFileSystem())._handles, "data/clicks-0", 5, created_ms=0)
    assert 0 < segment._jitter_ms(config) == segment._jitter_ms(config) < 900_000


@pytest.mark.parametrize("index_bytes", [24, 36])
def test_a_log_rolls_when_an_index_is_full(index_bytes: int) -> None:
    config = PartitionLogConfig(segment_index_bytes=index_bytes, index_interval_bytes=0)
    log = open_log(MemoryFileSystem(), config)
    for index in range(12):
        append(log, batch(1, timestamp_ms=NOW_MS + index))
    entries = [segment.offsets.file.entry_count for segment in log._segments.from_offset(0)]
    assert max(entries) <= index_bytes // 12 - 1
    assert len(entries) > 2
    log.advance_high_watermark(12)
    check_agreement(log)


def test_a_log_rolls_when_offsets_would_be_too_far_from_its_first_one() -> None:
    log = open_log(MemoryFileSystem())
    log.append_as_follower(batch(1, base_offset=10, epoch=0), NOW_MS)
    log.append_as_follower(batch(1, base_offset=2**31 - 1, epoch=0), NOW_MS)
    log.append_as_follower(batch(1, base_offset=2**31, epoch=0), NOW_MS)
    assert base_offsets(log) == [0, 2**31]
    assert read_header(log.reader.read(11, 1, 2**40)).base_offset == 2**31 - 1


def test_a_preallocated_segment_has_its_size_until_it_is_closed(files: FileSystem) -> None:
    config = PartitionLogConfig(segment_bytes=4_000, preallocates=True)
    directory = open_directory(files, config=config)
    log = log_in(directory, config)
    append(log, batch(1))
    log.roll(NOW_MS)
    append(log, batch(1))
    sizes = [files.open_to_read(segment.path).size() for segment in log._segments.from_offset(0)]
    assert sizes == [len(batch(1)), 4_000]
    directory.close(broker_epoch=1)
    log = log_in(open_directory(files, config=config))
    assert files.open_to_read(log._segments.last.path).size() == len(batch(1))
    assert len(all_batches(log)) == 2


def test_every_offset_is_found_in_many_segments_with_few_open_files(files: FileSystem) -> None:
    config = PartitionLogConfig(segment_bytes=1_000, index_interval_bytes=200)
    directory = open_directory(files, config=config, open_files_max=2)
    log = log_in(directory, config)
    starts = [append(log, batch(1 + index % 3, value=b"v" * (index % 50))) for index in range(200)]
    expected = {}
    for start, end in zip(starts, [*starts[1:], log.log_end_offset], strict=True):
        expected |= dict.fromkeys(range(start, end), start)
    found = {offset: read_header(log.reader.read(offset, 61, log.log_end_offset)).base_offset for offset in expected}
    assert found == expected
    assert len(directory._handles) <= 2


# --- by time ----------------------------------------------------------------------------------------------------------


def timed(config: PartitionLogConfig | None = None) -> PartitionLog:
    """Offsets 0 to 5 with timestamps 10, 30, 20, then 50, 40, then 60; each batch in an epoch of its own."""
    log = open_log(MemoryFileSystem(), config or PartitionLogConfig(segment_bytes=130, index_interval_bytes=0))
    for epoch, times in enumerate(([10, 30, 20], [50, 40], [60])):
        append(log, batch(len(times), value=b"", timestamps=times), epoch=epoch)
    return log


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (0, FoundRecord(10, 0, 0)), (10, FoundRecord(10, 0, 0)), (11, FoundRecord(30, 1, 0)),
        (30, FoundRecord(30, 1, 0)), (31, FoundRecord(50, 3, 1)), (51, FoundRecord(60, 5, 2)),
        (60, FoundRecord(60, 5, 2)), (61, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("segment_bytes", [130, 10_000])
def test_db51_a_timestamp_finds_the_first_record_that_is_not_older(
    asked: int, found: FoundRecord | None, segment_bytes: int
) -> None:
    log = timed(PartitionLogConfig(segment_bytes=segment_bytes, index_interval_bytes=0))
    assert log.reader.find_timestamp(asked) == found


def test_db51_the_newest_record_is_that_with_the_largest_timestamp() -> None:
    log = timed()
    assert log.reader.find_newest() == FoundRecord(60, 5, 2)
    log.truncate(5)
    assert log.reader.find_newest() == FoundRecord(50, 3, 1)
    assert open_log(MemoryFileSystem()).reader.find_newest() is None


@pytest.mark.parametrize("segment_bytes", [130, 10_000])
def test_db51_when_the_newest_record_was_deleted_the_next_newest_is_found(segment_bytes: int) -> None:
    log = open_log(MemoryFileSystem(), PartitionLogConfig(segment_bytes=segment_bytes, index_interval_bytes=0))
    times = [[90, 10, 80], [50, 70], [-1], [60, 70], [-1]]
    for each in times:
        append(log, batch(len(each), value=b"", timestamps=each))
    log.advance_high_watermark(9)
    found = []
    for start_offset in range(10):
        log.delete_records(start_offset)
        newest = log.reader.find_newest()
        found.append(None if newest is None else (newest.timestamp_ms, newest.offset))
    assert found == [(90, 0), (80, 2), (80, 2), (70, 4), (70, 4), (70, 7), (70, 7), (70, 7), None, None]


def test_a_record_below_the_logs_start_is_not_found() -> None:
    log = timed()
    log.advance_high_watermark(6)
    log.delete_records(2)
    assert log.reader.find_timestamp(0) == FoundRecord(20, 2, 0)


def compressed(data: bytes, codec: int, body: bytes) -> bytes:
    """The batch with other bytes in the place of its records."""
    changed = bytearray(data[:61] + body)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    return with_field(bytes(changed), 21, ">h", codec)


CODECS = [codec for codec in Compression if codec]


@pytest.mark.parametrize("codec", CODECS)
def test_db51_a_record_is_found_in_every_codec(codec: Compression) -> None:
    log = open_log(MemoryFileSystem())
    plain = batch(3, timestamps=[10, 30, 20])
    append(log, compressed(plain, codec, ENCODE[codec](plain[61:])))
    plain = batch(4, timestamps=[40, 60, 50, 60])
    append(log, compressed(plain, codec, ENCODE[codec](plain[61:])))
    assert log.reader.find_timestamp(11) == FoundRecord(30, 1, 0)
    assert log.reader.find_timestamp(41) == FoundRecord(60, 4, 0)
    assert log.reader.find_timestamp(61) is None
    assert log.reader.find_newest() == FoundRecord(60, 4, 0)
    log.advance_high_watermark(7)
    log.delete_records(5)
    assert log.reader.find_timestamp(41) == FoundRecord(50, 5, 0)
    assert log.reader.find_timestamp(51) == FoundRecord(60, 6, 0)
    assert log.reader.find_newest() == FoundRecord(60, 6, 0)


def test_of_a_batch_that_cannot_be_read_the_first_record_is_found_and_the_last_is_the_newest() -> None:
    """A leader of an older version has stored it, or a stock broker."""
    log = open_log(MemoryFileSystem())
    append(log, batch(3, timestamps=[10, 30, 20]))
    broken = compressed(batch(3, timestamps=[40, 60, 50], base_offset=3, epoch=0), 4, b"not opened here")
    log.append_as_follower(broken, NOW_MS)
    assert log.reader.find_timestamp(45) == FoundRecord(60, 3, 0)
    assert log.reader.find_newest() == FoundRecord(60, 5, 0)


def test_a_batch_whose_header_says_more_than_its_records_is_passed_over() -> None:
    """A client of an older leader has written the header."""
    log = open_log(MemoryFileSystem())
    lying = with_field(batch(2, timestamps=[10, 20], epoch=0), 35, ">q", 90)
    log.append_as_follower(lying, NOW_MS)
    append(log, batch(2, timestamps=[70, 80]))
    assert log.reader.find_timestamp(30) == FoundRecord(70, 2, 0)


@pytest.mark.parametrize(
    "begin", [lambda log: log.reader.search_timestamp(NOW_MS + 1), lambda log: log.reader.search_newest()]
)
def test_a_search_reads_no_file_between_the_pieces_of_a_batch(begin: Callable[[PartitionLog], Search]) -> None:
    """So the log may be cut, or its segment be deleted, in the meantime."""
    log = open_log(MemoryFileSystem())
    plain = batch(30_000, timestamps=[NOW_MS] * 29_999 + [NOW_MS + 1])
    append(log, compressed(plain, Compression.ZSTD, ENCODE[Compression.ZSTD](plain[61:])))
    search = begin(log)
    assert not next(search)
    log.retire("it is deleted")
    assert result_of(search) == FoundRecord(NOW_MS + 1, 29_999, 0)
