"""Which fetches a leader answers at once and which it parks, and what completes a parked fetch (PK-01 to PK-12).

Rules that tests here are named after: PK-02, PK-03, PK-04, PK-06, PK-08, PK-09, PK-11.
"""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT, UNKNOWN_HIGH_WATERMARK
from kraftbase.types import Offset
from raft.core.actions import AdvanceHighWatermark, AppendRecords, CompleteAppend, FailAppend, FlushLog, LogRange, Reply
from raft.core.events import LogFlushed, RequestCancelled, ResignRequested
from raft.core.messages import FetchResponse
from tests.raft.core.builders import Harness, fetch, of_type, vote
from tests.raft.core.fetching import (
    END,
    EPOCH,
    append,
    committed_leader,
    fetch_reads,
    fetch_replies,
    kinds,
    leader,
    point,
)


def parked(harness: Harness) -> int:
    return len(harness.leading.purgatory)


# --- at once ----------------------------------------------------------------------------------------------------------


def test_pk01_a_fetch_with_an_error_is_answered_at_once() -> None:
    harness = committed_leader()
    answer = harness.ask(fetch(2, EPOCH + 1, END, EPOCH, high_watermark=END))
    assert answer.error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert harness.reads is None


def test_pk01_a_fetch_for_which_there_are_records_is_answered_at_once() -> None:
    harness = committed_leader()
    harness.ask(fetch(2, EPOCH, 0, 0, high_watermark=END))
    assert harness.reads == LogRange(start_offset=Offset(0), max_bytes=1024 * 1024)


def test_pk01_a_fetch_that_does_not_want_to_wait_is_answered_at_once() -> None:
    harness = committed_leader()
    answer = harness.ask(fetch(2, EPOCH, END, EPOCH, high_watermark=END, max_wait_ms=0))
    assert (answer.error, harness.reads, answer.high_watermark) == (ErrorCode.NONE, None, END)


def test_pk01_a_fetch_that_diverges_is_answered_at_once() -> None:
    harness = committed_leader()
    answer = harness.ask(fetch(2, EPOCH, END + 3, EPOCH, high_watermark=END))
    assert answer.diverging_epoch == point(EPOCH, END)
    assert harness.reads is None


def test_pk01_a_fetch_that_knows_a_lower_high_watermark_is_answered_at_once() -> None:
    harness = committed_leader()
    answer = harness.ask(fetch(3, EPOCH, END, EPOCH, high_watermark=END - 1))
    assert (harness.reads, answer.high_watermark) == (None, END)


def test_pk02_any_other_fetch_is_parked_for_its_max_wait() -> None:
    harness = committed_leader()
    assert harness.ask(fetch(2, EPOCH, END, EPOCH, high_watermark=END, max_wait_ms=700)) is None
    assert parked(harness) == 1
    assert fetch_replies(harness.advance(699)) == []
    assert parked(harness) == 1
    assert len(fetch_replies(harness.advance(1))) == 1
    assert parked(harness) == 0


def test_pk02_a_fetch_beyond_the_bound_of_the_purgatory_is_answered_at_once() -> None:
    harness = committed_leader(parked_fetches_max=2)
    idle = fetch(None, EPOCH, END, EPOCH, high_watermark=END)
    assert [harness.ask(idle), harness.ask(idle)] == [None, None]
    assert harness.ask(idle).error is ErrorCode.NONE
    assert parked(harness) == 2


@pytest.mark.parametrize(
    ("follower_knows", "leader_knows", "is_parked"),
    [
        pytest.param(UNKNOWN_HIGH_WATERMARK, False, True, id="neither knows"),
        pytest.param(HIGH_WATERMARK_NOT_SENT, False, True, id="version 17, leader does not know"),
        pytest.param(0, False, True, id="follower knows, leader does not"),
        pytest.param(UNKNOWN_HIGH_WATERMARK, True, False, id="only the leader knows"),
        pytest.param(0, True, False, id="zero is known and lower"),
        pytest.param(END - 1, True, False, id="lower"),
        pytest.param(END, True, True, id="equal"),
        pytest.param(END + 1, True, True, id="higher"),
        pytest.param(HIGH_WATERMARK_NOT_SENT, True, True, id="version 17, leader knows"),
    ],
)
def test_pk03_a_fetch_is_parked_unless_the_leader_knows_a_higher_high_watermark(
    follower_knows: int, leader_knows: bool, is_parked: bool
) -> None:
    harness = committed_leader() if leader_knows else leader()
    # An observer's fetch commits nothing, so only the high watermark decides.
    answer = harness.ask(fetch(9, EPOCH, END, EPOCH, high_watermark=follower_knows))
    assert (answer is None) is is_parked
    if answer is not None:
        assert (answer.error, harness.reads, answer.high_watermark) == (ErrorCode.NONE, None, END)


