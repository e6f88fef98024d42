"""A log starts over: at the end of a snapshot that replaces it (SN-14), or at 0 if nothing below its start is left."""

from __future__ import annotations

import pytest

from kraftbase.errors import InvariantViolation
from kraftbase.files.files import FileSystem
from kraftbase.types import Epoch
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import UNKNOWN_UNTIL_OFFSET, OffsetAndEpoch, RecoveringLog
from raft.storage.recovering_file import begin_anew, read_recovering
from tests.raft.storage.builders import EPOCH, LOG, batches_from, data_batch, segment_paths
from tests.raft.storage.log_start.builders import (
    BATCHES,
    END,
    REPLACEMENTS,
    accepting,
    assert_empty_at,
    assert_holds,
    bases,
    contents,
    filled,
    on_disk,
    opened,
    point,
)

# --- starting over ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", REPLACEMENTS)
def test_sn_14_a_snapshot_takes_the_logs_place(files: FileSystem, start: OffsetAndEpoch) -> None:
    log = filled(files)
    log.truncate_fully_and_start_at(start)
    assert bases(files) == [start.offset]
    for _ in range(2):
        assert_empty_at(log, start)
        log.close()
        log = opened(files)
    assert not log.recovery.has_begun_anew
    more = batches_from(start.offset, 9, epoch=9)
    for batch in more:
        log.append([batch])
    log.flush()
    log.write_marker()
    for _ in range(2):
        assert_holds(log, start, more)
        log.close()
        log = opened(files)


def test_a_log_begins_anew_more_than_once(files: FileSystem) -> None:
    log = filled(files)
    log.advance_start(point(6))
    log.truncate_fully_and_start_at(point(20, 3))
    log.append([data_batch(20, epoch=4), data_batch(21, epoch=4)])
    log.truncate_fully_and_start_at(point(21, 5))
    log.truncate_fully_and_start_at(point(30, 5))
    assert_empty_at(log, point(30, 5))
    assert_empty_at(opened(files), point(30, 5))


@pytest.mark.parametrize("start", [point(12, 3), point(11, 3), point(4, 1), point(6, 9), point(5, 9)])
def test_sn_14_a_snapshot_that_is_not_past_the_log_is_refused(files: FileSystem, start: OffsetAndEpoch) -> None:
    log = filled(files)
    log.advance_start(point(6))
    before = contents(files)
    with pytest.raises(InvariantViolation):
        log.truncate_fully_and_start_at(start)
    assert contents(files) == before
    assert_holds(log, point(6))


@pytest.mark.parametrize("start", [point(500, 3), point(3, 9)])
def test_a_flush_that_is_under_way_makes_nothing_durable_that_is_not_there(
    files: FileSystem, start: OffsetAndEpoch
) -> None:
    log = filled(files, is_flushed=False)
    pending = log.start_flush()
    log.truncate_fully_and_start_at(start)
    log.append([data_batch(start.offset, epoch=9)])
    pending.run()
    assert log.finish_flush(pending) == start.offset
    assert log.flush() == start.offset + 1
    assert_holds(opened(files), start, [data_batch(start.offset, epoch=9)])


# --- giving up a log that nothing covers below its start --------------------------------------------------------------


@pytest.mark.parametrize("offset", [4, 6, 12])
def test_a_log_without_its_snapshot_begins_at_0_and_recovers(files: FileSystem, offset: int) -> None:
    log = filled(files)
    log.advance_start(point(offset))
    log.close()
    begin_anew(files, LOG, epoch=EPOCH, reason="no snapshot")
    log = accepting(files)
    assert_empty_at(log, LOG_BEGINNING)
    assert log.recovering == RecoveringLog(END, EPOCH, "no snapshot")
    log.append(BATCHES)
    log.flush()
    log.end_recovering()
    log.close()
    assert_holds(accepting(files), LOG_BEGINNING)
    assert files.list_directory(LOG) == [path.rpartition("/")[2] for path in segment_paths(files)]


def test_an_empty_log_that_begins_at_0_again_recovers_what_the_snapshot_had(files: FileSystem) -> None:
    log = filled(files)
    log.truncate_fully_and_start_at(point(500, 9))
    log.close()
    begin_anew(files, LOG, epoch=EPOCH, reason="no snapshot")
    recovering = read_recovering(files, LOG)
    assert recovering is not None
    assert recovering.until_offset == 500


def test_how_far_a_log_went_that_ends_below_its_start_is_not_known() -> None:
    files = on_disk(point(500, 9))
    begin_anew(files, LOG, epoch=EPOCH, reason="no snapshot")
    recovering = read_recovering(files, LOG)
    assert recovering is not None
    assert recovering.until_offset == UNKNOWN_UNTIL_OFFSET


def test_a_log_that_recovers_already_is_held_to_what_was_said_first(files: FileSystem) -> None:
    log = filled(files)
    log.advance_start(point(6))
    log.close()
    begin_anew(files, LOG, epoch=EPOCH, reason="first")
    log = accepting(files)
    log.truncate_fully_and_start_at(point(4, 2))
    log.close()
    begin_anew(files, LOG, epoch=Epoch(8), reason="again")
    assert read_recovering(files, LOG) == RecoveringLog(END, EPOCH, "first")
    assert_empty_at(accepting(files), LOG_BEGINNING)
