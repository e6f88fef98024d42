"""Indexes whose bytes have changed: no reader misses a record, and no sound segment is set aside (FM-30)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.batch_header import read_header
from kraftlog.storage.formats.indexes import OFFSET_ENTRY, TIME_ENTRY
from kraftlog.storage.partition_log import PartitionLog
from tests.effort import some
from tests.kraftlog.storage.agreement import check_agreement
from tests.kraftlog.storage.builders import CLICKS, NOW_MS, all_batches, append, batch, log_in, open_directory

DIRECTORY = "data/clicks-0"
CONFIG = PartitionLogConfig(index_interval_bytes=150, retention_ms=1_000)
BITS_PART = 11
"""`make test` changes one bit in so many: each of a byte in turn."""
MADE_AGAIN = "the indexes of a segment are rebuilt"
CLOSED, LAST = 0, 20
TIMES = (10, 30, 30, 20, 50, 40, 50, 70, 60, 65)
"""Of the batches of the first segment, from NOW_MS on; out of order, and some twice."""


def stopped(segments: int = 2) -> MemoryFileSystem:
    """The files of a broker that was shut down: batches of two records, ten in each segment."""
    files = MemoryFileSystem()
    directory = open_directory(files, config=CONFIG)
    log = log_in(directory, CONFIG)
    for number in range(10 * segments):
        if number and number % 10 == 0:
            log.roll(NOW_MS)
        time = NOW_MS + TIMES[number % 10] + 100 * (number // 10)
        append(log, batch(2, timestamps=[time - 1, time]))
    log.advance_high_watermark(log.log_end_offset)
    directory.close(1)
    return files


def reads(log: PartitionLog, offset: int) -> Any:
    data = log.reader.read(offset, 1, log.log_end_offset)
    return read_header(data).base_offset


def ends(log: PartitionLog, offset: int) -> Any:
    found = log.reader.locate(0, 10**6, offset)
    return found and found.byte_count


QUESTIONS: list[Callable[[PartitionLog], Any]] = [
    *(lambda log, at=offset: reads(log, at) for offset in range(0, 40, 3)),
    *(lambda log, at=offset: ends(log, at) for offset in range(1, 20, 3)),
    *(lambda log, at=time: log.reader.find_timestamp(NOW_MS + at) for time in range(0, 190, 7)),
    lambda log: log.reader.find_newest(),
]


def answers(log: PartitionLog, first: int) -> list[Any]:
    """The answers to all questions, from one on: what one of them mends must not hide what another one finds."""
    order = [*range(first, len(QUESTIONS)), *range(first)]
    found = {number: QUESTIONS[number](log) for number in order}
    return [found[number] for number in range(len(QUESTIONS))]


def path_of(base_offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base_offset:020d}.{suffix}"


def flipped(files: MemoryFileSystem, path: str, bit: int) -> None:
    byte = read_whole(files, path)[bit // 8]
    files.damage(path, bit // 8, bytes([byte ^ 1 << bit % 8]))


def test_the_segments_have_entries_enough() -> None:
    files = stopped()
    for base_offset in (CLOSED, LAST):
        assert len(read_whole(files, path_of(base_offset, "index"))) >= 3 * OFFSET_ENTRY.size
        assert len(read_whole(files, path_of(base_offset, "timeindex"))) >= 3 * TIME_ENTRY.size


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("base_offset", [CLOSED, LAST])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_no_bit_of_an_index_changes_an_answer(suffix: str, base_offset: int, is_running: bool) -> None:
    path = path_of(base_offset, suffix)
    expected = answers(log_in(open_directory(stopped(), config=CONFIG), CONFIG), 0)
    assert len({*map(repr, expected)}) > 20
    for bit in some(range(8 * len(read_whole(stopped(), path))), BITS_PART):
        files = stopped()
        if not is_running:
            flipped(files, path, bit)
        directory = open_directory(files, config=CONFIG)
        if is_running:
            flipped(files, path, bit)
        assert directory.damaged == {}
        assert answers(directory.logs[CLICKS], 17 * bit % len(QUESTIONS)) == expected, bit
        assert directory.offline_reason == ""


@pytest.mark.parametrize("base_offset", [CLOSED, LAST])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_no_bit_of_an_index_changes_what_a_truncation_leaves(suffix: str, base_offset: int) -> None:
    for bit in some(range(8 * len(read_whole(stopped(), path_of(base_offset, suffix)))), BITS_PART):
        files = stopped()
        directory = open_directory(files, config=CONFIG)
        flipped(files, path_of(base_offset, suffix), bit)
        log = directory.logs[CLICKS]
        whole = all_batches(log)
        log.truncate(base_offset + 11)
        for number in range(6):
            append(log, batch(2, timestamps=[NOW_MS + 55 + number] * 2))
        assert log.log_end_offset == base_offset + 22
        assert all_batches(log)[: base_offset // 2 + 5] == whole[: base_offset // 2 + 5]
        assert [reads(log, base_offset + at) for at in range(22)] == [base_offset + at // 2 * 2 for at in range(22)]
        for time in range(0, 62, 6):
            found = log.reader.find_timestamp(NOW_MS + base_offset * 5 + time)
            batches = [read_header(data) for data in all_batches(log) if read_header(data).base_offset >= base_offset]
            late = [one for one in batches if one.max_timestamp_ms >= NOW_MS + base_offset * 5 + time]
            assert (found and found.offset // 2) == (late[0].base_offset // 2 if late else None), (bit, time)
        assert directory.damaged == {}


@pytest.mark.parametrize("change", ["bit", "cut", "gone"])
def test_retention_deletes_nothing_early_for_a_time_index_that_is_wrong(change: str) -> None:
    bits = 8 * len(read_whole(stopped(), path_of(CLOSED, "timeindex")))
    for bit in some(range(bits), BITS_PART) if change == "bit" else (0,):
        files = stopped()
        path = path_of(CLOSED, "timeindex")
        if change == "bit":
            flipped(files, path, bit)
        elif change == "cut":
            files.open(path).truncate(TIME_ENTRY.size)
        else:
            files.remove(path)
        log = open_directory(files, config=CONFIG).logs[CLICKS]
        log.advance_high_watermark(log.log_end_offset)
        assert log.delete_old_segments(NOW_MS + 1_070).segment_count == 0, bit
        assert log.log_start_offset == 0


def test_it_is_said_once_and_the_new_indexes_are_right_and_durable() -> None:
    files = stopped()
    log = open_directory(files, config=CONFIG).logs[CLICKS]
    flipped(files, path_of(CLOSED, "index"), 61)
    with capture_logs() as logs:
        assert [reads(log, offset) for offset in range(20)] == [offset // 2 * 2 for offset in range(20)]
    assert [entry["event"] for entry in logs] == [MADE_AGAIN]
    assert "does not begin at byte" in logs[0]["reason"]
    files.crash()
    with capture_logs() as logs:
        log = open_directory(files, config=CONFIG).logs[CLICKS]
        answers(log, 0)
    assert [entry["event"] for entry in logs if entry["event"] == MADE_AGAIN] == []
    log.advance_high_watermark(log.log_end_offset)
    check_agreement(log)


def test_an_index_that_becomes_shorter_or_is_gone_while_the_broker_runs_is_made_again() -> None:
    for suffix, change in [(suffix, change) for suffix in ("index", "timeindex") for change in ("shorter", "gone")]:
        files = stopped()
        directory = open_directory(files, config=CONFIG)
        log = directory.logs[CLICKS]
        expected = answers(log, 0)
        files.open(path_of(CLOSED, suffix)).truncate(4)
        if change == "gone":
            directory._handles.drop(path_of(CLOSED, suffix))
            files.remove(path_of(CLOSED, suffix))
        assert answers(log, 0) == expected
        assert (directory.damaged, directory.offline_reason) == ({}, "")


def test_without_room_the_new_entries_stay_in_memory_and_the_next_start_makes_the_file() -> None:
    files = stopped()
    directory = open_directory(files, config=CONFIG)
    log = directory.logs[CLICKS]
    expected = answers(log, 0)
    flipped(files, path_of(CLOSED, "timeindex"), 61)
    files.space_limit = 1
    assert answers(log, 0) == expected
    assert [name for name in files.list_directory(DIRECTORY) if name.endswith(("0.timeindex", ".tmp"))] == [
        "00000000000000000020.timeindex"
    ]
    files.space_limit = None
    files.end_process()
    assert answers(open_directory(files, config=CONFIG).logs[CLICKS], 0) == expected
    assert files.exists(path_of(CLOSED, "timeindex"))


def test_a_log_that_is_damaged_where_its_index_points_is_still_found_to_be() -> None:
    files = stopped()
    directory = open_directory(files, config=CONFIG)
    relative, position = OFFSET_ENTRY.unpack_from(read_whole(files, path_of(CLOSED, "index")), OFFSET_ENTRY.size)
    files.damage(path_of(CLOSED, "log"), position + 16, b"\x07")  # the magic
    with pytest.raises(Exception, match=f"damaged at byte {position}"):
        reads(directory.logs[CLICKS], relative)
    assert list(directory.damaged) == [CLICKS]


def test_an_entry_of_an_older_kafka_has_the_last_offset_of_several_batches() -> None:
    """Kafka before 3.9 enters an append as a whole; that is no reason to make an index again."""
    files = stopped()
    path = path_of(CLOSED, "index")
    relative, position = OFFSET_ENTRY.unpack_from(read_whole(files, path))
    files.damage(path, 0, OFFSET_ENTRY.pack(relative + 2, position))
    with capture_logs() as logs:
        log = open_directory(files, config=CONFIG).logs[CLICKS]
        assert [reads(log, offset) for offset in range(20)] == [offset // 2 * 2 for offset in range(20)]
    assert MADE_AGAIN not in [entry["event"] for entry in logs]
