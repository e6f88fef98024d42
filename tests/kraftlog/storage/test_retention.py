"""What a log deletes: by its start, size and time, never early when a clock jumps (DB-80 to DB-83: DB-81, DB-82)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.partition_log import HIGH_WATERMARK, PartitionLog
from kraftlog.storage.retention import CLOCK_TRIAL_MS, Reason, RetentionClock
from tests.kraftlog.storage.builders import NOW_MS, all_batches, append, batch, open_log

SIZE = len(batch(1))
HOUR_MS = 3_600_000


def segments(
    config: PartitionLogConfig, count: int = 4, high_watermark: int | None = None
) -> tuple[MemoryFileSystem, PartitionLog]:
    """A batch of one record in each segment, one second after the other."""
    files = MemoryFileSystem()
    log = open_log(files, config)
    for index in range(count):
        append(log, batch(1, timestamp_ms=NOW_MS + 1_000 * index, key=b"" if config.is_compacted else None))
        log.roll(NOW_MS)
    log.advance_high_watermark(count if high_watermark is None else high_watermark)
    return files, log


def test_db81_segments_go_while_the_rest_is_at_least_retention_bytes() -> None:
    _, log = segments(PartitionLogConfig(retention_ms=-1, retention_bytes=2 * SIZE + 1))
    found = log.delete_old_segments(NOW_MS)
    assert (found.segment_count, found.reason, log.log_start_offset) == (1, Reason.SIZE, 1)
    assert log.delete_old_segments(NOW_MS).segment_count == 0


def test_db81_segments_go_when_all_of_their_timestamps_are_older_than_retention_ms() -> None:
    _, log = segments(PartitionLogConfig(retention_ms=5_000))
    assert log.delete_old_segments(NOW_MS + 6_000).segment_count == 1
    assert log.delete_old_segments(NOW_MS + 6_000).segment_count == 0
    assert log.delete_old_segments(NOW_MS + 7_001).reason is Reason.TIME
    assert log.log_start_offset == 3


def test_db80_nothing_beyond_the_high_watermark_goes() -> None:
    _, log = segments(PartitionLogConfig(retention_ms=1), high_watermark=2)
    assert log.delete_old_segments(NOW_MS + HOUR_MS).segment_count == 2
    assert log.log_start_offset == 2


def test_db81_an_active_segment_that_has_expired_is_rolled_and_no_offset_comes_again() -> None:
    files, log = segments(PartitionLogConfig(retention_ms=1), count=1)
    append(log, batch(3))
    log.advance_high_watermark(4)
    log.flush()
    assert log.delete_old_segments(NOW_MS + HOUR_MS).segment_count == 2
    assert (log.log_start_offset, log.log_end_offset, log.segment_count, log.size_bytes) == (4, 4, 1, 0)
    files.crash()
    log = open_log(files)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    assert append(log, batch(1)) == 4


def test_a_policy_without_delete_keeps_all_but_what_was_deleted_by_request() -> None:
    _, log = segments(PartitionLogConfig(retention_ms=1, retention_bytes=0, is_deleted=False, is_compacted=True))
    assert log.delete_old_segments(NOW_MS + HOUR_MS).segment_count == 0
    log.delete_records(2)
    assert log.delete_old_segments(NOW_MS).reason is Reason.LOG_START


def test_db82_the_start_moves_and_the_files_of_a_segment_go_with_its_snapshot() -> None:
    files, log = segments(PartitionLogConfig(retention_ms=-1))
    assert log.delete_records(3) == 3
    assert log.delete_old_segments(NOW_MS).segment_count == 3
    names = files.list_directory("data/clicks-0")
    assert not [name for name in names if name < "00000000000000000003"]
    assert len(all_batches(log)) == 1


def test_deleted_records_stay_deleted_after_a_crash() -> None:
    files, log = segments(PartitionLogConfig(retention_ms=-1))
    log.flush()
    assert log.delete_records(HIGH_WATERMARK) == 4
    files.crash()
    log = open_log(files)
    assert log.log_start_offset == 4
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
        log.reader.read(3, 10, 4)


def test_db83_a_log_starts_at_its_first_segment_if_that_is_later() -> None:
    files, log = segments(PartitionLogConfig(retention_ms=1), high_watermark=2)
    log.delete_old_segments(NOW_MS + HOUR_MS)
    files.end_process()
    log = open_log(files)
    assert (log.log_start_offset, log.high_watermark) == (2, 2)


@pytest.mark.parametrize("offset", [-2, 3, 100])
def test_records_are_deleted_up_to_the_high_watermark_only(offset: int) -> None:
    _, log = segments(PartitionLogConfig(retention_ms=-1), high_watermark=2)
    with pytest.raises(ApiError) as raised:
        log.delete_records(offset)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(1) == 1
    assert log.delete_records(0) == 1, "the start never goes back"


def test_a_truncation_below_the_start_leaves_an_empty_log_there() -> None:
    files, log = segments(PartitionLogConfig(retention_ms=-1))
    log.delete_records(3)
    log.delete_old_segments(NOW_MS)
    log.truncate(2)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (2, 2, 2)
    files.crash()
    assert open_log(files).log_end_offset == 2


# --- clocks that jump -------------------------------------------------------------------------------------------------


def test_a_clock_that_jumps_ahead_is_believed_after_an_hour() -> None:
    clock = RetentionClock(NOW_MS, 0)
    assert clock.now_ms(NOW_MS + 5_000, 5_000) == NOW_MS + 5_000
    year_ms = 365 * 86_400_000
    assert clock.now_ms(NOW_MS + year_ms + 6_000, 6_000) == NOW_MS + 6_000
    assert clock.is_on_trial
    assert clock.now_ms(NOW_MS + year_ms + CLOCK_TRIAL_MS, CLOCK_TRIAL_MS) == NOW_MS + CLOCK_TRIAL_MS
    later = CLOCK_TRIAL_MS + 6_000
    assert clock.now_ms(NOW_MS + year_ms + later, later) == NOW_MS + year_ms + later
    assert not clock.is_on_trial


def test_a_clock_that_jumps_ahead_and_back_deletes_nothing() -> None:
    clock = RetentionClock(NOW_MS, 0)
    clock.now_ms(NOW_MS + 10 * HOUR_MS, 1_000)
    assert clock.now_ms(NOW_MS + 2_000, 2_000) == NOW_MS + 2_000
    assert not clock.is_on_trial


def test_a_clock_that_jumps_again_begins_its_trial_again() -> None:
    clock = RetentionClock(NOW_MS, 0)
    clock.now_ms(NOW_MS + 10 * HOUR_MS, 0)
    clock.now_ms(NOW_MS + 50 * HOUR_MS, HOUR_MS - 1)
    assert clock.now_ms(NOW_MS + 50 * HOUR_MS + 2, HOUR_MS + 1) == NOW_MS + HOUR_MS + 1


def test_a_clock_that_is_set_back_is_believed_at_once() -> None:
    clock = RetentionClock(NOW_MS, 0)
    assert clock.now_ms(NOW_MS - 10 * HOUR_MS, 1_000) == NOW_MS - 10 * HOUR_MS


def test_small_corrections_are_followed() -> None:
    clock = RetentionClock(NOW_MS, 0)
    for step in range(1, 10):
        assert clock.now_ms(NOW_MS + step * 51_000, step * 1_000) == NOW_MS + step * 51_000


def test_records_without_timestamps_that_a_log_gets_when_it_has_started_over_are_not_older_than_that() -> None:
    """A follower that starts over has appended nothing yet: that is no time, and surely not that of 1970."""
    files = MemoryFileSystem()
    config = PartitionLogConfig(retention_ms=1_000)
    for start_over in (
        lambda log: log.truncate_fully_and_start_at(7),
        lambda log: log.truncate(0),
    ):
        log = open_log(files, config)
        log.append_as_follower(batch(base_offset=log.log_end_offset, epoch=1), NOW_MS)
        files.end_process()
        log = open_log(files, config)
        start_over(log)
        end_offset = log.append_as_follower(batch(base_offset=log.log_end_offset, epoch=1, timestamp_ms=-1), NOW_MS)
        log.advance_high_watermark(end_offset)
        assert log.delete_old_segments(NOW_MS + 1_000).segment_count == 0
        assert log.delete_old_segments(NOW_MS + 1_001).segment_count == 1
        files.end_process()
