"""Appends of the local client on their way into the log (LI-20 to LI-28).

Rules that tests here are named after: LI-21, LI-22, LI-24, LI-25, LI-26.
"""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, Offset
from raft.core.accumulator import Accumulator, DrainedBatch
from raft.core.actions import Action, AppendRecords, CompleteAppend, FailAppend, FlushLog
from raft.core.events import AppendPrepared, AppendsScheduled, LogFlushed, ResignRequested, TimePassed
from tests.raft.core.builders import Harness, fetch, of_type, replica, vote
from tests.raft.core.fetching import END, EPOCH, append, committed_leader, follower, kinds, leader, prepare


def refused(actions: list[Action]) -> ErrorCode:
    """The error that refused the append, which is the only action."""
    (action,) = actions
    assert isinstance(action, FailAppend)
    return action.error


def what_it_holds(harness: Harness) -> tuple[int, int, int]:
    accumulator = harness.leading.accumulator
    return accumulator.next_offset, accumulator.pending_bytes, harness.replica.log_end_offset


# --- prepared, then scheduled -----------------------------------------------------------------------------------------


def test_li20_nothing_is_written_before_it_is_scheduled() -> None:
    harness = committed_leader()
    assert prepare(harness, append_id=7, record_count=3) == []
    assert harness.step(TimePassed()) == []
    assert harness.replica.log_end_offset == END


def test_li20_an_append_has_its_offsets_as_soon_as_it_is_prepared() -> None:
    harness = committed_leader()
    assert harness.replica.next_append_offset == END
    prepare(harness, append_id=7, record_count=3)
    assert harness.replica.next_append_offset == END + 3


def test_li20_a_scheduled_append_is_written_and_flushed() -> None:
    actions = append(committed_leader(), append_id=7, record_count=3, body=b"abc")
    assert actions == [AppendRecords(Offset(END), Epoch(EPOCH), b"abc", 3), FlushLog(Offset(END + 3))]


def test_li25_what_is_prepared_after_the_schedule_stays() -> None:
    harness = committed_leader()
    append(harness, append_id=7)
    prepare(harness, append_id=8)
    assert of_type(AppendRecords, harness.flush()) == []
    assert harness.replica.log_end_offset == END + 1


def test_li25_one_schedule_lets_everything_that_is_prepared_go() -> None:
    harness = committed_leader()
    for append_id in (7, 8, 9):
        prepare(harness, append_id, record_count=2, body=b"%d" % append_id)
    actions = harness.step(AppendsScheduled())
    assert actions[0] == AppendRecords(Offset(END), Epoch(EPOCH), b"789", 6)


# --- group commit -----------------------------------------------------------------------------------------------------


def test_appends_gather_while_a_flush_is_under_way_and_leave_as_one_batch() -> None:
    harness = committed_leader()
    append(harness, append_id=7, body=b"first")
    for append_id, body in ((8, b"a"), (9, b"b"), (10, b"c")):
        assert append(harness, append_id, body=body) == []
    actions = harness.step(LogFlushed(Offset(END + 1)))
    assert actions == [AppendRecords(Offset(END + 1), Epoch(EPOCH), b"abc", 3), FlushLog(Offset(END + 4))]


def test_li22_appends_that_do_not_fit_into_one_batch_become_several_and_none_is_split() -> None:
    harness = committed_leader(batch_bytes_max=10)
    append(harness)
    for append_id, body in enumerate((b"aaaaa", b"bbbbb", b"cccc", b"dddddddddd", b"e"), start=8):
        append(harness, append_id, body=body)
    actions = harness.step(LogFlushed(Offset(END + 1)))
    assert [action.body for action in of_type(AppendRecords, actions)] == [b"aaaaabbbbb", b"cccc", b"dddddddddd", b"e"]
    assert [action.base_offset for action in of_type(AppendRecords, actions)] == [2, 4, 5, 6]
    assert of_type(FlushLog, actions) == [FlushLog(Offset(7))]


def test_li24_the_leader_change_is_a_batch_of_its_own_before_all_appends() -> None:
    harness = leader()
    assert append(harness)[0] == AppendRecords(Offset(1), Epoch(EPOCH), b"body", 1)


# --- committed --------------------------------------------------------------------------------------------------------


