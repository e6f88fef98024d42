"""How a replica finds the leader, from answers and announcements (RF-60 to RF-64, RF-70, RF-71, RF-91)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from raft.core.actions import AppendBatches, PersistElectionState, Reply, ReportRejectedClaim, Send
from raft.core.messages import FetchRequest
from raft.core.states import Follower, Role
from tests.raft.core.builders import (
    Harness,
    batch,
    begin_quorum_epoch,
    election_state,
    endpoint,
    fetch_response,
    leader_and_epoch,
    of_type,
    replica,
)

ELSEWHERE = Endpoint("elsewhere", 1)


def fetches(harness: Harness) -> list[Send]:
    return [send for send in harness.sent if isinstance(send.request, FetchRequest)]


def unattached(epoch: int = 5) -> tuple[Harness, Send]:
    """An unattached voter and the fetch by which it looks for the leader."""
    harness = replica(election_state=election_state(epoch))
    (send,) = fetches(harness)
    return harness, send


def follower() -> tuple[Harness, Send]:
    """A follower of replica 3 in epoch 5, and its fetch."""
    harness = replica(election_state=election_state(5, leader_id=3))
    (send,) = fetches(harness)
    return harness, send


def backs_off(harness: Harness, send: Send) -> bool:
    return harness.output.connections.is_backing_off(send.destination)


# --- the leader in answers (RF-61, RF-62) -------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE])
def test_rf61_an_answer_of_an_older_epoch_is_ignored_without_a_back_off(error: ErrorCode) -> None:
    harness, send = follower()
    state = harness.state
    harness.answer(send, fetch_response(2, 4, error=error))
    assert (harness.state, harness.leader_id) == (state, 3)
    assert not backs_off(harness, send)


def test_rf61_an_unknown_epoch_is_ignored_without_a_back_off() -> None:
    harness, send = follower()
    harness.answer(send, fetch_response(3, 5, error=ErrorCode.UNKNOWN_LEADER_EPOCH))
    assert (harness.role, harness.leader_id) == (Role.FOLLOWER, 3)
    assert not backs_off(harness, send)


def test_one_that_looks_for_a_leader_ahead_of_the_others_does_not_ask_them_in_a_storm() -> None:
    harness = replica(election_state=election_state(9))
    [send] = fetches(harness)
    harness.answer(send, fetch_response(None, 5, error=ErrorCode.UNKNOWN_LEADER_EPOCH))
    assert harness.role is Role.UNATTACHED
    assert backs_off(harness, send)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_rf61_an_answer_of_a_higher_epoch_with_a_leader_is_followed(error: ErrorCode) -> None:
    harness, send = follower()
    actions = harness.answer(send, fetch_response(2, 6, error=error))
    assert isinstance(harness.state, Follower)
    assert (harness.epoch, harness.leader_id, harness.state.leader_endpoint) == (6, 2, endpoint(2))
    assert actions[0] == PersistElectionState(election_state(6, leader_id=2))
    assert [sent.destination for sent in fetches(harness)] == [endpoint(2)]


def test_rf61_an_answer_of_a_higher_epoch_without_a_leader_leaves_it_unattached() -> None:
    harness, send = follower()
    harness.answer(send, fetch_response(None, 6, error=ErrorCode.FENCED_LEADER_EPOCH))
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.UNATTACHED, 6, None)


def test_rf61_an_answer_of_this_epoch_that_names_a_leader_is_followed_when_none_was_known() -> None:
    harness, send = unattached()
    harness.answer(send, fetch_response(2, 5, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.FOLLOWER, 5, 2)


def test_rf61_an_answer_that_tells_nothing_new_makes_it_leave_that_peer_alone() -> None:
    harness, send = unattached()
    harness.answer(send, fetch_response(None, 5, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert (harness.role, harness.epoch) == (Role.UNATTACHED, 5)
    assert backs_off(harness, send)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
    ],
)
def test_rf61_other_errors_make_it_leave_that_peer_alone(error: ErrorCode) -> None:
    harness, send = follower()
    harness.answer(send, fetch_response(3, 5, error=error))
    assert (harness.role, harness.leader_id) == (Role.FOLLOWER, 3)
    assert backs_off(harness, send)


def test_a_peer_of_another_cluster_is_not_believed() -> None:
    harness, send = follower()
    harness.answer(send, fetch_response(2, 9, error=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.FOLLOWER, 5, 3)


def test_a_second_leader_of_one_epoch_is_reported_and_not_followed() -> None:
    """Kafka ends the process (RF-61). But it is only a peer's claim: see `is_credible_leader`."""
    harness, send = follower()
    actions = harness.answer(send, fetch_response(2, 5, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    (report,) = of_type(ReportRejectedClaim, actions)
    assert report.reason == "2 is named as the leader of epoch 5, but 3 leads it"
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.FOLLOWER, 5, 3)
    assert backs_off(harness, send)


def test_a_second_leader_that_is_no_voter_is_a_lie_that_changes_nothing() -> None:
    harness, send = follower()
    harness.answer(send, fetch_response(8, 5, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.FOLLOWER, 5, 3)
    assert backs_off(harness, send)


def test_an_answer_that_names_this_replica_as_leader_of_a_higher_epoch_makes_no_leader_of_it() -> None:
    harness, send = follower()
    harness.answer(send, fetch_response(1, 6, error=ErrorCode.FENCED_LEADER_EPOCH))
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.UNATTACHED, 6, None)


def test_rf62_a_leader_that_is_named_without_endpoint_is_looked_up_among_the_voters() -> None:
    harness, send = unattached()
    harness.answer(send, fetch_response(2, 6, leader_endpoint=None, error=ErrorCode.FENCED_LEADER_EPOCH))
    assert isinstance(harness.state, Follower)
    assert harness.state.leader_endpoint == endpoint(2)


@pytest.mark.parametrize("leader_endpoint", [None, ELSEWHERE])
def test_a_leader_that_is_no_voter_is_reported_and_its_epoch_is_not_entered(leader_endpoint: Endpoint | None) -> None:
    """Kafka remembers it by its id, or follows it (RF-62, RF-91). Here a leader is a voter."""
    harness, send = unattached()
    state = harness.state
    error = ErrorCode.FENCED_LEADER_EPOCH
    actions = harness.answer(send, fetch_response(8, 6, leader_endpoint=leader_endpoint, error=error))
    assert of_type(ReportRejectedClaim, actions)
    assert harness.state is state
    assert backs_off(harness, send)


def test_a_leader_is_reached_where_the_voter_set_has_it_not_where_an_answer_says() -> None:
    harness, send = unattached()
    harness.answer(send, fetch_response(2, 6, leader_endpoint=ELSEWHERE, error=ErrorCode.FENCED_LEADER_EPOCH))
    assert [sent.destination for sent in fetches(harness)] == [endpoint(2)]


# --- one request at a time (RF-63) --------------------------------------------------------------------------------


def test_rf63_there_is_one_fetch_at_a_time_in_all() -> None:
    harness, _ = unattached()
    harness.advance(900)
    assert fetches(harness) == []


def test_rf63_a_failed_connection_is_left_alone_for_the_retry_back_off() -> None:
    harness = replica(voter_count=2, election_state=election_state(5, leader_id=2))
    (send,) = fetches(harness)
    harness.fail(send)
    harness.advance(19)
    assert fetches(harness) == []
    harness.advance(1)
    assert [sent.destination for sent in fetches(harness)] == [endpoint(2)]


def test_rf63_a_request_that_timed_out_makes_way_for_another() -> None:
    harness = replica(voter_count=2, election_state=election_state(5, leader_id=2), request_timeout_ms=300)
    (send,) = fetches(harness)
    harness.advance(320)
    assert [sent.destination for sent in fetches(harness)] == [endpoint(2)]
    state = harness.state
    harness.answer(send, fetch_response(2, 9))
    assert harness.state is state, "the late answer is ignored"


def test_rf63_an_answer_to_nothing_is_ignored() -> None:
    harness, send = follower()
    harness.answer(Send(send.correlation_id + 1, send.destination, send.request), fetch_response(2, 9))
    harness.fail(Send(send.correlation_id + 1, send.destination, send.request))
    assert (harness.epoch, harness.leader_id) == (5, 3)
    assert not backs_off(harness, send)


# --- which server to ask (RF-64, RF-91) ---------------------------------------------------------------------------


@pytest.mark.parametrize("observer", [False, True])
def test_rf64_an_unattached_replica_asks_any_of_the_other_voters(observer: bool) -> None:
    asked = {fetches(replica(observer=observer, seed=seed))[0].destination for seed in range(30)}
    expected = {endpoint(2), endpoint(3)} | ({endpoint(1)} if observer else set())
    assert asked == expected


def test_rf64_bootstrap_servers_are_asked_instead_of_the_voters_where_there_are_any() -> None:
    servers = [Endpoint("a", 1), Endpoint("b", 1)]
    asked = {fetches(replica(bootstrap_endpoints=servers, seed=seed))[0].destination for seed in range(30)}
    assert asked == set(servers)


def test_rf64_servers_that_failed_are_passed_over_while_another_is_ready() -> None:
    harness, send = unattached()
    harness.fail(send)
    (other,) = fetches(harness)
    assert {send.destination, other.destination} == {endpoint(2), endpoint(3)}


def test_rf64_a_follower_whose_leader_fails_asks_another() -> None:
    harness, send = follower()
    assert send.destination == endpoint(3)
    harness.fail(send)
    assert [sent.destination for sent in fetches(harness)] == [endpoint(2)]
    assert (harness.role, harness.leader_id) == (Role.FOLLOWER, 3)


def test_rf64_a_follower_goes_back_to_its_leader_after_the_back_off() -> None:
    harness, send = follower()
    harness.fail(send)
    (other,) = fetches(harness)
    harness.advance(20)
    harness.answer(other, fetch_response(3, 5, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert [sent.destination for sent in fetches(harness)] == [endpoint(3)]


def test_an_observer_follows_voters_only() -> None:
    """In Kafka it finds a leader that is not in its voter set (RF-91): voters may change there."""
    harness = replica(observer=True)
    (send,) = fetches(harness)
    harness.answer(send, fetch_response(7, 5, leader_endpoint=ELSEWHERE, error=ErrorCode.FENCED_LEADER_EPOCH))
    assert (harness.role, harness.epoch) == (Role.UNATTACHED, 0)


def test_whoever_brings_the_news_of_a_leader_may_be_no_voter() -> None:
    """A bootstrap server may be an observer: the leader that it names is taken if it is credible."""
    server = Endpoint("observer", 1)
    harness = replica(bootstrap_endpoints=[server])
    (send,) = fetches(harness)
    assert send.destination == server
    harness.answer(send, fetch_response(2, 5, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert [sent.destination for sent in fetches(harness)] == [endpoint(2)]


def test_records_of_a_server_that_is_not_the_leader_are_not_taken() -> None:
    harness, send = follower()
    harness.fail(send)
    (other,) = fetches(harness)
    assert other.destination != endpoint(3)
    actions = harness.answer(other, fetch_response(3, 5, batch(0, 1, 5), high_watermark=1))
    assert not of_type(AppendBatches, actions)
    assert harness.replica.high_watermark == -1


@pytest.mark.parametrize("named", [None, 2])
def test_records_of_who_does_not_say_that_it_leads_are_not_taken(named: int | None) -> None:
    harness, send = follower()
    actions = harness.answer(send, fetch_response(named, 5, batch(0, 1, 5), high_watermark=1))
    assert not of_type(AppendBatches, actions)
    assert (harness.role, harness.leader_id) == (Role.FOLLOWER, 3)


def test_a_tool_without_an_id_finds_the_leader_too() -> None:
    harness = replica(own_id=None)
    (send,) = fetches(harness)
    harness.answer(send, fetch_response(2, 5, error=ErrorCode.FENCED_LEADER_EPOCH))
    assert (harness.role, harness.leader_id) == (Role.FOLLOWER, 2)


# --- announcements (RF-70, RF-71) ---------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [5, 6, 9])
def test_rf70_whoever_says_that_it_leads_is_followed(epoch: int) -> None:
    harness, _ = unattached()
    response = harness.ask(begin_quorum_epoch(2, epoch))
    assert (response.error, response.leader) == (ErrorCode.NONE, leader_and_epoch(2, epoch))
    assert response.leader_endpoint == endpoint(2)
    assert (harness.role, harness.leader_id) == (Role.FOLLOWER, 2)


def test_who_says_that_it_leads_and_is_no_voter_is_refused() -> None:
    """Kafka follows it at the endpoint that it sends (RF-70)."""
    harness, _ = unattached()
    state = harness.state
    response = harness.ask(begin_quorum_epoch(8, 6, leader_endpoint=ELSEWHERE))
    assert (response.error, response.leader) == (ErrorCode.INVALID_REQUEST, leader_and_epoch(None, 5))
    assert harness.state is state


@pytest.mark.parametrize("epoch", [5, 6])
def test_a_leader_is_followed_where_the_voter_set_has_it_not_where_it_says_that_it_listens(epoch: int) -> None:
    """Kafka uses the endpoint that the leader sends (RF-70): a forged one could redirect all replicas."""
    harness, _ = follower()
    harness.ask(begin_quorum_epoch(3, epoch, leader_endpoint=ELSEWHERE))
    assert isinstance(harness.state, Follower)
    assert (harness.epoch, harness.state.leader_endpoint) == (epoch, endpoint(3))


def test_rf70_a_repeated_announcement_changes_nothing() -> None:
    harness, _ = follower()
    state, deadline_ms = harness.state, harness.replica.next_deadline_ms
    assert harness.ask(begin_quorum_epoch(3, 5)).error is ErrorCode.NONE
    assert harness.state is state
    assert (harness.replica.next_deadline_ms, fetches(harness)) == (deadline_ms, [])


def test_rf70_a_nominee_follows_the_leader_that_it_had_given_up() -> None:
    harness = follower()[0].make_prospective()
    harness.ask(begin_quorum_epoch(3, 5))
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.FOLLOWER, 5, 3)


@pytest.mark.parametrize(
    ("build", "epoch", "known"),
    [
        (lambda: follower()[0], 5, 3),
        (lambda: replica().make_leader(), 1, 1),
        (lambda: replica(election_state=election_state(5, leader_id=1)), 5, 1),
    ],
    ids=["follower", "leader", "resigned"],
)
def test_who_says_that_it_leads_an_epoch_with_another_leader_is_refused(
    build: Callable[[], Harness], epoch: int, known: int
) -> None:
    """Kafka ends the process (RF-70): one message ended every node that it was sent to."""
    harness = build()
    state = harness.state
    actions = harness.deliver(begin_quorum_epoch(2, epoch))
    (report,) = of_type(ReportRejectedClaim, actions)
    assert report.reason == f"2 is named as the leader of epoch {epoch}, but {known} leads it"
    (reply,) = of_type(Reply, actions)
    assert reply.response.error is ErrorCode.INVALID_REQUEST
    assert harness.state is state


@pytest.mark.parametrize("epoch", [5, 6])
def test_rf71_an_announcement_without_endpoint_is_looked_up_among_the_voters(epoch: int) -> None:
    harness, _ = unattached()
    harness.ask(begin_quorum_epoch(2, epoch, leader_endpoint=None))
    assert isinstance(harness.state, Follower)
    assert harness.state.leader_endpoint == endpoint(2)
