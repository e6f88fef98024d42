"""The timers that keep a quorum alive: fetch timeout, check quorum, begin quorum (RF-30, RF-32, RF-33)."""

from __future__ import annotations

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, NodeId
from raft.core.actions import Send
from raft.core.messages import BeginQuorumEpochRequest, FetchSnapshotRequest
from raft.core.states import Role
from raft.core.types import OffsetAndEpoch, ReplicaKey
from tests.raft.core.builders import (
    CLUSTER_ID,
    Harness,
    batch,
    begin_quorum_epoch,
    endpoint,
    fetch,
    fetch_response,
    key,
    log_state,
    replica,
)

FETCH_TIMEOUT_MS = 2_000
CHECK_QUORUM_MS = 3_000
BEGIN_QUORUM_MS = 1_000


def begins(harness: Harness) -> list[Endpoint]:
    """The voters that it has notified of its leadership since the last call."""
    return [send.destination for send in harness.sent if isinstance(send.request, BeginQuorumEpochRequest)]


def fetch_of(harness: Harness) -> Send:
    return harness.sent[-1]


# --- the fetch timeout --------------------------------------------------------------------------------------------


def test_rf30_a_voter_whose_leader_is_silent_becomes_prospective() -> None:
    harness = replica().make_follower(3, 5)
    harness.advance(FETCH_TIMEOUT_MS - 1)
    assert (harness.role, harness.epoch) == (Role.FOLLOWER, 5)
    harness.advance(1)
    assert (harness.role, harness.epoch) == (Role.PROSPECTIVE, 5)


def test_rf30_a_successful_fetch_starts_the_fetch_timeout_anew() -> None:
    harness = replica().make_follower(3, 5)
    sent = fetch_of(harness)
    harness.advance(1_500)
    harness.answer(sent, fetch_response(3, 5))
    harness.advance(FETCH_TIMEOUT_MS - 1)
    assert (harness.role, harness.epoch) == (Role.FOLLOWER, 5)
    harness.advance(1)
    assert (harness.role, harness.epoch) == (Role.PROSPECTIVE, 5)


def test_rf30_a_refused_fetch_does_not_start_it_anew() -> None:
    harness = replica().make_follower(3, 5)
    sent = fetch_of(harness)
    harness.advance(1_500)
    harness.answer(sent, fetch_response(3, 5, error=ErrorCode.BROKER_NOT_AVAILABLE))
    harness.advance(500)
    assert harness.role is Role.PROSPECTIVE


def test_rf30_records_that_do_not_fit_do_not_start_it_anew() -> None:
    harness = replica().make_follower(3, 5)
    sent = fetch_of(harness)
    harness.advance(1_500)
    harness.answer(sent, fetch_response(3, 5, batch(7, 1, 5)))
    harness.advance(500)
    assert (harness.role, harness.replica.log_end_offset) == (Role.PROSPECTIVE, 0)


def test_rf30_hearing_from_the_leader_without_a_fetch_does_not_start_it_anew() -> None:
    harness = replica().make_follower(3, 5)
    harness.advance(1_500)
    harness.ask(begin_quorum_epoch(3, 5))
    harness.advance(500)
    assert harness.role is Role.PROSPECTIVE


def test_rf30_an_observer_whose_leader_is_silent_goes_on_following_and_asks_around() -> None:
    harness = replica(observer=True).make_follower(3, 5)
    harness.fail(fetch_of(harness))
    assert harness.sent[-1].destination in (endpoint(1), endpoint(2))
    harness.advance(10 * FETCH_TIMEOUT_MS)
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.FOLLOWER, 5, 3)
    assert {send.destination for send in harness.sent} >= {endpoint(1), endpoint(2)}


def test_a_voter_without_a_leader_becomes_prospective_when_its_election_timer_fires() -> None:
    harness = replica()
    harness.advance(999)
    assert (harness.role, harness.epoch) == (Role.UNATTACHED, 0)
    harness.advance(1_000)
    assert (harness.role, harness.epoch) == (Role.PROSPECTIVE, 0)


# --- check quorum -------------------------------------------------------------------------------------------------


def test_rf32_a_leader_that_nobody_fetches_from_resigns() -> None:
    harness = replica().make_leader()
    harness.advance(CHECK_QUORUM_MS - 1)
    assert harness.replica.is_leader
    harness.advance(1)
    assert (harness.role, harness.epoch) == (Role.RESIGNED, 1)


def test_rf32_the_fetch_of_a_majority_less_the_leader_starts_the_timer_anew() -> None:
    harness = replica().make_leader()
    harness.advance(2_000)
    harness.ask(fetch(2, 1))
    harness.advance(CHECK_QUORUM_MS - 1)
    assert harness.replica.is_leader
    harness.advance(1)
    assert harness.role is Role.RESIGNED


