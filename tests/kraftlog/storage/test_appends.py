"""What a client may not append (DB-84): the named error, and nothing is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.kafka.record_batch import encode_batch
from kraftlog.kafka.records import Record
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.producer_states import Origin
from tests.kraftlog.storage.builders import (
    LOG_APPEND_TIME,
    NOW_MS,
    TRANSACTIONAL,
    append,
    batch,
    damaged,
    marker,
    open_log,
    produced,
    with_field,
)

GOOD = batch(3)
CONFIG = PartitionLogConfig(max_message_bytes=2_000, segment_bytes=1_500, timestamp_before_max_ms=10**9)

REFUSED = {
    "nothing": (b"", ErrorCode.INVALID_RECORD, "fewer than any batch"),
    "a header only in part": (GOOD[:60], ErrorCode.INVALID_RECORD, "fewer than any batch"),
    "cut off": (GOOD[:-1], ErrorCode.INVALID_RECORD, "only 96 of them were sent"),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD, "bytes follow the batch"),
    "another CRC": (damaged(GOOD), ErrorCode.CORRUPT_MESSAGE, "CRC"),
    "magic 0": (GOOD[:16] + b"\0" + GOOD[17:], ErrorCode.INVALID_RECORD, "magic 0, of Kafka before"),
    "magic 1": (GOOD[:16] + b"\1" + GOOD[17:], ErrorCode.INVALID_RECORD, "magic 1"),
    "magic 3": (GOOD[:16] + b"\3" + GOOD[17:], ErrorCode.CORRUPT_MESSAGE, "magic is 3"),
    "a negative length": (GOOD[:8] + b"\xff" * 4 + GOOD[12:], ErrorCode.CORRUPT_MESSAGE, "length is -1"),
    "too large": (batch(1, value=b"v" * 2_000), ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes of 2000"),
    "larger than a segment": (batch(1, value=b"v" * 1_600), ErrorCode.RECORD_LIST_TOO_LARGE, "segment.bytes of 1500"),
    "a base offset": (batch(2, base_offset=4), ErrorCode.INVALID_RECORD, "base offset is 4"),
    "a count that lies": (with_field(GOOD, 57, ">i", 4), ErrorCode.INVALID_RECORD, "has 4 records"),
    "records that have no room": (
        with_field(with_field(GOOD, 57, ">i", 900), 23, ">i", 899), ErrorCode.INVALID_RECORD, "900 records do not fit",
    ),
    "no record": (with_field(GOOD, 57, ">i", 0), ErrorCode.INVALID_RECORD, "has 0 records"),
    "an unknown codec": (with_field(GOOD, 21, ">h", 5), ErrorCode.INVALID_RECORD, "compression 5"),
    "a control batch": (marker(1, aborts=True), ErrorCode.INVALID_RECORD, "control batch"),
    "a producer without a sequence": (produced(7, -1), ErrorCode.INVALID_RECORD, "producer id 7 and no sequence"),
    "a transaction of nobody": (batch(1, attributes=TRANSACTIONAL), ErrorCode.INVALID_RECORD, "no producer id"),
    "no offsets": (with_field(GOOD, 23, ">i", -1), ErrorCode.INVALID_RECORD, "last offset delta is -1"),
    "a negative count": (with_field(GOOD, 57, ">i", -1), ErrorCode.INVALID_RECORD, "has -1 records"),
    "a negative base offset": (with_field(GOOD, 0, ">q", -1), ErrorCode.INVALID_RECORD,
        "base offset is -1"),
    "a broker's time": (with_field(GOOD, 21, ">h", LOG_APPEND_TIME), ErrorCode.INVALID_TIMESTAMP, "LogAppendTime"),
    "the future": (batch(1, timestamp_ms=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP, "3600001 ms ahead"),
    "the past": (batch(1, timestamp_ms=NOW_MS - 10**9 - 1), ErrorCode.INVALID_TIMESTAMP, "1000000001 ms behind"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_batch_for_this_log_is_refused_by_name_and_changes_nothing(case: str) -> None:
    data, code, reason = REFUSED[case]
    files = MemoryFileSystem()
    log = open_log(files, CONFIG)
    append(log, batch(2))
    before = read_whole(files, "data/clicks-0/00000000000000000000.log")
    with pytest.raises(ApiError, match=reason) as raised:
        log.append_as_leader(data, 0, NOW_MS)
    assert raised.value.code is code
    assert log.log_end_offset == 2
    assert read_whole(files, "data/clicks-0/00000000000000000000.log") == before
    assert append(log, batch(1)) == 2


@pytest.mark.parametrize("timestamp_ms", [NOW_MS + 3_600_000, NOW_MS - 10**9, -1])
def test_timestamps_at_the_bounds_and_none_at_all_are_taken(timestamp_ms: int) -> None:
    log = open_log(MemoryFileSystem(), CONFIG)
    assert append(log, batch(1, timestamps=[timestamp_ms])) == 0


def test_with_log_append_time_the_clients_timestamps_do_not_matter() -> None:
    log = open_log(MemoryFileSystem(), PartitionLogConfig(has_log_append_time=True))
    assert append(log, batch(1, timestamp_ms=1)) == 0


def test_with_log_append_time_a_producer_still_does_not_say_that_the_time_is_the_brokers() -> None:
    log = open_log(MemoryFileSystem(), PartitionLogConfig(has_log_append_time=True))
    with pytest.raises(ApiError, match="LogAppendTime") as raised:
        append(log, with_field(GOOD, 21, ">h", LOG_APPEND_TIME))
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP


COMPACTED = PartitionLogConfig(is_compacted=True)


def _keyed(*keys: bytes | None) -> bytes:
    records = [Record(index, NOW_MS, key, b"value" * 30) for index, key in enumerate(keys)]
    return encode_batch(records, base_offset=0, partition_leader_epoch=-1)


@pytest.mark.parametrize(("keys", "index"), [((None,), 0), ((b"a", b"", None, b"b"), 2), ((b"k" * 200, None), 1)])
def test_db84_a_record_without_a_key_is_refused_for_a_compacted_topic_and_no_other(
    keys: tuple[bytes | None, ...], index: int
) -> None:
    log = open_log(MemoryFileSystem(), COMPACTED)
    with pytest.raises(ApiError, match=f"record {index} of the batch has no key") as raised:
        append(log, _keyed(*keys))
    assert raised.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0
    assert append(open_log(MemoryFileSystem()), _keyed(*keys)) == 0


def test_records_with_keys_are_taken_for_a_compacted_topic() -> None:
    log = open_log(MemoryFileSystem(), COMPACTED)
    assert append(log, _keyed(b"", b"a", b"k" * 300)) == 0
    assert log.log_end_offset == 3


@given(st.binary(min_size=7, max_size=60))
def test_records_that_do_not_read_back_are_refused_for_a_compacted_topic(records: bytes) -> None:
    log = open_log(MemoryFileSystem(), COMPACTED)
    length = len(GOOD[:61]) - 12 + len(records)
    data = with_field(with_field(GOOD[:61] + records, 57, ">i", 1), 23, ">i", 0)
    data = with_field(data, 8, ">i", length)
    try:
        append(log, data)
    except ApiError as error:
        assert error.code is ErrorCode.INVALID_RECORD
    else:
        assert records[0] % 2 == 0, "a negative length was taken"
        assert log.log_end_offset == 1


@given(st.binary(max_size=200), st.sampled_from(list(Origin)))
def test_random_bytes_are_refused_and_nothing_else_happens(data: bytes, origin: Origin) -> None:
    log = open_log(MemoryFileSystem(), CONFIG)
    with pytest.raises(ApiError):
        log.append_as_leader(data, 0, NOW_MS, origin)
    assert log.append_as_follower(data[:60], NOW_MS) == 0


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_no_changed_byte_is_taken_but_where_the_broker_writes_anyway(at: int, change: int) -> None:
    log = open_log(MemoryFileSystem(), CONFIG)
    data = bytearray(GOOD)
    data[at] ^= change
    if 12 <= at < 16:
        assert log.append_as_leader(bytes(data), 5, NOW_MS).base_offset == 0
        assert log.reader.read(0, 10_000, 3)[12:16] == b"\0\0\0\5"
    else:
        with pytest.raises(ApiError):
            log.append_as_leader(bytes(data), 5, NOW_MS)