def test_pk04_what_an_answer_says_does_not_depend_on_the_version_of_the_fetch() -> None:
    answers = [
        committed_leader().ask(fetch(3, EPOCH, 0, 0, high_watermark=known, max_wait_ms=0))
        for known in (UNKNOWN_HIGH_WATERMARK, END, HIGH_WATERMARK_NOT_SENT)
    ]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].high_watermark == END


def test_pk06_a_tool_that_sends_no_high_watermark_waits_for_data() -> None:
    harness = committed_leader()
    assert harness.ask(fetch(None, EPOCH, END, EPOCH, high_watermark=HIGH_WATERMARK_NOT_SENT)) is None
    assert len(fetch_replies(append(harness))) == 1


# --- what completes a parked fetch ------------------------------------------------------------------------------------


def test_pk02_an_append_completes_the_fetches_below_it_before_the_flush() -> None:
    harness = committed_leader()
    harness.ask(fetch(3, EPOCH, END, EPOCH, high_watermark=END))
    actions = append(harness)
    assert kinds(actions) == [AppendRecords, Reply, FlushLog]
    assert fetch_reads(actions) == [LogRange(start_offset=Offset(END), max_bytes=1024 * 1024)]


def test_pk02_the_high_watermark_completes_every_fetch_that_is_behind_in_the_order_of_arrival() -> None:
    harness = leader()
    for sender_id in (8, 9, None):
        assert harness.ask(fetch(sender_id, EPOCH, END, EPOCH)) is None
    actions = harness.deliver(fetch(2, EPOCH, END, EPOCH))
    assert [response.high_watermark for response in fetch_replies(actions)] == [END] * 4
    request_ids = [reply.request_id for reply in of_type(Reply, actions)]
    assert request_ids == sorted(request_ids)


def test_pk02_an_append_answers_voters_before_the_flush_and_observers_when_it_is_committed() -> None:
    harness = committed_leader()
    for sender_id in (9, 3):
        harness.ask(fetch(sender_id, EPOCH, END, EPOCH, high_watermark=END))
    observers_request_id = harness._next_request_id - 1
    assert kinds(append(harness)) == [AppendRecords, Reply, FlushLog]
    harness.flush()
    actions = harness.deliver(fetch(3, EPOCH, END + 1, EPOCH, high_watermark=END))
    assert kinds(actions) == [CompleteAppend, Reply, AdvanceHighWatermark, Reply]
    answer = actions[1]
    assert isinstance(answer, Reply) and isinstance(answer.response, FetchResponse)
    assert answer.request_id == observers_request_id
    assert answer.response.high_watermark == END + 1
    assert isinstance(answer.reads, LogRange) and answer.reads.start_offset == END


def test_pk02_an_observer_that_says_no_high_watermark_is_answered_as_soon_as_there_is_data() -> None:
    harness = committed_leader()
    harness.ask(fetch(9, EPOCH, END, EPOCH, high_watermark=HIGH_WATERMARK_NOT_SENT))
    assert kinds(append(harness)) == [AppendRecords, FlushLog, Reply]


def test_pk01_an_observer_that_asks_for_what_is_not_committed_yet_gets_it_at_once() -> None:
    harness = committed_leader()
    append(harness)
    harness.ask(fetch(9, EPOCH, END, EPOCH, high_watermark=END))
    assert isinstance(harness.reads, LogRange)


def test_pk02_an_observer_gets_what_is_never_committed_when_its_wait_is_over() -> None:
    harness = committed_leader()
    harness.ask(fetch(9, EPOCH, END, EPOCH, high_watermark=END))
    append(harness)
    (records,) = fetch_reads(harness.advance(500))
    assert isinstance(records, LogRange)


def test_pk02_a_fetch_whose_wait_is_over_is_answered_without_error_and_empty() -> None:
    harness = committed_leader()
    harness.ask(fetch(2, EPOCH, END, EPOCH, high_watermark=END))
    actions = harness.advance(500)
    (response,) = fetch_replies(actions)
    assert (response.error, response.high_watermark) == (ErrorCode.NONE, END)
    assert fetch_reads(actions) == [None]


def test_pk02_a_leader_that_is_deposed_answers_parked_fetches_with_not_leader() -> None:
    harness = committed_leader()
    harness.ask(fetch(2, EPOCH, END, EPOCH, high_watermark=END))
    actions = harness.deliver(vote(2, EPOCH + 1, last_epoch=EPOCH, last_offset=END))
    (response,) = fetch_replies(actions)
    assert response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert response.leader.epoch == EPOCH + 1


def test_pk02_a_leader_that_resigns_answers_parked_fetches_with_not_leader_and_names_nobody() -> None:
    harness = committed_leader()
    harness.ask(fetch(2, EPOCH, END, EPOCH, high_watermark=END))
    (response,) = fetch_replies(harness.step(ResignRequested(harness.leading.epoch)))
    assert response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (response.leader.leader_id, response.leader_endpoint) == (None, None)


