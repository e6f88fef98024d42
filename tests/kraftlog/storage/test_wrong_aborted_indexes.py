"""Indexes of aborted transactions whose bytes have changed: a start makes them again from the log (DB-73, DB-89)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from kraftbase.files.files import read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.indexes import TRANSACTION_ENTRY, AbortedTransaction
from kraftlog.storage.formats.names import INVENTORY_NAME
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.builders import (
    CLICKS,
    NOW_MS,
    TRANSACTIONAL,
    append,
    log_in,
    marker,
    open_directory,
    open_log,
    produced,
)

CLOSED = 5
"""The first offset of the second of three segments; the second and the last one have an index."""
MADE_AGAIN = "an index of aborted transactions is rebuilt"


def path_of(base_offset: int) -> str:
    return f"data/clicks-0/{base_offset:020d}.txnindex"


def stopped(*, cleanly: bool) -> tuple[MemoryFileSystem, list[AbortedTransaction]]:
    """The files of a broker that has ended, and what readers of committed records leave out of them."""
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    for sequence in range(CLOSED):
        append(log, produced(7, sequence, attributes=TRANSACTIONAL))
    log.roll(NOW_MS)
    append(log, marker(7, aborts=True))
    append(log, produced(8, 0, 2, attributes=TRANSACTIONAL))
    append(log, produced(9, 0, attributes=TRANSACTIONAL))
    append(log, marker(8, aborts=True))
    log.roll(NOW_MS)
    append(log, produced(9, 1, attributes=TRANSACTIONAL))
    append(log, marker(9, aborts=True))
    log.flush()
    log.advance_high_watermark(log.log_end_offset)
    aborted = aborted_in(log)
    assert len(aborted) == 3
    if cleanly:
        directory.close(broker_epoch=1)
    else:
        run_at_once(directory.checkpoint())
    files.end_process()
    return files, aborted


def aborted_in(log: PartitionLog) -> list[AbortedTransaction]:
    return log.reader.aborted_transactions(0, log.log_end_offset)


def last_of(files: MemoryFileSystem) -> int:
    """The first offset of the last segment."""
    return max(int(name[:20]) for name in files.list_directory("data/clicks-0") if name.endswith(".log"))


def flip(files: MemoryFileSystem, path: str) -> None:
    at = TRANSACTION_ENTRY.size // 2
    files.damage(path, at, bytes([read_whole(files, path)[at] ^ 4]))


def cut(files: MemoryFileSystem, path: str) -> None:
    file = files.open(path)
    file.truncate(file.size() - TRANSACTION_ENTRY.size)
    file.close()


def delete(files: MemoryFileSystem, path: str) -> None:
    files.remove(path)


def replace_version(files: MemoryFileSystem, path: str) -> None:
    files.damage(path, 0, b"\x7f")


def add_entry(files: MemoryFileSystem, path: str) -> None:
    found = read_whole(files, path) if files.exists(path) else b""
    write_new_file(files, path, found + AbortedTransaction(9, 0, 3, 4).encode())


DAMAGES = [flip, cut, delete, replace_version, add_entry]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("segment", ["closed", "last"])
def test_what_was_aborted_stays_aborted(
    damage: Callable[[MemoryFileSystem, str], None], cleanly: bool, segment: str
) -> None:
    files, aborted = stopped(cleanly=cleanly)
    path = path_of(CLOSED if segment == "closed" else last_of(files))
    before = read_whole(files, path)
    damage(files, path)
    with capture_logs() as logs:
        log = open_log(files)
    assert aborted_in(log) == aborted
    assert read_whole(files, path) == before
    if segment == "closed" or cleanly:  # after a kill the last segment's is made again in any case
        assert [line["path"] for line in logs if line["event"] == MADE_AGAIN] == [path]


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_segment_without_aborted_transactions_gets_none(cleanly: bool) -> None:
    files, aborted = stopped(cleanly=cleanly)
    add_entry(files, path_of(0))
    assert aborted_in(open_log(files)) == aborted


@pytest.mark.parametrize("cleanly", [True, False])
def test_sound_indexes_are_not_made_again(cleanly: bool) -> None:
    files, aborted = stopped(cleanly=cleanly)
    with capture_logs() as logs:
        log = open_log(files)
    assert aborted_in(log) == aborted
    assert MADE_AGAIN not in {line["event"] for line in logs}


def test_without_an_inventory_one_that_cannot_be_read_is_made_again() -> None:
    files, aborted = stopped(cleanly=True)
    files.remove(f"data/{INVENTORY_NAME}")
    replace_version(files, path_of(CLOSED))
    assert aborted_in(open_log(files)) == aborted


@pytest.mark.parametrize("has_inventory", [True, False])
@pytest.mark.parametrize("cleanly", [True, False])
def test_that_of_a_segment_that_is_gone_goes_and_the_directory_stays_online(cleanly: bool, has_inventory: bool) -> None:
    """Else one lost segment, which an unclean leader goes on without, takes every log of the disk offline."""
    files, aborted = stopped(cleanly=cleanly)
    files.remove(f"data/clicks-0/{CLOSED:020d}.log")
    if not has_inventory:  # nothing says that there was a segment
        files.remove(f"data/{INVENTORY_NAME}")
    directory = open_directory(files)
    log = (
        directory.findings.accept_loss(CLICKS, PartitionLogConfig(), NOW_MS)
        if has_inventory
        else directory.logs[CLICKS]
    )
    assert not directory.offline_reason
    assert not files.exists(path_of(CLOSED))
    assert aborted_in(log) == [one for one in aborted if one.last_offset >= last_of(files)]


def test_the_states_of_producers_come_from_before_the_first_wrong_index() -> None:
    """Else a transaction that began before the index would be thought to begin in it."""
    files, aborted = stopped(cleanly=True)
    for base_offset in (CLOSED, last_of(files)):
        delete(files, path_of(base_offset))
    assert aborted_in(open_log(files)) == aborted


# --- without room -----------------------------------------------------------------------------------------------------


def without_room() -> tuple[MemoryFileSystem, LogDirectory, list[AbortedTransaction]]:
    """A broker that has found the last segment's index missing, had no room for another one, and has room again."""
    files, aborted = stopped(cleanly=True)
    path = path_of(last_of(files))
    delete(files, path)
    files.space_limit = 1
    directory = open_directory(files)
    assert (aborted_in(directory.logs[CLICKS]), read_whole(files, path)) == (aborted, b"")
    files.space_limit = None
    return files, directory, aborted


def test_entries_that_waited_for_room_are_written_before_their_segment_is_closed() -> None:
    """No start reads it again."""
    files, directory, aborted = without_room()
    directory.logs[CLICKS].roll(NOW_MS)
    run_at_once(directory.checkpoint())
    files.end_process()
    assert aborted_in(open_log(files)) == aborted


def test_entries_that_waited_for_room_are_written_before_a_shutdown_is_clean() -> None:
    files, directory, aborted = without_room()
    directory.close(broker_epoch=1)
    files.end_process()
    assert aborted_in(open_log(files)) == aborted
