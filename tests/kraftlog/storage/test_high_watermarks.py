"""What is known to be committed at a start: the checkpoint of high watermarks (DB-24)."""

from __future__ import annotations

from uuid import UUID

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.formats.names import HIGH_WATERMARKS_NAME
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.builders import CLICKS, append, batch, log_in, open_directory


def committed_log(files: MemoryFileSystem, count: int, high_watermark: int) -> LogDirectory:
    """A directory whose log of `CLICKS` has so many durable records, and a checkpoint of its high watermark."""
    directory = open_directory(files)
    log = log_in(directory)
    for _ in range(count):
        append(log, batch(1))
    log.flush()
    log.advance_high_watermark(high_watermark)
    run_at_once(directory.checkpoint_high_watermarks())
    return directory


def test_db24_a_start_knows_what_was_committed_at_the_last_checkpoint() -> None:
    files = MemoryFileSystem()
    committed_log(files, 5, 3)
    files.end_process()
    assert log_in(open_directory(files)).high_watermark == 3


def test_db24_a_checkpoint_of_more_than_the_log_has_is_lowered_for_good() -> None:
    """Consider a power cut that takes records: what is appended in their place is not committed by the old file."""
    files = MemoryFileSystem()
    log_in(open_directory(files))
    write_new_file(files, f"data/{HIGH_WATERMARKS_NAME}", b"0\n1\nclicks 0 9\n")
    files.end_process()
    log = log_in(open_directory(files))
    assert log.high_watermark == 0
    for _ in range(9):
        append(log, batch(1))
    log.flush()
    files.end_process()
    assert log_in(open_directory(files)).high_watermark == 0


def test_a_cut_below_the_checkpoint_lowers_it_first() -> None:
    files = MemoryFileSystem()
    directory = committed_log(files, 5, 5)
    log = log_in(directory)
    log.truncate(2)
    for _ in range(3):
        append(log, batch(1))
    log.flush()
    files.end_process()
    assert log_in(open_directory(files)).high_watermark == 2


def test_a_log_that_is_made_again_under_its_name_has_committed_nothing() -> None:
    files = MemoryFileSystem()
    directory = committed_log(files, 5, 5)
    directory.removal.delete_log(CLICKS, UUID(int=1), ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted"))
    log = log_in(directory)
    for _ in range(5):
        append(log, batch(1))
    log.flush()
    files.end_process()
    assert log_in(open_directory(files)).high_watermark == 0


def test_a_checkpoint_of_high_watermarks_that_is_damaged_is_found_out_again() -> None:
    files = MemoryFileSystem()
    committed_log(files, 5, 3)
    write_new_file(files, f"data/{HIGH_WATERMARKS_NAME}", b"\xff")
    files.end_process()
    assert log_in(open_directory(files)).high_watermark == 0


def test_db24_a_cut_within_a_batch_leaves_what_is_before_the_batch_as_committed() -> None:
    """Of a batch with offsets 5 to 9 nothing is left: others get these offsets before a crash."""
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    for _ in range(2):
        append(log, batch(5))
    log.flush()
    log.advance_high_watermark(10)
    run_at_once(directory.checkpoint_high_watermarks())
    log.truncate(7)
    append(log, batch(3))
    log.flush()
    files.end_process()
    assert log_in(open_directory(files)).high_watermark == 5
