"""A voter that lost durable records to damage neither votes nor counts until it has them (RF-110, invariant 25)."""

from __future__ import annotations

import pytest

from kraftbase.types import Epoch, Offset
from raft.core.actions import EndRecovering, Reply
from raft.core.messages import DescribeQuorumRequest, VoteResponse
from raft.core.states import Role
from raft.core.types import UNKNOWN_UNTIL_OFFSET, OffsetAndEpoch, RecoveringLog
from tests.raft.core.builders import (
    Harness,
    batch,
    begin_quorum_epoch,
    election_state,
    fetch,
    fetch_response,
    key,
    of_type,
    replica,
    vote,
)
from tests.raft.core.fetching import fetch_request, kinds, leader, the_fetch

DAMAGED_IN = 4
"""The epoch in which the damage was found."""

UNTIL = 9


def recovering(*, until: int = UNTIL, epoch: int = DAMAGED_IN, **settings: object) -> Harness:
    """Voter 1 of three, whose log ends at 5 and once ended at 9."""
    made: dict[str, object] = {"log": [(1, 5)], "election_state": election_state(DAMAGED_IN), **settings}
    return replica(recovering=RecoveringLog(Offset(until), Epoch(epoch), "a test"), **made)  # type: ignore[arg-type]


def follow(harness: Harness, epoch: int = DAMAGED_IN) -> Harness:
    harness.sent.clear()
    return harness.make_follower(2, epoch)


@pytest.mark.parametrize("pre_vote", [True, False])
def test_invariant_25_it_grants_no_vote(pre_vote: bool) -> None:
    harness = recovering()
    answer = harness.ask(vote(2, DAMAGED_IN + 1, last_epoch=3, last_offset=99, pre_vote=pre_vote))
    assert isinstance(answer, VoteResponse)
    assert not answer.vote_granted


@pytest.mark.parametrize(
    "found",
    [
        election_state(DAMAGED_IN),
        election_state(DAMAGED_IN, leader_id=1, voted_key=key(1)),
        election_state(DAMAGED_IN, voted_key=key(1)),
        election_state(DAMAGED_IN, leader_id=2),
    ],
    ids=["unattached", "it led", "it was a candidate", "it followed"],
)
def test_invariant_25_it_never_asks_for_votes(found: object) -> None:
    harness = recovering(election_state=found)
    for _ in range(40):
        harness.advance(500)
        assert harness.role not in (Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER)


def test_invariant_25_a_vote_that_was_given_is_remembered() -> None:
    harness = recovering(election_state=election_state(DAMAGED_IN, voted_key=key(1)))
    assert harness.state.voted_key == key(1)


def test_invariant_25_its_fetches_say_so_and_it_asks_others_when_the_leader_is_silent() -> None:
    harness = follow(recovering())
    first = the_fetch(harness)
    assert fetch_request(first).recovering
    harness.fail(first)
    harness.advance(5_000)
    assert {send.destination for send in harness.sent} > {first.destination}


def test_invariant_25_it_takes_part_again_when_all_of_it_is_back_and_flushed() -> None:
    harness = follow(recovering())
    actions = harness.answer(the_fetch(harness), fetch_response(2, DAMAGED_IN, batch(5, 4, 2), high_watermark=5))
    assert EndRecovering not in kinds(actions)
    assert EndRecovering in kinds(harness.flush())
    assert not harness.replica.is_recovering
    assert not fetch_request(the_fetch(harness)).recovering
    harness.advance(3_000)
    assert harness.role in (Role.PROSPECTIVE, Role.FOLLOWER)
    harness.time_out()


def test_invariant_25_part_of_it_is_not_enough_in_the_same_epoch() -> None:
    """The leader may still count a fetch that was sent before the damage."""
    harness = follow(recovering())
    harness.answer(the_fetch(harness), fetch_response(2, DAMAGED_IN, batch(5, 3, 2), high_watermark=8))
    harness.flush()
    assert harness.replica.is_recovering


def test_invariant_25_what_a_later_leader_has_committed_is_enough() -> None:
    """Its log never held the rest: what this replica had acknowledged beyond was not committed."""
    harness = follow(recovering(), DAMAGED_IN + 1)
    harness.answer(the_fetch(harness), fetch_response(2, DAMAGED_IN + 1, batch(5, 2, 2), high_watermark=8))
    harness.flush()
    assert harness.replica.is_recovering, "more is committed than it has"
    harness.answer(the_fetch(harness), fetch_response(2, DAMAGED_IN + 1, batch(7, 1, 5), high_watermark=8))
    harness.flush()
    assert not harness.replica.is_recovering


def test_invariant_25_a_later_leader_that_has_committed_nothing_yet_says_nothing() -> None:
    harness = follow(recovering(), DAMAGED_IN + 1)
    harness.answer(the_fetch(harness), fetch_response(2, DAMAGED_IN + 1, batch(5, 2, 2), high_watermark=-1))
    harness.flush()
    assert harness.replica.is_recovering


@pytest.mark.parametrize("until", [UNTIL, UNKNOWN_UNTIL_OFFSET])
def test_invariant_25_all_that_the_leader_has_is_enough_in_the_same_epoch(until: int) -> None:
    """Records that it acknowledged in this epoch are from this leader, which also has all that was committed before."""
    harness = follow(recovering(until=until))
    harness.answer(the_fetch(harness), fetch_response(2, DAMAGED_IN, batch(5, 2, 2), high_watermark=5))
    harness.flush()
    assert harness.replica.is_recovering, "there may be more"
    actions = harness.answer(the_fetch(harness), fetch_response(2, DAMAGED_IN, high_watermark=5))
    assert EndRecovering in kinds(actions)
    assert not harness.replica.is_recovering


def test_invariant_25_records_that_there_was_no_room_for_are_not_taken_for_none() -> None:
    harness = follow(recovering())
    harness.answer(the_fetch(harness), fetch_response(2, DAMAGED_IN, high_watermark=5), is_without_room=True)
    assert harness.replica.is_recovering


def test_invariant_25_an_answer_that_cuts_the_log_is_not_taken_for_its_end() -> None:
    harness = follow(recovering())
    diverging = OffsetAndEpoch(offset=Offset(3), epoch=Epoch(1))
    harness.answer(the_fetch(harness), fetch_response(2, DAMAGED_IN, high_watermark=3, diverging_epoch=diverging))
    assert harness.replica.log_end_offset == 3
    assert harness.replica.is_recovering


def test_invariant_25_it_waits_for_an_election_like_others_once_it_is_back() -> None:
    """Everything was there when it started, and only the word of it was left behind by a crash."""
    harness = recovering(until=5)
    assert of_type(EndRecovering, harness.started)
    harness.make_prospective()


def test_invariant_25_the_leader_does_not_count_it_but_is_kept_by_it() -> None:
    harness = leader()
    harness.ask(fetch(2, 1, 1, 1, recovering=True))
    assert harness.replica.high_watermark == -1
    answer = harness.ask(DescribeQuorumRequest())
    assert [voter.is_recovering for voter in answer.voters] == [False, True, False]
    harness.advance(2_900)
    harness.ask(fetch(2, 1, 1, 1, recovering=True))
    harness.advance(2_900)
    assert harness.replica.is_leader
    harness.ask(fetch(2, 1, 1, 1))
    assert harness.replica.high_watermark == 1


def test_invariant_25_it_follows_who_leads() -> None:
    harness = recovering()
    actions = harness.deliver(begin_quorum_epoch(3, DAMAGED_IN + 2))
    assert of_type(Reply, actions)
    assert (harness.role, harness.leader_id) == (Role.FOLLOWER, 3)
