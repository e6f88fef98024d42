"""The effects of a state change on votes, timers, the high watermark, the disk, connections (RF-08 to RF-13).

Rules that tests here are named after: RF-09, RF-10, RF-11, RF-97.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK
from kraftbase.types import Epoch, Offset
from raft.core.actions import Action, AnnounceLeader, PersistElectionState, Send
from raft.core.events import ResignRequested, TimePassed
from raft.core.messages import VoteRequest
from raft.core.states import Candidate, Follower, Prospective, Resigned, Role, Unattached
from tests.effort import some
from tests.raft.core.builders import (
    Harness,
    batch,
    begin_quorum_epoch,
    election_state,
    endpoint,
    fetch,
    fetch_response,
    key,
    leader_and_epoch,
    of_type,
    replica,
    vote,
    vote_response,
)

TIMEOUT_MS = 1_000


def written(actions: list[Action]) -> list[PersistElectionState]:
    return of_type(PersistElectionState, actions)


def election_deadline_ms(harness: Harness) -> int:
    state = harness.state
    assert isinstance(state, Unattached | Prospective | Candidate | Resigned)
    assert state.election_deadline_ms is not None
    return state.election_deadline_ms


# --- votes ----------------------------------------------------------------------------------------------------------


def test_rf08_following_the_winner_keeps_the_vote_of_the_epoch() -> None:
    harness = replica(election_state=election_state(5, voted_key=key(2)))
    actions = harness.deliver(begin_quorum_epoch(3, 5))
    assert isinstance(harness.state, Follower)
    assert harness.state.voted_key == key(2)
    assert written(actions) == [PersistElectionState(election_state(5, leader_id=3, voted_key=key(2)))]


def test_rf08_a_candidate_that_lost_keeps_its_own_vote_as_follower() -> None:
    harness = replica().make_candidate().make_follower(3, 1)
    assert isinstance(harness.state, Follower)
    assert harness.state.voted_key == key(1)


def test_rf08_the_vote_is_kept_through_follower_prospective_and_back() -> None:
    harness = replica(election_state=election_state(5, leader_id=3, voted_key=key(2))).make_prospective()
    assert harness.state.voted_key == key(2)
    harness.time_out()
    assert isinstance(harness.state, Follower)
    assert harness.state.voted_key == key(2)


def test_rf08_a_higher_epoch_forgets_the_vote() -> None:
    harness = replica(election_state=election_state(5, voted_key=key(2))).make_follower(3, 6)
    assert harness.state.voted_key is None


# --- the election timer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", some(range(20), part=4))
def test_rf09_the_election_timeout_is_between_one_and_two_times_the_setting(seed: int) -> None:
    harness = replica(seed=seed)
    assert TIMEOUT_MS <= election_deadline_ms(harness) - harness.now_ms < 2 * TIMEOUT_MS


def test_rf09_election_timeouts_differ() -> None:
    assert len({election_deadline_ms(replica(seed=seed)) for seed in range(20)}) > 10


@pytest.mark.parametrize(
    "build",
    [
        lambda: replica(election_state=election_state(5)),
        lambda: replica(election_state=election_state(5)).make_prospective(),
        lambda: replica(election_state=election_state(5)).make_candidate(),
        lambda: replica(election_state=election_state(5, leader_id=1)),
    ],
    ids=["unattached", "prospective", "candidate", "resigned"],
)
def test_rf09_a_higher_epoch_leaves_the_running_election_timer_alone(build: Callable[[], Harness]) -> None:
    harness = build()
    deadline_ms = election_deadline_ms(harness)
    harness.advance(500)
    assert election_deadline_ms(harness) == deadline_ms
    harness.ask(vote(2, harness.epoch + 1, pre_vote=True))
    assert harness.role is Role.UNATTACHED
    assert election_deadline_ms(harness) == deadline_ms


@pytest.mark.parametrize(
    "build",
    [lambda: replica().make_follower(3, 5), lambda: replica().make_leader()],
    ids=["follower", "leader"],
)
def test_rf09_a_state_without_election_timer_is_left_with_a_fresh_one(build: Callable[[], Harness]) -> None:
    harness = build()
    harness.ask(vote(2, harness.epoch + 1, pre_vote=True))
    assert TIMEOUT_MS <= election_deadline_ms(harness) - harness.now_ms < 2 * TIMEOUT_MS


def test_rf09_each_candidacy_has_a_fresh_timer() -> None:
    harness = replica().make_prospective()
    harness.advance(500)
    first = election_deadline_ms(harness)
    harness.make_candidate()
    assert election_deadline_ms(harness) != first
    assert election_deadline_ms(harness) >= harness.now_ms + TIMEOUT_MS


# --- the high watermark ---------------------------------------------------------------------------------------------


def knows_a_high_watermark() -> Harness:
    """A follower of replica 3 with four records, of which three are committed."""
    harness = replica(log=[(3, 4)]).make_follower(3, 5)
    harness.answer(harness.sent[-1], fetch_response(3, 5, high_watermark=3))
    assert harness.replica.high_watermark == 3
    return harness


def test_rf10_the_high_watermark_is_kept_on_the_way_to_a_candidacy() -> None:
    harness = knows_a_high_watermark()
    assert harness.make_prospective().replica.high_watermark == 3
    assert harness.make_candidate().replica.high_watermark == 3


def test_rf10_the_high_watermark_is_kept_when_the_epoch_grows() -> None:
    harness = knows_a_high_watermark()
    harness.ask(vote(2, 6, last_epoch=3, last_offset=4))
    assert (harness.role, harness.replica.high_watermark) == (Role.UNATTACHED, 3)
    assert harness.make_follower(2, 7).replica.high_watermark == 3


def test_rf10_a_new_leader_says_that_it_knows_no_high_watermark() -> None:
    harness = knows_a_high_watermark().make_leader()
    assert harness.leading.high_watermark == UNKNOWN_HIGH_WATERMARK
    response = harness.ask(fetch(2, harness.epoch, 4, 3))
    assert response.high_watermark == UNKNOWN_HIGH_WATERMARK
    assert harness.replica.high_watermark == 3, "what is committed stays committed"


# --- the disk -------------------------------------------------------------------------------------------------------


def test_rf11_what_a_new_follower_must_remember_is_written_before_it_fetches() -> None:
    actions = replica().deliver(begin_quorum_epoch(3, 5))
    kinds = [type(action) for action in actions if isinstance(action, PersistElectionState | Send)]
    assert kinds == [PersistElectionState, Send]
    assert actions[0] == PersistElectionState(election_state(5, leader_id=3))


def test_rf11_prospective_and_resigned_write_nothing() -> None:
    harness = replica().make_follower(3, 5)
    assert written(harness.time_out()) == []
    assert harness.role is Role.PROSPECTIVE
    leader = replica().make_leader()
    assert written(leader.step(ResignRequested(Epoch(leader.epoch)))) == []
    assert isinstance(leader.state, Resigned)


def test_rf11_the_same_state_is_not_written_twice() -> None:
    harness = replica().make_follower(3, 5)
    assert written(harness.deliver(begin_quorum_epoch(3, 5, leader_endpoint=endpoint(33)))) == []


def test_rf97_a_replica_that_voted_and_learned_who_won_writes_both() -> None:
    harness = replica(election_state=election_state(5, voted_key=key(2)))
    actions = harness.deliver(begin_quorum_epoch(2, 5))
    assert written(actions) == [PersistElectionState(election_state(5, leader_id=2, voted_key=key(2)))]


# --- connections ----------------------------------------------------------------------------------------------------


def test_rf12_a_new_state_forgets_back_offs() -> None:
    harness = replica(voter_count=2, retry_backoff_ms=100_000).make_prospective()
    (send,) = [send for send in harness.sent if isinstance(send.request, VoteRequest)]
    harness.fail(send)
    assert harness.output.connections.is_backing_off(endpoint(2))
    harness.time_out()
    assert harness.role is Role.UNATTACHED
    assert [send.destination for send in harness.sent] == [endpoint(2)]


def test_rf12_the_answer_to_a_request_of_a_state_that_was_left_is_nobodys() -> None:
    harness = replica().make_follower(3, 5)
    old_fetch = harness.sent[-1]
    harness.make_follower(2, 6)
    response = fetch_response(3, 9, batch(0, 1, 5))
    assert harness.answer(old_fetch, response) == []
    assert (harness.epoch, harness.replica.log_end_offset) == (6, 0)


# --- resigned -------------------------------------------------------------------------------------------------------


def test_rf13_a_resigned_leader_opens_the_next_epoch_without_being_its_leader() -> None:
    harness = replica(election_state=election_state(5, leader_id=1, voted_key=key(1)))
    actions = harness.time_out()
    assert isinstance(harness.state, Unattached)
    assert (harness.epoch, harness.leader_id, harness.state.voted_key) == (6, None, None)
    assert written(actions) == [PersistElectionState(election_state(6))]


def test_rf13_a_resigned_leader_never_names_itself() -> None:
    harness = replica(election_state=election_state(5, leader_id=1))
    response = harness.ask(fetch(2, 5))
    assert (response.error, response.leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_and_epoch(None, 5))
    assert response.leader_endpoint is None


def test_rf13_a_resigned_leader_does_not_follow_itself() -> None:
    harness = replica(election_state=election_state(5, leader_id=1))
    for epoch in (5, 6):  # whichever peer claims that, it is not this replica
        assert harness.ask(begin_quorum_epoch(1, epoch)).error is ErrorCode.INVALID_REQUEST
        assert (harness.role, harness.epoch, harness.leader_id) == (Role.RESIGNED, 5, None)


# --- announcements --------------------------------------------------------------------------------------------------


def test_listeners_hear_of_every_new_leader_and_epoch_once() -> None:
    harness = replica()
    assert of_type(AnnounceLeader, harness.deliver(begin_quorum_epoch(3, 5))) == [
        AnnounceLeader(leader_and_epoch(3, 5), None)
    ]
    assert of_type(AnnounceLeader, harness.deliver(begin_quorum_epoch(3, 5))) == []
    assert of_type(AnnounceLeader, harness.deliver(vote(2, 6, pre_vote=True))) == [
        AnnounceLeader(leader_and_epoch(None, 6), None)
    ]


def test_a_leaders_own_announcement_says_where_its_epoch_starts() -> None:
    harness = replica(log=[(3, 4)]).make_candidate()
    (first, *_) = [send for send in harness.sent if isinstance(send.request, VoteRequest)]
    actions = harness.answer(first, vote_response(harness.epoch, granted=True))
    assert of_type(AnnounceLeader, actions) == [AnnounceLeader(leader_and_epoch(1, 4), Offset(4))]


def test_a_resignation_is_announced_as_having_no_leader() -> None:
    harness = replica().make_leader()
    actions = harness.step(ResignRequested(Epoch(1)))
    assert of_type(AnnounceLeader, actions) == [AnnounceLeader(leader_and_epoch(None, 1), None)]


def test_nothing_happens_when_only_time_passes_before_a_deadline() -> None:
    harness = replica().make_follower(3, 5)
    harness.now_ms += 1
    assert harness.step(TimePassed()) == []