def test_rf32_among_five_voters_two_others_must_fetch() -> None:
    harness = replica(voter_count=5).make_leader()
    harness.advance(2_000)
    for _ in range(3):
        harness.ask(fetch(2, 1))
    harness.advance(1_000)
    assert harness.role is Role.RESIGNED


def test_rf32_among_five_voters_two_others_are_enough_and_then_counted_anew() -> None:
    harness = replica(voter_count=5).make_leader()
    harness.advance(2_000)
    harness.ask(fetch(2, 1))
    harness.ask(fetch(3, 1))
    harness.advance(2_000)
    harness.ask(fetch(4, 1))
    harness.advance(CHECK_QUORUM_MS - 2_000)
    assert harness.role is Role.RESIGNED, "one voter alone is not counted together with those before"


def test_rf32_a_fetch_after_the_timeout_comes_too_late() -> None:
    """A leader that was paused hears old fetches before its timer: they must not keep it."""
    harness = replica().make_leader()
    harness.now_ms += CHECK_QUORUM_MS
    harness.ask(fetch(2, 1))
    assert harness.role is Role.RESIGNED


def test_rf32_the_fetches_of_observers_do_not_count() -> None:
    harness = replica().make_leader()
    harness.advance(2_000)
    harness.ask(fetch(9, 1))
    harness.ask(fetch(None, 1))
    harness.advance(1_000)
    assert harness.role is Role.RESIGNED


def test_rf32_a_refused_fetch_does_not_count() -> None:
    harness = replica().make_leader()
    harness.advance(2_000)
    harness.ask(fetch(2, 0))
    harness.ask(fetch(2, 1, -1))
    harness.advance(1_000)
    assert harness.role is Role.RESIGNED


def test_rf32_a_voter_that_fetches_a_snapshot_counts() -> None:
    harness = replica().make_leader()
    harness.advance(2_000)
    request = FetchSnapshotRequest(
        cluster_id=CLUSTER_ID,
        replica_key=key(2),
        current_leader_epoch=Epoch(1),
        snapshot_id=OffsetAndEpoch(epoch=Epoch(1), offset=log_state([(1, 1)]).end_offset),
        position=0,
        max_bytes=1,
    )
    harness.ask(request)
    harness.advance(CHECK_QUORUM_MS - 1)
    assert harness.replica.is_leader


def test_rf32_a_sole_voter_never_resigns_for_want_of_a_quorum() -> None:
    harness = replica(voter_count=1)
    harness.advance(100 * CHECK_QUORUM_MS)
    assert harness.replica.is_leader


def test_rf32_the_timeout_is_one_and_a_half_fetch_timeouts_rounded_down() -> None:
    harness = replica(fetch_timeout_ms=333).make_leader()
    harness.advance(498)
    assert harness.replica.is_leader
    harness.advance(1)
    assert harness.role is Role.RESIGNED


# --- begin quorum -------------------------------------------------------------------------------------------------


def test_rf33_a_new_leader_tells_every_other_voter_at_once() -> None:
    harness = replica().make_leader()
    requests = {send.destination: send.request for send in harness.sent}
    assert set(requests) == {endpoint(2), endpoint(3)}
    assert requests[endpoint(2)] == BeginQuorumEpochRequest(
        cluster_id=CLUSTER_ID,
        voter_key=ReplicaKey(NodeId(2)),
        leader_id=NodeId(1),
        leader_epoch=Epoch(1),
        leader_endpoint=endpoint(1),
        leader_directory_id=key(1).directory_id,
    )


def test_rf33_voters_that_do_not_fetch_are_told_again_every_half_fetch_timeout() -> None:
    harness = replica(request_timeout_ms=500).make_leader()
    assert begins(harness) == [endpoint(2), endpoint(3)]
    harness.advance(BEGIN_QUORUM_MS - 1)
    assert begins(harness) == []
    harness.advance(1)
    assert begins(harness) == [endpoint(2), endpoint(3)]
    harness.advance(BEGIN_QUORUM_MS)
    assert begins(harness) == [endpoint(2), endpoint(3)]


def test_rf33_a_voter_that_fetched_within_the_interval_is_not_told() -> None:
    harness = replica(request_timeout_ms=500).make_leader()
    begins(harness)
    harness.advance(500)
    harness.ask(fetch(2, 1))
    harness.advance(500)
    assert begins(harness) == [endpoint(3)]
    harness.advance(BEGIN_QUORUM_MS)
    assert begins(harness) == [endpoint(2), endpoint(3)]


def test_rf33_a_voter_with_a_request_under_way_is_not_sent_another() -> None:
    harness = replica(request_timeout_ms=1_500).make_leader()
    begins(harness)
    harness.advance(BEGIN_QUORUM_MS)
    assert begins(harness) == []


def test_rf33_observers_are_not_told() -> None:
    harness = replica(request_timeout_ms=500).make_leader()
    harness.ask(fetch(9, 1))
    begins(harness)
    harness.advance(BEGIN_QUORUM_MS)
    assert begins(harness) == [endpoint(2), endpoint(3)]
