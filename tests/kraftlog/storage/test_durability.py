"""When a flush is due, and what one that is given up leaves to the next."""

from __future__ import annotations

import pytest

from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.builders import (
    NOW_MS,
    TRANSACTIONAL,
    append,
    batch,
    log_in,
    marker,
    open_directory,
    open_log,
    produced,
)

CONFIG = PartitionLogConfig(flush_before_ack=False, flush_ms=500)


def is_due(log: PartitionLog, after_ms: int) -> bool:
    return log.durability.is_flush_due(log.config, NOW_MS + after_ms)


def append_at(log: PartitionLog, after_ms: int) -> None:
    log.append_as_leader(batch(1), 0, NOW_MS + after_ms)


def test_flush_ms_counts_from_the_first_append_that_waits_not_from_the_last() -> None:
    """Else a log that is appended to all the time would never be flushed."""
    log = open_log(MemoryFileSystem(), CONFIG)
    assert not is_due(log, 10_000), "there is nothing to flush"
    for after_ms in range(0, 500, 100):
        append_at(log, after_ms)
    assert not is_due(log, 499)
    assert is_due(log, 500)
    log.flush()
    assert not is_due(log, 10_000)
    append_at(log, 1_000)
    assert not is_due(log, 1_499)
    assert is_due(log, 1_500)


def test_what_is_appended_while_a_flush_is_under_way_waits_for_the_next() -> None:
    log = open_log(MemoryFileSystem(), CONFIG)
    append_at(log, 0)
    pending = log.durability.start_flush()
    append_at(log, 400)
    pending.run()
    assert log.durability.finish_flush(pending) == 1
    assert not is_due(log, 899)
    assert is_due(log, 900)


def test_a_flush_that_is_given_up_is_due_as_before() -> None:
    log = open_log(MemoryFileSystem(), CONFIG)
    append_at(log, 0)
    pending = log.durability.start_flush()
    append_at(log, 400)
    log.durability.abandon_flush(pending)
    assert not is_due(log, 499)
    assert is_due(log, 500)


@pytest.mark.parametrize("cut_at", [0, 1])
def test_what_is_cut_off_is_not_waited_for(cut_at: int) -> None:
    log = open_log(MemoryFileSystem(), CONFIG)
    append_at(log, 0)
    log.flush()
    append_at(log, 100)
    log.truncate(cut_at)
    assert not is_due(log, 10_000)
    append_at(log, 10_000)
    assert not is_due(log, 10_499)
    assert is_due(log, 10_500)


def test_flush_messages_counts_the_offsets_that_are_not_durable() -> None:
    log = open_log(MemoryFileSystem(), PartitionLogConfig(flush_messages=3))
    append(log, batch(2))
    assert not is_due(log, 10_000)
    append(log, batch(1))
    assert is_due(log, 0)
    log.flush()
    assert not is_due(log, 10_000)


def test_the_next_flush_has_the_aborted_transactions_of_one_that_was_given_up() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    append(log, produced(8, 0, 2, attributes=TRANSACTIONAL))
    append(log, marker(8, aborts=True))
    expected = log.reader.aborted_transactions(0, 100)
    log.durability.abandon_flush(log.durability.start_flush())
    log.roll(NOW_MS)  # with a snapshot of the producers, so that a start does not read the marker again
    append(log, batch(1))
    log.flush()
    run_at_once(directory.checkpoint())
    files.crash()
    assert log_in(open_directory(files)).reader.aborted_transactions(0, 100) == expected != []
