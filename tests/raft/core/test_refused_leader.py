"""A leader that lacks committed records is refused, and nothing is truncated (RF-111, LEADER_LACKS_COMMITTED)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftbase.types import Epoch, Offset
from raft.core.actions import Action, EndRecovering, ReportRefusedLeader, Send, TruncateFullyAndStartAt, TruncateLog
from raft.core.messages import DescribeQuorumRequest, FetchRequest
from raft.core.states import Role
from raft.core.types import UNKNOWN_UNTIL_OFFSET, CommittedGap, OffsetAndEpoch, RecoveringLog
from tests.raft.core.builders import (
    Harness,
    batch,
    begin_quorum_epoch,
    endpoint,
    fetch,
    fetch_response,
    of_type,
    replica,
    vote,
)
from tests.raft.core.fetching import committed_leader, fetch_request, follower, leader, point, the_fetch

LEADS = 5
"""The epoch that voter 2 leads."""

LOG = [(1, 5), (3, 4)]


def knows(known_by: str, log: list[tuple[int, int]] | None = None, **settings: Any) -> Harness:
    """Follows voter 2. Its log ends at 9, and it knows that everything below 7 is committed."""
    if known_by == "what was applied":
        return follower(LEADS, log=log or LOG, applied=point(3, 7), **settings)
    harness = follower(LEADS, log=log or LOG, **settings)
    harness.replica_state.high_watermark = Offset(7)
    return harness


KNOWN_BY = ["its high watermark", "what was applied"]


def diverges(harness: Harness, epoch: int = 1, offset: int = 6, send: Send | None = None) -> list[Action]:
    """The leader answers that its own log diverges from this one there."""
    response = fetch_response(harness.leader_id, harness.epoch, diverging_epoch=point(epoch, offset))
    return harness.answer(send or the_fetch(harness), response)


def asked_leader(harness: Harness) -> Send:
    """Time passes until it asks the leader again; no other voter is up."""
    for _ in range(300):
        for send in harness.sent:
            if send.destination == endpoint(2) and isinstance(send.request, FetchRequest):
                return send
            harness.fail(send)
        harness.advance(1)
    raise AssertionError("it does not ask the leader")


# --- which leaders are refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("known_by", KNOWN_BY)
def test_nothing_is_cut_below_what_is_committed_and_the_leader_is_not_followed(known_by: str) -> None:
    harness = knows(known_by)
    actions = diverges(harness)
    assert not of_type(TruncateLog, actions)
    assert harness.replica.log_end_offset == 9
    assert (harness.role, harness.leader_id) == (Role.UNATTACHED, 2)
    (report,) = of_type(ReportRefusedLeader, actions)
    assert report.refused is not None
    assert report.refused.gap == CommittedGap(agreed_offset=Offset(5), committed_offset=Offset(7))


@pytest.mark.parametrize("known_by", KNOWN_BY)
def test_what_is_not_known_as_committed_is_cut_as_ever(known_by: str) -> None:
    harness = knows(known_by, [(1, 7), (3, 2)] if known_by == "its high watermark" else [(3, 7), (4, 2)])
    actions = diverges(harness, 1 if known_by == "its high watermark" else 3, 8)
    assert of_type(TruncateLog, actions) == [TruncateLog(Offset(7))]
    assert harness.role is Role.FOLLOWER


@pytest.mark.parametrize("known_by", KNOWN_BY)
@pytest.mark.parametrize(
    ("snapshot_id", "agreed_offset"),
    [(point(4, 6), 6), (point(4, 7), 6), (point(2, 8), 6), (point(2, 20), 6)],
    ids=["it ends below", "it ends there, with another record", "it is of an older epoch", "that, further on"],
)
def test_a_snapshot_that_lacks_what_is_committed_is_not_taken(
    known_by: str, snapshot_id: OffsetAndEpoch, agreed_offset: int
) -> None:
    harness = knows(known_by)
    harness.answer(the_fetch(harness), fetch_response(2, LEADS, snapshot_id=snapshot_id))
    assert harness.replica.refused_leader is not None
    assert harness.replica.refused_leader.gap.agreed_offset == agreed_offset
    assert harness.role is Role.UNATTACHED
    assert not of_type(TruncateFullyAndStartAt, harness.advance(10_000))
    assert harness.replica.log_end_offset == 9


@pytest.mark.parametrize("known_by", KNOWN_BY)
def test_a_snapshot_that_may_hold_it_is_fetched(known_by: str) -> None:
    harness = knows(known_by)
    harness.answer(the_fetch(harness), fetch_response(2, LEADS, snapshot_id=point(4, 8)))
    assert harness.role is Role.FOLLOWER
    assert harness.replica_state.snapshot_fetch is not None


# --- while it refuses -------------------------------------------------------------------------------------------------


def test_it_asks_the_leader_again_but_not_as_fast_as_it_answers_and_says_why() -> None:
    harness = knows("what was applied")
    actions = diverges(harness)
    asked = [send.destination for send in of_type(Send, actions)]
    assert endpoint(2) not in asked
    request = fetch_request(asked_leader(harness))
    assert request.leader_lacks == CommittedGap(Offset(5), Offset(7))


def test_it_does_not_follow_that_leader_whoever_names_it() -> None:
    harness = knows("what was applied")
    diverges(harness)
    harness.ask(begin_quorum_epoch(2, LEADS))
    assert harness.role is Role.UNATTACHED
    harness.make_prospective()
    harness.ask(begin_quorum_epoch(2, LEADS))
    assert harness.role is Role.PROSPECTIVE


def test_it_says_so_once_however_often_the_leader_shows_it() -> None:
    harness = knows("what was applied")
    diverges(harness)
    for answers in (2, 3):
        assert not of_type(ReportRefusedLeader, diverges(harness, send=asked_leader(harness)))
        assert harness.replica.refused_leader is not None
        assert harness.replica.refused_leader.answers == answers


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize(
    ("last_epoch", "last_offset", "granted"),
    [(4, 6, False), (4, 7, True), (3, 9, True), (3, 8, False), (LEADS, 99, True)],
)
def test_it_votes_for_nobody_whose_log_ends_below_what_is_committed(
    pre_vote: bool, last_epoch: int, last_offset: int, granted: bool
) -> None:
    harness = knows("what was applied")
    diverges(harness)
    answer = harness.ask(vote(3, LEADS + 1, last_epoch=last_epoch, last_offset=last_offset, pre_vote=pre_vote))
    assert answer.vote_granted is granted


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize(("last_epoch", "granted"), [(LEADS, False), (LEADS - 1, True)])
def test_it_votes_for_no_log_of_a_leader_that_has_shown_a_gap_twice(
    pre_vote: bool, last_epoch: int, granted: bool
) -> None:
    harness = knows("what was applied")
    diverges(harness)
    diverges(harness, send=asked_leader(harness))
    answer = harness.ask(vote(3, LEADS + 1, last_epoch=last_epoch, last_offset=99, pre_vote=pre_vote))
    assert answer.vote_granted is granted


# --- how it ends ------------------------------------------------------------------------------------------------------


def test_it_follows_the_leader_of_the_next_epoch() -> None:
    harness = knows("what was applied")
    diverges(harness)
    harness.sent.clear()
    harness.ask(begin_quorum_epoch(3, LEADS + 1))
    assert harness.role is Role.FOLLOWER
    assert fetch_request(the_fetch(harness)).leader_lacks is None
    assert harness.replica.refused_leader is not None, "until the next one has shown that it lacks nothing"


def test_it_is_over_when_another_leader_goes_on_with_its_log() -> None:
    harness = knows("what was applied")
    diverges(harness)
    harness.sent.clear()
    harness.ask(begin_quorum_epoch(3, LEADS + 1))
    actions = harness.answer(the_fetch(harness), fetch_response(3, LEADS + 1, batch(9, 1, LEADS + 1)))
    assert of_type(ReportRefusedLeader, actions) == [ReportRefusedLeader(None)]
    assert harness.replica.refused_leader is None


def test_it_is_elected_when_the_leader_is_gone_and_then_it_is_over() -> None:
    harness = knows("what was applied")
    diverges(harness)
    harness.make_leader()
    assert harness.replica.refused_leader is None
    assert harness.replica.log_end_offset == 10, "with all that it had"


def test_a_leader_that_shows_no_gap_any_more_is_followed_again() -> None:
    """Its log only grows, so the first answer was a mistake."""
    harness = knows("what was applied")
    diverges(harness)
    actions = harness.answer(asked_leader(harness), fetch_response(2, LEADS, high_watermark=9))
    assert of_type(ReportRefusedLeader, actions) == [ReportRefusedLeader(None)]
    assert harness.role is Role.FOLLOWER
    assert fetch_request(the_fetch(harness)).leader_lacks is None


def test_an_observer_waits_for_another_leader() -> None:
    harness = knows("what was applied", observer=True)
    diverges(harness)
    harness.advance(20_000)
    assert harness.role is Role.UNATTACHED


# --- a log that lacks applied records ---------------------------------------------------------------------------------


def rolled_back(log: list[tuple[int, int]], **settings: Any) -> Harness:
    """Follows voter 2, has applied everything below 7, the last record of epoch 3, and its log is as given."""
    lost = RecoveringLog(UNKNOWN_UNTIL_OFFSET, Epoch(LEADS), "a test")
    return follower(LEADS, log=log, applied=point(3, 7), recovering=lost, **settings)


def answers(harness: Harness, *records: Any, is_without_room: bool = False, **changes: Any) -> list[Action]:
    response = fetch_response(2, LEADS, *records, **changes)
    actions = harness.answer(the_fetch(harness), response, is_without_room=is_without_room)
    return actions + harness.flush()


@pytest.mark.parametrize("observer", [True, False])
def test_it_recovers_until_it_has_what_it_applied_and_all_that_the_leader_has(observer: bool) -> None:
    harness = rolled_back([(1, 4)], observer=observer)
    assert not of_type(EndRecovering, answers(harness, batch(4, 1, 1), batch(5, 2, 3), high_watermark=7))
    assert of_type(EndRecovering, answers(harness, high_watermark=7))


def test_what_a_later_leader_knows_as_committed_is_not_enough_below_what_it_applied() -> None:
    lost = RecoveringLog(UNKNOWN_UNTIL_OFFSET, Epoch(LEADS - 1), "a test")
    harness = follower(LEADS, log=[(1, 4)], applied=point(3, 7), recovering=lost)
    assert not of_type(EndRecovering, answers(harness, batch(4, 1, 1), high_watermark=4))
    assert harness.replica.is_recovering
    assert of_type(EndRecovering, answers(harness, batch(5, 2, 3), high_watermark=4))


def test_an_old_tail_is_cut_below_what_was_applied() -> None:
    """It was never committed: applied records had replaced it before the log was restored to the older one."""
    harness = rolled_back([(1, 4), (2, 5)])
    actions = answers(harness, diverging_epoch=point(1, 5))
    assert of_type(TruncateLog, actions) == [TruncateLog(Offset(4))]
    assert harness.role is Role.FOLLOWER


@pytest.mark.parametrize(
    ("records", "agreed_offset"),
    [
        ((), 4),
        ((batch(4, 3, 4),), 6),
        ((batch(4, 9, 3),), 6),
    ],
    ids=["its log ends before", "it has another record there", "it has no batch that ends there"],
)
def test_a_leader_that_does_not_bring_it_back_is_refused(records: tuple[Any, ...], agreed_offset: int) -> None:
    harness = rolled_back([(1, 4)])
    answers(harness, *records, high_watermark=4)
    assert harness.replica.refused_leader is not None
    assert harness.replica.refused_leader.gap == CommittedGap(Offset(agreed_offset), Offset(7))
    assert harness.replica.is_recovering
    assert harness.replica.log_end_offset == 4, "other records than the applied ones are not taken"


def test_a_leader_that_agrees_with_a_log_that_lacks_it_is_refused() -> None:
    harness = rolled_back([(1, 4), (4, 5)])
    answers(harness, high_watermark=9)
    assert harness.replica.refused_leader is not None
    assert harness.replica.refused_leader.gap == CommittedGap(Offset(6), Offset(7))
    assert harness.replica.high_watermark == -1, "nor is its high watermark taken"


def test_no_room_is_no_gap() -> None:
    harness = rolled_back([(1, 4)])
    answers(harness, high_watermark=4, is_without_room=True)
    assert harness.role is Role.FOLLOWER


def test_it_knows_what_is_committed_only_when_it_has_what_it_applied() -> None:
    harness = rolled_back([(1, 4)])
    answers(harness, batch(4, 1, 1), high_watermark=9)
    assert harness.replica.high_watermark == -1
    answers(harness, batch(5, 2, 3), high_watermark=9)
    assert harness.replica.high_watermark == 7


# --- the leader that is refused ---------------------------------------------------------------------------------------

GAP = CommittedGap(Offset(1), Offset(40))


def test_a_leader_shows_who_refuses_it_and_does_not_count_it() -> None:
    harness = leader()
    harness.ask(fetch(2, 1, 1, 1, leader_lacks=GAP, max_wait_ms=0))
    assert harness.replica.high_watermark == -1, "it does not count for a commit"
    answer = harness.ask(DescribeQuorumRequest())
    assert [voter.leader_lacks for voter in answer.voters] == [None, GAP, None]
    harness.ask(fetch(2, 1, 1, 1))
    assert harness.replica.high_watermark == 1
    answer = harness.ask(DescribeQuorumRequest())
    assert [voter.leader_lacks for voter in answer.voters] == [None, None, None]


def test_a_leader_that_is_refused_by_too_many_resigns() -> None:
    harness = committed_leader()
    for _ in range(10):
        harness.advance(1_000)
        if harness.role is Role.LEADER:
            for voter in (2, 3):
                harness.ask(fetch(voter, harness.epoch, 1, 1, leader_lacks=GAP, max_wait_ms=0))
    assert not harness.replica.is_leader


def test_an_observer_that_refuses_the_leader_is_shown() -> None:
    harness = committed_leader()
    harness.ask(fetch(9, 1, 40, 1, leader_lacks=GAP, max_wait_ms=0))
    answer = harness.ask(DescribeQuorumRequest())
    assert [observer.leader_lacks for observer in answer.observers] == [GAP]


def test_a_gap_that_cannot_be_is_an_invalid_request() -> None:
    harness = committed_leader()
    answer = harness.ask(fetch(2, 1, 1, 1, leader_lacks=CommittedGap(Offset(-1), Offset(3))))
    assert answer.error.name == "INVALID_REQUEST"


def test_a_replica_that_applied_nothing_is_as_before() -> None:
    assert replica().replica_state.committed_offset == 0