def test_pk02_a_fetch_whose_sender_is_gone_is_forgotten() -> None:
    harness = committed_leader()
    harness.ask(fetch(2, EPOCH, END, EPOCH, high_watermark=END))
    assert harness.step(RequestCancelled(harness._next_request_id)) == []
    assert parked(harness) == 0
    assert fetch_replies(append(harness)) == []


def test_pk03_the_high_watermark_does_not_complete_a_fetch_that_sent_none_only_data_and_time_do() -> None:
    harness = leader()
    assert harness.ask(fetch(9, EPOCH, END, EPOCH, high_watermark=HIGH_WATERMARK_NOT_SENT)) is None
    actions = harness.deliver(fetch(2, EPOCH, END, EPOCH))
    assert len(fetch_replies(actions)) == 1  # voter 2's own
    assert parked(harness) == 1
    assert len(fetch_replies(append(harness))) == 1
    assert parked(harness) == 0


def test_pk07_a_parked_fetch_is_evaluated_anew_and_not_parked_a_second_time() -> None:
    harness = leader()
    assert harness.ask(fetch(9, EPOCH, END, EPOCH, high_watermark=UNKNOWN_HIGH_WATERMARK)) is None
    actions = harness.deliver(fetch(2, EPOCH, END, EPOCH))
    assert fetch_reads(actions) == [None, None]
    assert [response.high_watermark for response in fetch_replies(actions)] == [END, END]
    assert parked(harness) == 0


def test_pk08_appends_complete_before_parked_fetches_and_those_before_listeners() -> None:
    harness = committed_leader()
    append(harness, append_id=7)
    harness.flush()
    harness.ask(fetch(9, EPOCH, END + 1, EPOCH, high_watermark=END))
    own_request_id = harness._next_request_id + 1
    actions = harness.deliver(fetch(2, EPOCH, END + 1, EPOCH, high_watermark=END))
    assert kinds(actions) == [CompleteAppend, Reply, AdvanceHighWatermark, Reply]
    assert actions[0] == CompleteAppend(7)
    assert actions[2] == AdvanceHighWatermark(Offset(END + 1))
    assert isinstance(actions[3], Reply) and actions[3].request_id == own_request_id


def test_pk08_the_order_is_the_same_when_a_flush_moves_the_high_watermark() -> None:
    harness = committed_leader()
    append(harness, append_id=7)
    harness.ask(fetch(2, EPOCH, END + 1, EPOCH, high_watermark=END))  # ahead of the leader's own disk
    actions = harness.step(LogFlushed(Offset(END + 1)))
    assert kinds(actions) == [CompleteAppend, Reply, AdvanceHighWatermark]


def test_pk09_uncommitted_records_are_sent_as_far_as_the_request_wants() -> None:
    harness = committed_leader()
    append(harness)
    answer = harness.ask(fetch(3, EPOCH, END, EPOCH, high_watermark=END, max_bytes=17))
    assert answer.high_watermark == END
    assert harness.reads == LogRange(start_offset=Offset(END), max_bytes=17)


def test_pk09_an_answer_is_bounded_whatever_is_asked_for() -> None:
    harness = committed_leader()
    harness.ask(fetch(3, EPOCH, 0, 0, max_bytes=2**31 - 1))
    assert harness.reads == LogRange(start_offset=Offset(0), max_bytes=8 * 1024 * 1024)


def test_pk10_without_a_snapshot_a_fetch_from_zero_gets_the_log_from_its_start() -> None:
    harness = committed_leader()
    answer = harness.ask(fetch(3, EPOCH, 0, 0))
    assert answer.snapshot_id is None
    assert harness.reads is not None


def test_pk11_an_idle_follower_learns_a_new_high_watermark_without_waiting() -> None:
    harness = committed_leader()
    append(harness)
    harness.flush()
    assert harness.ask(fetch(3, EPOCH, END + 1, EPOCH, high_watermark=END)) is not None  # 3 has it: committed
    before_ms = harness.now_ms
    assert harness.ask(fetch(3, EPOCH, END + 1, EPOCH, high_watermark=END + 1)) is None
    answer = harness.ask(fetch(2, EPOCH, END + 1, EPOCH, high_watermark=END))
    assert (answer.high_watermark, harness.now_ms) == (END + 1, before_ms)


def test_pk11_a_follower_of_version_17_waits_for_data_or_its_max_wait() -> None:
    harness = committed_leader()
    assert harness.ask(fetch(3, EPOCH, END, EPOCH, high_watermark=HIGH_WATERMARK_NOT_SENT)) is None
    (response,) = fetch_replies(harness.advance(500))
    assert response.high_watermark == END


def test_li26_a_deposed_leader_fails_appends_before_it_answers_parked_fetches() -> None:
    harness = committed_leader()
    append(harness, append_id=7)
    harness.ask(fetch(9, EPOCH, END + 1, EPOCH, high_watermark=END))
    actions = harness.step(ResignRequested(harness.leading.epoch))
    kinds = [type(action) for action in actions if isinstance(action, FailAppend | Reply)]
    assert kinds == [FailAppend, Reply]
