"""The core's view of the log: its ends and its epochs as appends, flushes and truncations change them."""

from __future__ import annotations

import pytest

from kraftbase.errors import InvariantViolation
from kraftbase.types import Epoch, Offset
from raft.core.log import LogState
from tests.raft.core.builders import batch, log_state
from tests.raft.core.fetching import point


def ends(log: LogState) -> tuple[int, int]:
    return log.flushed_end_offset, log.end_offset


def test_an_empty_log_ends_at_zero_in_epoch_zero() -> None:
    assert log_state().end == point(0, 0)
    assert log_state().last_epoch == 0


def test_rf14_the_end_of_a_log_is_that_of_its_last_record() -> None:
    assert log_state([(1, 5), (3, 2)]).end == point(3, 7)
    assert point(3, 1) > point(2, 9)
    assert point(3, 2) > point(3, 1)


def test_an_append_of_the_leader_begins_where_the_log_ends() -> None:
    log = log_state([(1, 5)])
    assert log.append(Epoch(2), 3) == 5
    assert (ends(log), log.end) == ((5, 8), point(2, 8))


def test_fetched_batches_bring_their_epochs() -> None:
    log = log_state([(1, 5)])
    log.append_batches((batch(5, 2, 1), batch(7, 1, 4)))
    assert (ends(log), log.epochs.entries()) == ((5, 8), [(1, 0), (4, 7)])


def test_a_flush_makes_durable_what_it_covered_and_takes_nothing_back() -> None:
    log = log_state([(1, 9)], flushed_end_offset=0)
    log.flushed(Offset(6))
    assert ends(log) == (6, 9)
    log.flushed(Offset(4))
    assert ends(log) == (6, 9)


def test_a_flush_makes_no_more_durable_than_there_is() -> None:
    log = log_state([(1, 9)], flushed_end_offset=0)
    log.truncate(Offset(3))
    log.flushed(Offset(9))
    assert ends(log) == (3, 3)


def test_rf51_a_cut_log_is_durable_and_forgets_the_epochs_beyond() -> None:
    log = log_state([(1, 5), (3, 4)], flushed_end_offset=2)
    log.truncate(Offset(5))
    assert (ends(log), log.end) == ((5, 5), point(1, 5))
    log.truncate(Offset(0))
    assert (ends(log), log.end) == ((0, 0), point(0, 0))


@pytest.mark.parametrize("end_offset", [-1, 6])
def test_a_log_is_cut_within_itself(end_offset: int) -> None:
    log = log_state([(1, 5)])
    with pytest.raises(InvariantViolation, match="within itself"):
        log.truncate(Offset(end_offset))
    assert ends(log) == (5, 5)
