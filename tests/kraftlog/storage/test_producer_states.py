"""Sequences, duplicates, transactions: what a log knows of producers (DB-70 to DB-75: DB-71, DB-72, DB-73, DB-74)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.batch_header import MAX_SEQUENCE
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.producer_states import Origin
from tests.kraftlog.storage.builders import (
    NOW_MS,
    TRANSACTIONAL,
    append,
    damaged,
    log_in,
    marker,
    open_directory,
    open_log,
    produced,
)


@pytest.fixture
def log() -> PartitionLog:
    return open_log(MemoryFileSystem())


def refused(log: PartitionLog, data: bytes, code: ErrorCode, origin: Origin = Origin.CLIENT) -> str:
    end_offset = log.log_end_offset
    with pytest.raises(ApiError) as raised:
        log.append_as_leader(data, 0, NOW_MS, origin)
    assert raised.value.code is code
    assert log.log_end_offset == end_offset, "a refused batch changes nothing"
    return str(raised.value)


def test_db71_one_of_the_last_five_batches_is_answered_with_its_first_offsets(log: PartitionLog) -> None:
    for index in range(6):
        append(log, produced(7, 2 * index, 2))
    for index in range(1, 6):
        again = log.append_as_leader(produced(7, 2 * index, 2), 0, NOW_MS)
        assert (again.is_duplicate, again.base_offset, again.last_offset) == (True, 2 * index, 2 * index + 1)
    assert log.log_end_offset == 12
    refused(log, produced(7, 0, 2), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_db71_a_gap_is_out_of_order_and_names_what_is_next(log: PartitionLog) -> None:
    append(log, produced(7, 0, 3))
    assert "next is 3" in refused(log, produced(7, 4), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert append(log, produced(7, 3)) == 3


def test_db71_without_any_state_every_sequence_is_taken(log: PartitionLog) -> None:
    assert append(log, produced(7, 1234)) == 0
    refused(log, produced(7, 1236), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_db71_a_new_epoch_begins_at_0_and_a_lower_one_is_fenced(log: PartitionLog) -> None:
    append(log, produced(7, 0, producer_epoch=3))
    refused(log, produced(7, 1, producer_epoch=4), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    append(log, produced(7, 0, producer_epoch=4))
    refused(log, produced(7, 1, producer_epoch=3), ErrorCode.INVALID_PRODUCER_EPOCH)
    assert not log.append_as_leader(produced(7, 1, producer_epoch=4), 0, NOW_MS).is_duplicate


def test_db70_sequences_go_round_after_the_largest(log: PartitionLog) -> None:
    append(log, produced(7, MAX_SEQUENCE - 1, 4))
    again = log.append_as_leader(produced(7, MAX_SEQUENCE - 1, 4), 0, NOW_MS)
    assert again.is_duplicate
    refused(log, produced(7, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert append(log, produced(7, 2)) == 4


def test_db72_the_last_stable_offset_is_that_of_the_first_open_transaction(log: PartitionLog) -> None:
    append(log, produced(1, 0))
    append(log, produced(8, 0, 2, attributes=TRANSACTIONAL))
    append(log, produced(9, 0, 1, attributes=TRANSACTIONAL))
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 1
    append(log, marker(8, aborts=False))
    assert log.last_stable_offset == 1, "the marker is not committed yet"
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 3
    append(log, marker(9, aborts=True))
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset == 6


def test_db73_an_aborted_transaction_is_found_by_the_readers_that_need_it() -> None:
    config = PartitionLogConfig(segment_bytes=300)
    log = open_log(MemoryFileSystem(), config)
    append(log, produced(8, 0, 2, attributes=TRANSACTIONAL))
    append(log, produced(9, 0, 2, attributes=TRANSACTIONAL))
    log.roll(NOW_MS)
    append(log, marker(8, aborts=True))
    append(log, marker(9, aborts=True))
    append(log, produced(1, 0, 3))
    assert log.reader.aborted_transactions(0, log.log_end_offset) == [(8, 0, 4, 2), (9, 2, 5, 6)]
    assert [entry.producer_id for entry in log.reader.aborted_transactions(0, 2)] == [8]
    assert [entry.producer_id for entry in log.reader.aborted_transactions(5, 9)] == [9]
    assert log.reader.aborted_transactions(6, 9) == []


def test_db74_markers_of_older_coordinators_and_producers_are_fenced(log: PartitionLog) -> None:
    append(log, produced(8, 0, attributes=TRANSACTIONAL, producer_epoch=2))
    append(log, marker(8, aborts=False, producer_epoch=2, coordinator_epoch=5))
    stale = marker(8, aborts=False, producer_epoch=2, coordinator_epoch=4)
    refused(log, stale, ErrorCode.TRANSACTION_COORDINATOR_FENCED, Origin.COORDINATOR)
    older = marker(8, aborts=False, producer_epoch=1, coordinator_epoch=5)
    refused(log, older, ErrorCode.INVALID_PRODUCER_EPOCH, Origin.COORDINATOR)


def test_a_batch_outside_of_the_open_transaction_is_refused(log: PartitionLog) -> None:
    append(log, produced(8, 0, attributes=TRANSACTIONAL))
    refused(log, produced(8, 1), ErrorCode.INVALID_TXN_STATE)


def test_producers_expire_but_not_in_a_transaction(log: PartitionLog) -> None:
    append(log, produced(7, 0))
    append(log, produced(8, 0, attributes=TRANSACTIONAL))
    states = log.producers.states
    assert states.expire(NOW_MS + 999, 1_000) == 0
    assert states.expire(NOW_MS + 1_000, 1_000) == 1
    assert (states.state_of(7), states.state_of(8) is None) == (None, False)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("breaks_snapshots", [False, True])
def test_db75_producers_and_transactions_are_known_after_a_start(is_clean: bool, breaks_snapshots: bool) -> None:
    files = MemoryFileSystem()
    config = PartitionLogConfig(segment_bytes=400)
    directory = open_directory(files, config=config)
    log = log_in(directory, config)
    append(log, produced(8, 0, 2, attributes=TRANSACTIONAL))
    for index in range(10):
        append(log, produced(7, index))
    append(log, marker(8, aborts=True))
    append(log, produced(9, 0, 2, attributes=TRANSACTIONAL))
    expected = log.reader.aborted_transactions(0, 100)
    if is_clean:
        directory.close(broker_epoch=1)
    files.end_process()
    if breaks_snapshots:
        for name in files.list_directory("data/clicks-0"):
            if name.endswith(".snapshot"):
                file = files.open(f"data/clicks-0/{name}")
                file.write_at(0, damaged(file.read_at(0, file.size())))
                file.close()
    log = open_log(files, config)
    assert log.append_as_leader(produced(7, 9), 0, NOW_MS).is_duplicate
    refused(log, produced(7, 11), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    refused(log, produced(9, 2), ErrorCode.INVALID_TXN_STATE)
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 13
    assert log.reader.aborted_transactions(0, 100) == expected
    assert len(expected) == 1


def test_a_truncation_takes_producers_back_to_where_they_were(log: PartitionLog) -> None:
    for index in range(4):
        append(log, produced(7, index))
    append(log, produced(8, 0, attributes=TRANSACTIONAL))
    append(log, marker(8, aborts=True))
    log.truncate(2)
    assert log.reader.aborted_transactions(0, 100) == []
    assert append(log, produced(7, 2)) == 2
    assert log.producers.states.state_of(8) is None