def test_li28_an_append_is_complete_when_its_last_record_is_committed() -> None:
    harness = committed_leader()
    append(harness, append_id=7, record_count=3)
    harness.flush()
    assert of_type(CompleteAppend, harness.deliver(fetch(2, EPOCH, END + 2, EPOCH))) == []
    assert of_type(CompleteAppend, harness.deliver(fetch(2, EPOCH, END + 3, EPOCH))) == [CompleteAppend(7)]


def test_li28_appends_of_one_batch_complete_in_the_order_in_which_they_were_prepared() -> None:
    harness = committed_leader()
    for append_id in (9, 7, 8):
        prepare(harness, append_id)
    harness.step(AppendsScheduled())
    harness.flush()
    actions = harness.deliver(fetch(3, EPOCH, END + 3, EPOCH))
    assert of_type(CompleteAppend, actions) == [CompleteAppend(9), CompleteAppend(7), CompleteAppend(8)]


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_li21_an_append_for_another_epoch_is_refused(epoch: int) -> None:
    harness = committed_leader()
    before = what_it_holds(harness)
    assert refused(harness.step(AppendPrepared(7, Epoch(epoch), b"x", 1))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert what_it_holds(harness) == before


def test_li21_an_append_at_a_follower_is_refused() -> None:
    assert refused(follower().step(AppendPrepared(7, Epoch(1), b"x", 1))) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_li21_an_append_that_is_larger_than_a_batch_is_refused() -> None:
    harness = committed_leader(batch_bytes_max=10)
    before = what_it_holds(harness)
    assert refused(prepare(harness, body=b"x" * 11)) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert what_it_holds(harness) == before
    assert prepare(harness, body=b"x" * 10) == []


def test_li21_more_appends_than_may_wait_are_refused_until_some_are_committed() -> None:
    harness = committed_leader(pending_append_bytes_max=10)
    append(harness, append_id=7, body=b"x" * 6)
    prepare(harness, append_id=8, body=b"y" * 4)
    assert refused(prepare(harness, append_id=9, body=b"z")) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    harness.flush()
    assert refused(prepare(harness, append_id=10, body=b"z")) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    harness.ask(fetch(2, EPOCH, END + 1, EPOCH))
    assert prepare(harness, append_id=11, body=b"z") == []
    assert harness.replica.next_append_offset == END + 3


# --- lost -------------------------------------------------------------------------------------------------------------


def test_li26_every_append_that_is_not_committed_fails_when_leadership_is_lost() -> None:
    harness = committed_leader()
    append(harness, append_id=7)  # written
    append(harness, append_id=8)  # scheduled
    prepare(harness, append_id=9)
    actions = harness.deliver(vote(2, EPOCH + 1, last_epoch=EPOCH, last_offset=END))
    failed = of_type(FailAppend, actions)
    assert [(action.append_id, action.error) for action in failed] == [
        (append_id, ErrorCode.NOT_LEADER_OR_FOLLOWER) for append_id in (7, 8, 9)
    ]
    assert of_type(AppendRecords, harness.step(LogFlushed(Offset(END + 1)))) == []


def test_li26_an_append_after_the_resignation_is_refused() -> None:
    harness = committed_leader()
    harness.step(ResignRequested(harness.leading.epoch))
    assert refused(harness.step(AppendPrepared(7, Epoch(EPOCH), b"x", 1))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert harness.step(AppendsScheduled()) == []


def test_li26_a_new_leadership_begins_with_nothing_to_write() -> None:
    harness = replica(voter_count=3).make_leader()
    append(harness, append_id=7)
    harness.make_follower(2, 2)
    harness.flush()
    harness.make_leader()
    assert kinds(harness.step(AppendsScheduled())) == []
    assert harness.replica.next_append_offset == harness.replica.log_end_offset


# --- the accumulator by itself ----------------------------------------------------------------------------------------


def test_the_accumulator_counts_bytes_until_they_are_committed() -> None:
    accumulator = Accumulator(Offset(5))
    accumulator.prepare(1, b"aaa", 2)
    accumulator.prepare(2, b"bb", 1)
    accumulator.schedule()
    assert list(accumulator.drain(100)) == [DrainedBatch(b"aaabb", 3)]
    assert (accumulator.pending_bytes, accumulator.has_scheduled) == (5, False)
    assert accumulator.take_committed(Offset(7)) == [1]
    assert accumulator.pending_bytes == 2
    assert accumulator.take_all() == [2]
    assert accumulator.pending_bytes == 0
