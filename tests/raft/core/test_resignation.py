"""How a leader hands over, and how the other voters react (RF-34 to RF-37, RF-72, RF-102, RF-103).

Rules that tests here are named after: RF-35, RF-36.
"""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, NodeId
from raft.core.actions import FailAppend, Reply, Send
from raft.core.events import AppendPrepared, ResignRequested
from raft.core.messages import EndQuorumEpochRequest, EndQuorumEpochResponse
from raft.core.states import Follower, Role
from raft.core.types import ReplicaKey
from tests.raft.core.builders import (
    Harness,
    election_state,
    end_quorum_epoch,
    endpoint,
    fetch,
    key,
    leader_and_epoch,
    of_type,
    replica,
    vote,
)

BACKOFF_MAX_MS = 1_000


def resign(harness: Harness, epoch: int | None = None) -> None:
    _ = harness.sent  # earlier messages do not matter
    harness.step(ResignRequested(Epoch(harness.epoch if epoch is None else epoch)))


def ends(harness: Harness) -> list[Send]:
    return [send for send in harness.sent if isinstance(send.request, EndQuorumEpochRequest)]


def acknowledge(harness: Harness, send: Send) -> None:
    harness.answer(send, EndQuorumEpochResponse(leader=leader_and_epoch(None, harness.epoch)))


# --- the leader that resigns --------------------------------------------------------------------------------------


def test_rf34_a_resigned_leader_tells_every_voter() -> None:
    harness = replica().make_leader()
    resign(harness)
    assert [send.destination for send in ends(harness)] == [endpoint(2), endpoint(3)]


def test_rf34_a_voter_that_did_not_acknowledge_is_told_again() -> None:
    harness = replica(request_timeout_ms=300).make_leader()
    resign(harness)
    first, second = ends(harness)
    acknowledge(harness, first)
    harness.fail(second)
    harness.advance(19)
    assert ends(harness) == []
    harness.advance(1)
    assert [send.destination for send in ends(harness)] == [endpoint(3)]
    harness.advance(320)
    assert [send.destination for send in ends(harness)] == [endpoint(3)], "no answer within the request timeout"


def test_rf34_when_all_have_acknowledged_it_says_no_more() -> None:
    harness = replica().make_leader()
    resign(harness)
    for send in ends(harness):
        acknowledge(harness, send)
    harness.advance(900)
    assert ends(harness) == []


def test_rf34_it_tells_until_its_election_timer_fires() -> None:
    harness = replica(request_timeout_ms=100).make_leader()
    resign(harness)
    harness.time_out()
    assert (harness.role, harness.epoch) == (Role.UNATTACHED, 2)
    _ = harness.sent  # from here on
    harness.advance(500)
    assert ends(harness) == []


def test_rf35_candidates_are_preferred_by_how_far_they_have_fetched_then_by_their_key() -> None:
    harness = replica(voter_count=5, log=[(3, 10)]).make_leader()
    harness.ask(fetch(4, harness.epoch, 10, 3))
    harness.ask(fetch(5, harness.epoch, 10, 3))
    harness.ask(fetch(2, harness.epoch, 11, harness.epoch))
    resign(harness)
    (first, *_) = ends(harness)
    assert isinstance(first.request, EndQuorumEpochRequest)
    assert first.request.preferred_candidates == (key(2), key(4), key(5), ReplicaKey(NodeId(3)))
    assert (first.request.leader_id, first.request.leader_epoch) == (1, harness.epoch)
    assert first.request.leader_endpoint == endpoint(1)


def test_rf35_a_leader_that_restarts_prefers_nobody_by_progress() -> None:
    harness = replica(election_state=election_state(5, leader_id=1))
    (first, *_) = ends(harness)
    assert isinstance(first.request, EndQuorumEpochRequest)
    assert [candidate.node_id for candidate in first.request.preferred_candidates] == [2, 3]


def test_a_resigned_leader_lets_go_of_appends_and_parked_fetches() -> None:
    harness = replica().make_leader()
    harness.ask(fetch(2, 1, 1, 1))
    assert harness.ask(fetch(2, 1, 1, 1, high_watermark=1)) is None
    harness.step(AppendPrepared(7, Epoch(1), b"body", 1))
    actions = harness.step(ResignRequested(Epoch(1)))
    assert [(failed.append_id, failed.error) for failed in of_type(FailAppend, actions)] == [
        (7, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    ]
    (reply,) = of_type(Reply, actions)
    assert (reply.response.error, reply.response.leader) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        leader_and_epoch(None, 1),
    )


# --- the voters that hear of it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preferred", "wait_ms"),
    [
        ([1, 2], 0),
        ([2, 1], 500),
        ([2, 1, 4], 250),
        ([2, 4, 1], 500),
        ([2, 4, 5, 1], 500),
        ([2, 4, 1, 5], 250),
        ([2, 1, 4, 5], 125),
        ([2], BACKOFF_MAX_MS),
        ([], BACKOFF_MAX_MS),
    ],
)
def test_rf36_the_place_among_the_preferred_decides_how_long_a_follower_waits(
    preferred: list[int], wait_ms: int
) -> None:
    harness = replica(voter_count=5).make_follower(3, 5)
    harness.ask(end_quorum_epoch(3, 5, preferred))
    if wait_ms:
        assert isinstance(harness.state, Follower)
        assert harness.state.fetch_deadline_ms - harness.now_ms == wait_ms
        harness.advance(wait_ms - 1)
        assert (harness.role, harness.epoch) == (Role.FOLLOWER, 5)
        harness.advance(1)
    assert (harness.role, harness.epoch) == (Role.PROSPECTIVE, 5)


