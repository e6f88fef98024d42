"""How a nominee counts the answers to its vote requests: the sender's side (RF-03, RF-21, RF-23, RF-24, RF-31)."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftbase.errors import ErrorCode, InvariantViolation
from kraftbase.types import Epoch, NodeId
from raft.core.actions import AppendLeaderChange, FlushLog, PersistElectionState, Send
from raft.core.messages import VoteRequest
from raft.core.quorum import VoteTally
from raft.core.states import Candidate, Follower, Prospective, Role, Unattached
from raft.core.types import ReplicaKey
from raft.core.voters import Voter, VoterSet
from tests.raft.core.builders import (
    CLUSTER_ID,
    Harness,
    election_state,
    endpoint,
    key,
    of_type,
    replica,
    vote_response,
)

IDS = tuple(NodeId(node_id) for node_id in (1, 2, 3, 4, 5))


def votes_sent(harness: Harness) -> list[Send]:
    return [send for send in harness.sent if isinstance(send.request, VoteRequest)]


def test_rf03_a_prospective_replica_asks_for_pre_votes_in_its_own_epoch() -> None:
    harness = replica(log=[(3, 4)]).make_prospective()
    sends = votes_sent(harness)
    assert [send.destination for send in sends] == [endpoint(2), endpoint(3)]
    assert sends[0].request == VoteRequest(
        cluster_id=CLUSTER_ID,
        voter_key=ReplicaKey(NodeId(2)),
        replica_key=key(1),
        replica_epoch=Epoch(3),
        last_epoch=Epoch(3),
        last_offset=harness.replica.log_end_offset,
        pre_vote=True,
    )


def test_rf03_a_candidate_asks_for_votes_in_the_epoch_that_it_opened() -> None:
    harness = replica(log=[(3, 4)]).make_candidate()
    requests = [send.request for send in votes_sent(harness) if isinstance(send.request, VoteRequest)]
    assert [(request.replica_epoch, request.last_epoch, request.pre_vote) for request in requests] == [
        (4, 3, False),
        (4, 3, False),
    ]


def test_rf11_a_candidate_has_its_vote_on_disk_before_it_asks() -> None:
    harness = replica().make_prospective()
    first = votes_sent(harness)[0]
    actions = harness.answer(first, vote_response(0, granted=True, pre_vote=True))
    assert actions[0] == PersistElectionState(election_state(1, voted_key=key(1)))
    assert of_type(Send, actions)


def test_a_majority_of_pre_votes_opens_the_next_epoch_and_its_own_counts() -> None:
    harness = replica(voter_count=5).make_prospective()
    first, second, *_ = votes_sent(harness)
    harness.answer(first, vote_response(0, granted=True, pre_vote=True))
    assert (harness.role, harness.epoch) == (Role.PROSPECTIVE, 0)
    harness.answer(second, vote_response(0, granted=True, pre_vote=True))
    assert (harness.role, harness.epoch) == (Role.CANDIDATE, 1)


def test_a_majority_of_votes_makes_a_leader_who_persists_appends_and_flushes_in_that_order() -> None:
    harness = replica().make_candidate()
    actions = harness.answer(votes_sent(harness)[0], vote_response(1, granted=True))
    assert (harness.role, harness.leader_id) == (Role.LEADER, 1)
    own = [action for action in actions if isinstance(action, PersistElectionState | AppendLeaderChange | FlushLog)]
    assert [type(action) for action in own] == [PersistElectionState, AppendLeaderChange, FlushLog]
    assert own[0] == PersistElectionState(election_state(1, leader_id=1, voted_key=key(1)))
    assert isinstance(own[1], AppendLeaderChange)
    assert [voter.node_id for voter in own[1].record.granting_voters] == [1, 2]


def test_a_majority_that_rejects_a_pre_vote_sends_it_back_to_the_leader_it_knows() -> None:
    harness = replica().make_follower(3, 5).make_prospective()
    for send in votes_sent(harness):
        harness.answer(send, vote_response(5, granted=False, pre_vote=True, leader_id=3))
    assert isinstance(harness.state, Follower)
    assert (harness.epoch, harness.leader_id) == (5, 3)


def test_a_majority_that_rejects_a_pre_vote_leaves_it_unattached_with_its_vote_and_leader_id() -> None:
    stored = election_state(5, leader_id=8, voted_key=key(2))
    harness = replica(election_state=stored).make_prospective()
    for send in votes_sent(harness):
        harness.answer(send, vote_response(5, granted=False, pre_vote=True))
    assert isinstance(harness.state, Unattached)
    assert (harness.epoch, harness.leader_id, harness.state.voted_key) == (5, 8, key(2))


def test_rf31_a_candidate_that_lost_waits_out_its_timeout_then_asks_for_pre_votes() -> None:
    harness = replica().make_candidate()
    for send in votes_sent(harness):
        harness.answer(send, vote_response(1, granted=False))
    assert (harness.role, harness.epoch) == (Role.CANDIDATE, 1)
    harness.time_out()
    assert (harness.role, harness.epoch) == (Role.PROSPECTIVE, 1)
    assert isinstance(harness.state, Prospective)
    assert harness.state.voted_key == key(1)


def test_an_unsupported_pre_vote_is_followed_by_a_real_one() -> None:
    harness = replica(voter_count=5).make_prospective()
    first, *_ = votes_sent(harness)
    harness.answer(first, vote_response(0, granted=False, pre_vote=True, error=ErrorCode.UNSUPPORTED_VERSION))
    assert (harness.role, harness.epoch) == (Role.CANDIDATE, 1)


def test_rf21_an_answer_from_another_voter_counts_neither_way_and_is_not_asked_again() -> None:
    harness = replica().make_candidate()
    first, second = votes_sent(harness)
    for _ in range(2):
        harness.answer(first, vote_response(1, granted=True, error=ErrorCode.INVALID_VOTER_KEY))
    assert (harness.role, harness.epoch) == (Role.CANDIDATE, 1)
    assert harness.output.connections.is_ready(endpoint(2))
    harness.advance(100)
    assert votes_sent(harness) == []
    harness.answer(second, vote_response(1, granted=True))
    assert harness.role is Role.LEADER


def test_rf23_one_vote_is_in_flight_to_each_voter_and_is_sent_again_when_it_timed_out() -> None:
    harness = replica(request_timeout_ms=300, retry_backoff_ms=20).make_prospective()
    first, *_ = votes_sent(harness)
    harness.advance(299)
    assert votes_sent(harness) == []
    harness.advance(50)
    again, *_ = votes_sent(harness)
    assert (again.destination, again.request) == (first.destination, first.request)
    harness.answer(first, vote_response(0, granted=True, pre_vote=True))
    assert (harness.role, harness.epoch) == (Role.PROSPECTIVE, 0), (
        "the answer to the request that was given up is too late"
    )
    harness.answer(again, vote_response(0, granted=True, pre_vote=True))
    assert harness.role is Role.CANDIDATE


def test_rf23_a_voter_that_answered_is_not_asked_again() -> None:
    harness = replica(voter_count=5, request_timeout_ms=300).make_candidate()
    first, *_ = votes_sent(harness)
    harness.answer(first, vote_response(1, granted=False))
    harness.advance(400)
    assert endpoint(2) not in [send.destination for send in votes_sent(harness)]


def test_rf23_repeated_answers_count_once() -> None:
    tally = VoteTally(IDS, allows_change=False)
    for _ in range(3):
        tally.record(NodeId(1), True)
        tally.record(NodeId(2), True)
    assert not tally.is_won
    tally.record(NodeId(3), True)
    assert tally.is_won
    assert tally.granting() == [1, 2, 3]


def test_rf23_a_granted_vote_cannot_become_a_rejection() -> None:
    tally = VoteTally(IDS, allows_change=False)
    tally.record(NodeId(2), True)
    with pytest.raises(InvariantViolation, match="taken back"):
        tally.record(NodeId(2), False)


def test_rf23_a_pre_vote_may_change() -> None:
    tally = VoteTally(IDS, allows_change=True)
    for granted in (True, False, True, False):
        tally.record(NodeId(2), granted)
    assert tally.granting() == []


def test_rf23_a_vote_from_no_voter_is_a_bug() -> None:
    with pytest.raises(InvariantViolation, match="only voters"):
        VoteTally(IDS, allows_change=True).record(NodeId(6), True)


@pytest.mark.parametrize(("voter_count", "rejections"), [(2, 1), (3, 2), (4, 2), (5, 3)])
def test_an_election_is_lost_when_no_majority_is_left(voter_count: int, rejections: int) -> None:
    tally = VoteTally(IDS[:voter_count], allows_change=False)
    tally.record(NodeId(1), True)
    for node_id in IDS[1:rejections]:
        tally.record(node_id, False)
    assert not tally.is_lost
    tally.record(IDS[rejections], False)
    assert tally.is_lost


def test_rf24_an_answer_is_ignored_after_the_role_changed() -> None:
    harness = replica().make_candidate()
    first, *_ = votes_sent(harness)
    harness.make_follower(3, 1)
    harness.answer(first, vote_response(1, granted=True))
    assert (harness.role, harness.leader_id) == (Role.FOLLOWER, 3)


def test_rf24_a_pre_vote_is_no_vote_for_the_candidacy_that_followed() -> None:
    harness = replica(voter_count=5).make_prospective()
    sends = votes_sent(harness)
    for send in sends:
        harness.answer(send, vote_response(0, granted=True, pre_vote=True))
    assert isinstance(harness.state, Candidate)
    assert harness.state.votes.granting() == [1]


def test_an_answer_with_a_higher_epoch_ends_the_candidacy() -> None:
    harness = replica().make_candidate()
    actions = harness.answer(votes_sent(harness)[0], vote_response(4, granted=False))
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.UNATTACHED, 4, None)
    assert PersistElectionState(election_state(4)) in actions


def test_an_answer_that_names_the_winner_of_this_epoch_is_believed() -> None:
    harness = replica().make_candidate()
    response = vote_response(1, granted=False, leader_id=3, leader_endpoint=endpoint(3))
    harness.answer(votes_sent(harness)[0], response)
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.FOLLOWER, 1, 3)


def test_a_granted_pre_vote_that_names_a_leader_is_a_reason_to_follow() -> None:
    harness = replica().make_prospective()
    response = vote_response(0, granted=True, pre_vote=True, leader_id=3, leader_endpoint=endpoint(3))
    harness.answer(votes_sent(harness)[0], response)
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.FOLLOWER, 0, 3)


def test_a_voter_with_a_directory_id_is_asked_by_it() -> None:
    voter_set = VoterSet(Voter(ReplicaKey(NodeId(n), UUID(int=n + 1)), endpoint(n)) for n in (1, 2))
    harness = replica(voter_set=voter_set).make_prospective()
    (send,) = votes_sent(harness)
    assert isinstance(send.request, VoteRequest)
    assert send.request.voter_key == key(2)
