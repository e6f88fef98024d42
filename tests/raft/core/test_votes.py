"""Granting votes and pre-votes: the receiver's side (RF-14 to RF-22, RF-105).

Rules that tests here are named after: RF-16, RF-18, RF-19, RF-20.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.types import NodeId
from raft.core.actions import PersistElectionState, Reply
from raft.core.events import ShutdownRequested
from raft.core.messages import VoteResponse
from raft.core.states import Follower, Prospective, Role, Unattached
from raft.core.types import ReplicaKey
from tests.raft.core.builders import (
    Harness,
    election_state,
    fetch_response,
    key,
    leader_and_epoch,
    of_type,
    replica,
    vote,
)

LOG = [(3, 4)]


def leader() -> Harness:
    return replica(log=LOG).make_leader()


def follower() -> Harness:
    return replica(log=LOG).make_follower(3, 5)


def follower_that_has_fetched() -> Harness:
    harness = follower()
    harness.answer(harness.sent[-1], fetch_response(3, 5))
    assert isinstance(harness.state, Follower) and harness.state.has_fetched
    return harness


def candidate() -> Harness:
    return replica(log=LOG).make_candidate()


def resigned() -> Harness:
    return replica(log=LOG, election_state=election_state(5, leader_id=1))


def unattached() -> Harness:
    return replica(log=LOG, election_state=election_state(5))


def unattached_with_vote_for_2() -> Harness:
    return replica(log=LOG, election_state=election_state(5, voted_key=key(2)))


def unattached_with_vote_for_3() -> Harness:
    return replica(log=LOG, election_state=election_state(5, voted_key=key(3)))


def unattached_with_vote_for_2_in_an_unknown_directory() -> Harness:
    return replica(log=LOG, election_state=election_state(5, voted_key=ReplicaKey(NodeId(2))))


def unattached_with_vote_for_2_in_another_directory() -> Harness:
    return replica(log=LOG, election_state=election_state(5, voted_key=ReplicaKey(NodeId(2), UUID(int=99))))


def unattached_that_knows_who_leads() -> Harness:
    return replica(log=LOG, election_state=election_state(5, leader_id=8))


def prospective() -> Harness:
    return unattached().make_prospective()


def prospective_with_vote_for_2() -> Harness:
    return unattached_with_vote_for_2().make_prospective()


def prospective_with_vote_for_3() -> Harness:
    return unattached_with_vote_for_3().make_prospective()


def prospective_that_knows_who_leads() -> Harness:
    return follower().make_prospective()


TABLE = [
    (leader, False, False),
    (follower, True, False),
    (follower_that_has_fetched, False, False),
    (candidate, True, False),
    (resigned, True, False),
    (unattached, True, True),
    (unattached_with_vote_for_2, True, True),
    (unattached_with_vote_for_3, True, False),
    (unattached_with_vote_for_2_in_an_unknown_directory, True, True),
    (unattached_with_vote_for_2_in_another_directory, True, False),
    (unattached_that_knows_who_leads, True, False),
    (prospective, True, True),
    (prospective_with_vote_for_2, True, True),
    (prospective_with_vote_for_3, True, False),
    (prospective_that_knows_who_leads, True, False),
]
"""A receiver in a state; whether it grants replica 2 a pre-vote, and a vote, in its own epoch."""


@pytest.mark.parametrize(("receiver", "grants_pre_vote", "grants_vote"), TABLE)
def test_rf105_the_table_of_votes(receiver: Callable[[], Harness], grants_pre_vote: bool, grants_vote: bool) -> None:
    for pre_vote, grants in ((True, grants_pre_vote), (False, grants_vote)):
        harness = receiver()
        last_epoch = harness.epoch if pre_vote else harness.epoch - 1
        request = vote(2, harness.epoch, last_epoch=last_epoch, last_offset=100, pre_vote=pre_vote)
        response = harness.ask(request)
        assert (response.error, response.vote_granted, response.pre_vote) == (ErrorCode.NONE, grants, pre_vote)


@pytest.mark.parametrize("receiver", [row[0] for row in TABLE])
def test_rf14_rf16_a_log_behind_gets_no_pre_vote_in_any_state(receiver: Callable[[], Harness]) -> None:
    harness = receiver()
    assert not harness.ask(vote(2, harness.epoch, last_epoch=3, last_offset=3, pre_vote=True)).vote_granted


@pytest.mark.parametrize(
    ("last_epoch", "last_offset", "granted"),
    [(3, 4, True), (3, 5, True), (4, 0, True), (3, 3, False), (2, 100, False), (0, 0, False)],
)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_rf14_the_log_is_compared_by_epoch_first_then_by_its_end(
    last_epoch: int, last_offset: int, granted: bool, pre_vote: bool
) -> None:
    request = vote(2, 5, last_epoch=last_epoch, last_offset=last_offset, pre_vote=pre_vote)
    assert unattached().ask(request).vote_granted is granted


@pytest.mark.parametrize("receiver", [row[0] for row in TABLE])
@pytest.mark.parametrize("pre_vote", [False, True])
def test_rf15_a_higher_epoch_is_entered_without_leader_first(receiver: Callable[[], Harness], pre_vote: bool) -> None:
    harness = receiver()
    epoch = harness.epoch + 3
    response = harness.ask(vote(2, epoch, last_epoch=3, last_offset=3, pre_vote=pre_vote))
    assert isinstance(harness.state, Unattached)
    assert (harness.epoch, harness.state.voted_key) == (epoch, None)
    assert (response.error, response.vote_granted) == (ErrorCode.NONE, False)
    assert response.leader == leader_and_epoch(None, epoch)
    assert response.leader_endpoint is None


@pytest.mark.parametrize("receiver", [row[0] for row in TABLE])
def test_rf15_in_a_higher_epoch_everybody_has_a_vote_again(receiver: Callable[[], Harness]) -> None:
    harness = receiver()
    assert harness.ask(vote(2, harness.epoch + 1, last_epoch=harness.epoch, last_offset=100)).vote_granted
    assert isinstance(harness.state, Unattached)
    assert harness.state.voted_key == key(2)


def test_rf16_a_pre_vote_leaves_no_trace_and_may_go_to_many() -> None:
    harness = unattached()
    before = replace(harness.state)
    for sender_id in (2, 3, 2):
        (reply,) = harness.deliver(vote(sender_id, 5, last_epoch=3, last_offset=4, pre_vote=True))
        assert isinstance(reply, Reply) and isinstance(reply.response, VoteResponse)
        assert reply.response.vote_granted
    assert harness.state == before


def test_rf11_a_vote_is_durable_before_it_is_answered() -> None:
    actions = unattached().deliver(vote(2, 5, last_epoch=3, last_offset=4))
    assert [type(action) for action in actions[:2]] == [PersistElectionState, Reply]
    assert actions[0] == PersistElectionState(election_state(5, voted_key=key(2)))


def test_rf11_epoch_and_vote_of_a_higher_epoch_are_durable_before_the_answer() -> None:
    actions = leader().deliver(vote(2, 9, last_epoch=8, last_offset=100))
    kinds = [type(action) for action in actions if isinstance(action, PersistElectionState | Reply)]
    assert kinds == [PersistElectionState, PersistElectionState, Reply]
    persisted = of_type(PersistElectionState, actions)
    assert persisted[-1].state == election_state(9, voted_key=key(2))


def test_rf08_a_second_vote_in_an_epoch_goes_to_nobody_else() -> None:
    harness = unattached()
    assert harness.ask(vote(2, 5, last_epoch=3, last_offset=4)).vote_granted
    assert not harness.ask(vote(3, 5, last_epoch=4, last_offset=100)).vote_granted
    assert harness.ask(vote(2, 5, last_epoch=3, last_offset=4)).vote_granted


def test_rf08_a_vote_survives_a_pre_vote_round() -> None:
    harness = unattached()
    harness.ask(vote(2, 5, last_epoch=3, last_offset=4))
    harness.make_prospective()
    assert not harness.ask(vote(3, 5, last_epoch=3, last_offset=4)).vote_granted
    harness.time_out()
    assert isinstance(harness.state, Unattached)
    assert harness.state.voted_key == key(2)
    assert not harness.ask(vote(3, 5, last_epoch=3, last_offset=4)).vote_granted


def test_a_repeated_vote_is_granted_again_without_a_second_write() -> None:
    harness = unattached_with_vote_for_2()
    actions = harness.deliver(vote(2, 5, last_epoch=3, last_offset=4))
    assert of_type(PersistElectionState, actions) == []


def test_a_candidate_that_lost_the_end_of_its_log_in_a_crash_does_not_get_its_vote_again() -> None:
    harness = unattached()
    assert harness.ask(vote(2, 5, last_epoch=3, last_offset=5)).vote_granted
    assert not harness.ask(vote(2, 5, last_epoch=3, last_offset=3)).vote_granted
    assert harness.ask(vote(2, 5, last_epoch=3, last_offset=4)).vote_granted


def test_a_prospective_replica_that_grants_a_vote_stops_being_a_nominee() -> None:
    harness = prospective()
    assert harness.ask(vote(2, 5, last_epoch=3, last_offset=4)).vote_granted
    assert isinstance(harness.state, Unattached)
    assert harness.state.voted_key == key(2)


def test_a_prospective_replica_that_grants_a_pre_vote_stays_a_nominee() -> None:
    harness = prospective()
    assert harness.ask(vote(2, 5, last_epoch=3, last_offset=4, pre_vote=True)).vote_granted
    assert isinstance(harness.state, Prospective)


def test_rf17_a_replica_that_thinks_it_is_an_observer_answers_and_grants() -> None:
    harness = replica(observer=True, log=LOG)
    assert harness.ask(vote(2, 5, last_epoch=3, last_offset=4, pre_vote=True)).vote_granted
    assert harness.ask(vote(2, 5, last_epoch=3, last_offset=4)).vote_granted
    assert isinstance(harness.state, Unattached)
    assert (harness.state.voted_key, harness.state.election_deadline_ms) == (key(2), None)


@pytest.mark.parametrize("epoch", [5, 6])
@pytest.mark.parametrize("pre_vote", [False, True])
def test_a_sender_that_is_no_voter_gets_no_vote_and_its_epoch_is_not_entered(pre_vote: bool, epoch: int) -> None:
    """Kafka grants it (RF-17) and enters the epoch (RF-15); see `may_be_voter` for why this replica does not."""
    harness = unattached()
    state = harness.state
    response = harness.ask(vote(42, epoch, last_epoch=3, last_offset=4, pre_vote=pre_vote))
    assert (response.error, response.vote_granted) == (ErrorCode.NONE, False)
    assert response.leader == leader_and_epoch(None, 5)
    assert harness.state is state


def test_rf17_a_leader_rejects_the_vote_of_an_observer_without_an_error() -> None:
    harness = leader()
    response = harness.ask(vote(42, harness.epoch, last_epoch=3, last_offset=100))
    assert (response.error, response.vote_granted) == (ErrorCode.NONE, False)
    assert response.leader == leader_and_epoch(1, harness.epoch)


def test_rf18_granting_a_vote_draws_the_election_timer_anew() -> None:
    harness = replica(log=LOG, election_state=election_state(5))
    state = harness.state
    assert isinstance(state, Unattached) and state.election_deadline_ms is not None
    harness.advance(state.election_deadline_ms - harness.now_ms - 1)
    assert harness.ask(vote(2, 5, last_epoch=3, last_offset=4)).vote_granted
    assert isinstance(harness.state, Unattached) and harness.state.election_deadline_ms is not None
    assert harness.state.election_deadline_ms >= harness.now_ms + 1000


def test_rf19_a_leader_that_is_shutting_down_still_votes_in_a_higher_epoch() -> None:
    harness = leader()
    harness.step(ShutdownRequested())
    assert harness.role is Role.RESIGNED
    assert harness.ask(vote(2, harness.epoch + 1, last_epoch=harness.epoch, last_offset=100)).vote_granted
    assert harness.replica.is_shutdown_complete


@pytest.mark.parametrize(
    ("last_epoch", "last_offset", "pre_vote"),
    [(-1, 4, False), (-1, 4, True), (3, -1, False), (3, -1, True), (6, 4, False), (7, 4, False), (7, 4, True)],
)
def test_rf20_an_impossible_log_end_is_an_invalid_request(last_epoch: int, last_offset: int, pre_vote: bool) -> None:
    harness = unattached()
    response = harness.ask(vote(2, 6, last_epoch=last_epoch, last_offset=last_offset, pre_vote=pre_vote))
    assert (response.error, response.vote_granted) == (ErrorCode.INVALID_REQUEST, False)
    assert harness.epoch == 5


def test_rf20_the_log_may_end_in_the_epoch_of_a_pre_vote() -> None:
    response = unattached().ask(vote(2, 6, last_epoch=6, last_offset=4, pre_vote=True))
    assert (response.error, response.vote_granted) == (ErrorCode.NONE, True)


@pytest.mark.parametrize(
    ("voter_key", "error"),
    [
        (None, ErrorCode.NONE),
        (key(1), ErrorCode.NONE),
        (ReplicaKey(NodeId(1)), ErrorCode.NONE),
        (key(2), ErrorCode.INVALID_VOTER_KEY),
        (ReplicaKey(NodeId(1), UUID(int=99)), ErrorCode.INVALID_VOTER_KEY),
    ],
    ids=["nobody", "this replica", "any directory", "another id", "another directory"],
)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_rf21_a_request_for_another_voter_is_refused(
    voter_key: ReplicaKey | None, error: ErrorCode, pre_vote: bool
) -> None:
    harness = unattached()
    response = harness.ask(vote(2, 5, last_epoch=3, last_offset=4, voter_key=voter_key, pre_vote=pre_vote))
    assert (response.error, response.vote_granted) == (error, error is ErrorCode.NONE)


def test_the_voter_key_is_checked_before_the_epoch_is_entered() -> None:
    """Kafka does it the other way round (RF-21); see `refuse_voter_request`."""
    harness = unattached()
    state = harness.state
    response = harness.ask(vote(2, 8, last_epoch=3, last_offset=4, voter_key=key(2)))
    assert response.error is ErrorCode.INVALID_VOTER_KEY
    assert response.leader == leader_and_epoch(None, 5)
    assert harness.state is state


@pytest.mark.parametrize("receiver", [row[0] for row in TABLE])
@pytest.mark.parametrize("pre_vote", [False, True])
def test_rf22_an_older_epoch_is_fenced(receiver: Callable[[], Harness], pre_vote: bool) -> None:
    harness = receiver()
    known = harness.replica.leader_and_epoch
    response = harness.ask(vote(2, harness.epoch - 1, pre_vote=pre_vote))
    assert (response.error, response.vote_granted) == (ErrorCode.FENCED_LEADER_EPOCH, False)
    assert response.leader == known
