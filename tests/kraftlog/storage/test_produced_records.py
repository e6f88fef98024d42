"""What is found out about the records of a batch before it is appended (DB-84)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.kafka.record_batch import Compression
from kraftlog.kafka.record_scan import ScanBudget
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.batch_header import has_right_crc, read_header
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.produced_records import RECORD_ERRORS_MAX, NotReadYet, RecordsRefused
from tests.kraftlog.broker.malformed_batches import compressed, rec
from tests.kraftlog.kafka.test_record_scan import record
from tests.kraftlog.storage.builders import NOW_MS, all_batches, append, batch, open_log, with_field

pytestmark = pytest.mark.usefixtures("record_loop")

MAX_TIMESTAMP_AT = 35
CODECS = list(Compression)


def log_with(config: PartitionLogConfig | None = None) -> PartitionLog:
    return open_log(MemoryFileSystem(), config)


def stored(log: PartitionLog, data: bytes) -> bytes:
    """The batch as it is in the log."""
    append(log, data)
    found = all_batches(log)[-1]
    assert has_right_crc(read_header(found), found)
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed_ms", [-1, 0, NOW_MS + 4, NOW_MS + 10**12])
def test_db84_the_largest_timestamp_is_that_of_the_records_whatever_the_client_says(
    codec: Compression, claimed_ms: int
) -> None:
    data = compressed([rec(0), rec(1, timestamp=5), rec(2, timestamp=-3)], codec, base_ms=NOW_MS)
    found = stored(log_with(), with_field(data, MAX_TIMESTAMP_AT, ">q", claimed_ms))
    assert read_header(found).max_timestamp_ms == NOW_MS + 5
    assert found[61:] == data[61:]


def test_a_batch_whose_header_is_right_keeps_its_checksum() -> None:
    data = batch(3)
    assert read_header(stored(log_with(), data)).crc == read_header(data).crc


def test_records_without_timestamps_have_none_in_the_header_either() -> None:
    assert read_header(stored(log_with(), batch(2, timestamps=[-1, -1]))).max_timestamp_ms == -1


def test_records_are_read_for_a_topic_with_log_append_time_too_and_their_timestamps_count_for_nothing() -> None:
    log = log_with(PartitionLogConfig(has_log_append_time=True))
    far = compressed([rec(0, timestamp=10**11)], Compression.ZSTD, base_ms=NOW_MS)
    assert read_header(stored(log, far)).max_timestamp_ms == NOW_MS
    with pytest.raises(Exception, match="INVALID_RECORD: the batch's records cannot be read"):
        append(log, compressed([rec(0, headers=-1)], Compression.ZSTD, base_ms=NOW_MS))


@pytest.mark.parametrize("codec", CODECS)
def test_db84_each_refused_record_is_named_up_to_a_bound(codec: Compression) -> None:
    log = log_with(PartitionLogConfig(is_compacted=True))
    records = [rec(index, key=b"k" if index % 2 else None) for index in range(2 * RECORD_ERRORS_MAX + 10)]
    with pytest.raises(
        RecordsRefused, match=r"1005 of the batch's records are refused; record 0 of the batch has no key"
    ) as raised:
        append(log, compressed(records, codec, base_ms=NOW_MS))
    assert raised.value.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in raised.value.record_errors] == list(range(0, 2 * RECORD_ERRORS_MAX, 2))
    assert log.log_end_offset == 0


def test_timestamps_are_judged_by_the_records_and_minus_1_is_none() -> None:
    log = log_with(PartitionLogConfig(timestamp_before_max_ms=1_000, timestamp_after_max_ms=1_000))
    append(log, batch(3, timestamps=[NOW_MS - 1_000, -1, NOW_MS + 1_000]))
    with pytest.raises(RecordsRefused, match="INVALID_TIMESTAMP") as raised:
        append(log, batch(4, timestamps=[NOW_MS, NOW_MS - 1_001, NOW_MS + 1_001, NOW_MS]))
    assert [error.batch_index for error in raised.value.record_errors] == [1, 2]
    assert "1001 ms behind" in raised.value.record_errors[0].message
    assert "1001 ms ahead of" in raised.value.record_errors[1].message


@pytest.mark.parametrize("base_ms", [2**63 - 10, -(2**63)])
def test_a_timestamp_that_has_no_place_is_refused(base_ms: int) -> None:
    """With limits that admit everything: 64 bits remain."""
    log = log_with(PartitionLogConfig(timestamp_before_max_ms=2**63 - 1, timestamp_after_max_ms=2**63 - 1))
    data = compressed([rec(0), rec(1, timestamp=100 if base_ms > 0 else -100)], Compression.NONE, base_ms=base_ms)
    with pytest.raises(RecordsRefused, match="INVALID_TIMESTAMP"):
        append(log, data)
    assert log.log_end_offset == 0


def test_records_that_inflate_beyond_a_thousand_times_the_largest_message_are_refused() -> None:
    log = log_with(PartitionLogConfig(max_message_bytes=1_000))
    value = bytes(1_100_000)
    bomb = compressed([record(b"\0", 0, 0, -1, len(value), value, 0)], Compression.ZSTD, base_ms=NOW_MS)
    assert len(bomb) < 1_000
    with pytest.raises(Exception, match="inflate to more than 1000000 bytes"):
        append(log, bomb)
    assert log.log_end_offset == 0


def test_with_validate_records_false_the_header_is_believed() -> None:
    log = log_with(PartitionLogConfig(validates_records=False))
    unreadable = compressed([rec(0, headers=-1)], Compression.ZSTD, base_ms=NOW_MS)
    found = stored(log, with_field(unreadable, MAX_TIMESTAMP_AT, ">q", NOW_MS + 9))
    assert read_header(found).max_timestamp_ms == NOW_MS + 9
    with pytest.raises(ApiError, match="base offset is 4"):
        append(log, batch(2, base_offset=4))


def test_what_is_read_of_small_batches_counts_for_the_budget_of_their_request() -> None:
    log, budget = log_with(), ScanBudget(records=30)
    for spent in (False, True):
        assert not budget.is_spent
        try:
            log.append_as_leader(bytearray(batch(20)), 0, NOW_MS, budget=budget)
        except NotReadYet as unread:
            assert spent
            assert unread.records.read()
        assert budget.is_spent is spent