def test_rf36_a_maximum_too_small_for_the_list_makes_the_wait_nothing() -> None:
    harness = replica(voter_count=5, election_backoff_max_ms=2).make_follower(3, 5)
    harness.ask(end_quorum_epoch(3, 5, [2, 4, 1]))
    assert harness.role is Role.PROSPECTIVE


def test_rf36_the_place_is_found_by_directory_where_it_is_named() -> None:
    harness = replica().make_follower(3, 5)
    other = ReplicaKey(NodeId(1), key(2).directory_id)
    harness.ask(end_quorum_epoch(3, 5, preferred_candidates=(other,)))
    assert isinstance(harness.state, Follower)
    assert harness.state.fetch_deadline_ms - harness.now_ms == BACKOFF_MAX_MS


def test_rf36_a_resignation_of_somebody_who_is_not_followed_changes_nothing() -> None:
    harness = replica().make_follower(3, 5)
    deadline_ms = harness.replica.next_deadline_ms
    for sender_id in (2, 9):  # another voter, and no voter
        response = harness.ask(end_quorum_epoch(sender_id, 5, [1]))
        assert (response.error, response.leader) == (ErrorCode.INVALID_REQUEST, leader_and_epoch(3, 5))
        assert (harness.role, harness.replica.next_deadline_ms) == (Role.FOLLOWER, deadline_ms)


def test_rf36_an_observer_does_not_start_an_election() -> None:
    harness = replica(observer=True).make_follower(3, 5)
    harness.ask(end_quorum_epoch(3, 5, [2, 1]))
    harness.advance(10 * BACKOFF_MAX_MS)
    assert (harness.role, harness.epoch) == (Role.FOLLOWER, 5)


@pytest.mark.parametrize("role", [Role.LEADER, Role.CANDIDATE, Role.PROSPECTIVE, Role.FOLLOWER, Role.UNATTACHED])
def test_rf37_a_resignation_from_an_older_epoch_is_fenced_and_changes_nothing(role: Role) -> None:
    harness = replica(election_state=election_state(5))
    match role:
        case Role.LEADER:
            harness.make_leader()
        case Role.CANDIDATE:
            harness.make_candidate()
        case Role.PROSPECTIVE:
            harness.make_prospective()
        case Role.FOLLOWER:
            harness.make_follower(3, 6)
    state, deadline_ms = harness.state, harness.replica.next_deadline_ms
    actions = harness.deliver(end_quorum_epoch(2, 4, [1]))
    (reply,) = of_type(Reply, actions)
    assert reply.response.error is ErrorCode.FENCED_LEADER_EPOCH
    assert actions == [reply]
    assert (harness.state, harness.replica.next_deadline_ms) == (state, deadline_ms)


def test_rf37_a_resignation_from_a_higher_epoch_is_first_a_leader_to_follow() -> None:
    harness = replica().make_follower(3, 5)
    response = harness.ask(end_quorum_epoch(2, 6, [3, 1]))
    assert (response.error, response.leader) == (ErrorCode.NONE, leader_and_epoch(2, 6))
    assert isinstance(harness.state, Follower)
    assert harness.state.fetch_deadline_ms - harness.now_ms == BACKOFF_MAX_MS // 2


@pytest.mark.parametrize("epoch", [5, 7])
def test_rf72_an_unattached_voter_follows_first_and_elects_at_once_if_preferred(epoch: int) -> None:
    harness = replica(election_state=election_state(5))
    response = harness.ask(end_quorum_epoch(3, epoch, [1, 2]))
    assert (response.error, response.leader) == (ErrorCode.NONE, leader_and_epoch(3, epoch))
    assert (harness.role, harness.epoch) == (Role.PROSPECTIVE, epoch)


def test_rf72_an_unattached_voter_that_is_not_preferred_waits_its_turn() -> None:
    harness = replica(election_state=election_state(5))
    harness.ask(end_quorum_epoch(3, 5, [2, 1]))
    assert isinstance(harness.state, Follower)
    assert harness.state.fetch_deadline_ms - harness.now_ms == BACKOFF_MAX_MS // 2


# --- resign -------------------------------------------------------------------------------------------------------


def test_rf102_a_leader_resigns_in_its_epoch() -> None:
    harness = replica().make_leader()
    resign(harness)
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.RESIGNED, 1, None)


@pytest.mark.parametrize("epoch", [0, 2])
def test_rf102_a_resignation_from_another_epoch_is_ignored(epoch: int) -> None:
    harness = replica().make_leader()
    resign(harness, epoch)
    assert harness.replica.is_leader


def test_rf102_who_does_not_lead_does_not_resign() -> None:
    harness = replica().make_follower(3, 5)
    resign(harness)
    assert (harness.role, harness.leader_id) == (Role.FOLLOWER, 3)


def test_rf103_a_resigned_leader_votes_for_nobody_in_its_epoch() -> None:
    harness = replica().make_leader()
    resign(harness)
    assert not harness.ask(vote(2, 1, last_epoch=0, last_offset=100)).vote_granted


def test_rf103_a_resigned_leader_follows_the_leader_of_the_next_epoch() -> None:
    harness = replica().make_leader()
    resign(harness)
    harness.make_follower(2, 2)


def test_rf103_a_resigned_leader_does_not_run_for_election_before_its_timer() -> None:
    harness = replica().make_leader()
    resign(harness)
    harness.advance(999)
    assert (harness.role, harness.epoch) == (Role.RESIGNED, 1)
    harness.time_out()
    assert (harness.role, harness.epoch) == (Role.UNATTACHED, 2)
    harness.time_out()
    assert (harness.role, harness.epoch) == (Role.PROSPECTIVE, 2)
