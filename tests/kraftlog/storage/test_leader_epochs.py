"""The leader epochs of a partition's log (DB-40, DB-41, DB-42, DB-68)."""

from __future__ import annotations

import pytest

from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.leader_epochs import UNDEFINED_END, EpochEnd, LeaderEpochs
from tests.kraftlog.storage.builders import append, batch, log_in, open_directory, open_log


def test_db40_an_epoch_is_entered_after_those_that_are_lower_in_both() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10), (5, 20)])
    epochs.assign(5, 25)
    assert epochs.entries() == ((1, 0), (3, 10), (5, 20)), "the last epoch keeps its first offset"
    assert not epochs.is_changed
    epochs.assign(5, 18)
    assert epochs.entries() == ((1, 0), (3, 10), (5, 18))
    epochs.assign(6, 10)
    assert epochs.entries() == ((1, 0), (6, 10))
    epochs.assign(4, 30)
    assert epochs.entries() == ((1, 0), (4, 30))
    assert epochs.is_changed


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (-1, UNDEFINED_END), (0, EpochEnd(0, 5)), (1, EpochEnd(1, 10)), (2, EpochEnd(1, 10)), (3, EpochEnd(3, 20)),
        (4, EpochEnd(3, 20)), (5, EpochEnd(5, 99)), (6, UNDEFINED_END),
    ],
)  # fmt: skip
def test_db41_where_an_epoch_ends(asked: int, found: EpochEnd) -> None:
    assert LeaderEpochs([(1, 5), (3, 10), (5, 20)]).end_offset_for(asked, 99) == found


def test_db41_of_an_empty_log_nothing_is_known() -> None:
    assert LeaderEpochs().end_offset_for(3, 0) == UNDEFINED_END
    assert LeaderEpochs().epoch_of(0) == -1


@pytest.mark.parametrize(
    ("end_offset", "entries"),
    [(25, ((1, 0), (3, 10), (5, 20))), (20, ((1, 0), (3, 10))), (11, ((1, 0), (3, 10))), (0, ())],
)
def test_db42_a_cut_of_the_end_drops_the_epochs_behind_it(
    end_offset: int, entries: tuple[tuple[int, int], ...]
) -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10), (5, 20)])
    epochs.truncate_end(end_offset)
    assert epochs.entries() == entries


@pytest.mark.parametrize(
    ("start_offset", "entries"),
    [
        (0, ((1, 0), (3, 10), (5, 20))), (4, ((1, 4), (3, 10), (5, 20))), (10, ((3, 10), (5, 20))),
        (15, ((3, 15), (5, 20))), (99, ((5, 99),)),
    ],
)  # fmt: skip
def test_db42_a_new_start_keeps_the_epoch_that_it_is_in(
    start_offset: int, entries: tuple[tuple[int, int], ...]
) -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10), (5, 20)])
    epochs.truncate_start(start_offset)
    assert epochs.entries() == entries


def test_db68_a_leader_enters_its_epoch_before_any_record_and_a_start_forgets_one_without_records() -> None:
    """Nobody else may have heard of it: its leader was the only one that had it, at the end of its log."""
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    append(log, batch(3), epoch=1)
    log.assign_epoch(4)
    assert log.epochs.entries() == ((1, 0), (4, 3))
    directory.close(broker_epoch=1)
    assert open_log(files).epochs.entries() == ((1, 0),)


def test_db42_a_cut_behind_the_logs_end_drops_an_epoch_without_records() -> None:
    log = open_log(MemoryFileSystem())
    append(log, batch(3), epoch=1)
    log.assign_epoch(4)
    log.truncate(5)
    assert (log.log_end_offset, log.epochs.entries()) == (3, ((1, 0),))


def test_db68_epochs_are_on_disk_before_the_batches_that_show_them_are_deleted() -> None:
    files = MemoryFileSystem()
    log = open_log(files)
    append(log, batch(2), epoch=1)
    append(log, batch(2), epoch=7)
    log.roll(0)
    append(log, batch(2), epoch=7)
    log.flush()
    log.advance_high_watermark(6)
    log.delete_records(4)
    assert log.delete_old_segments(0).segment_count == 1
    assert log.epochs.entries() == ((7, 4),)
    files.crash()
    assert open_log(files).epochs.entries() == ((7, 4),)
