"""When a process may end: after handing over, after an election, or at once (RF-100, RF-101)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, Offset
from raft.core.actions import Send
from raft.core.events import ShutdownRequested
from raft.core.messages import EndQuorumEpochRequest, EndQuorumEpochResponse, FetchSnapshotRequest, VoteRequest
from raft.core.states import Resigned, Role
from raft.core.types import OffsetAndEpoch
from tests.raft.core.builders import (
    CLUSTER_ID,
    Harness,
    begin_quorum_epoch,
    fetch,
    key,
    leader_and_epoch,
    replica,
    vote,
    vote_response,
)


def ends(harness: Harness) -> list[Send]:
    return [send for send in harness.sent if isinstance(send.request, EndQuorumEpochRequest)]


def acknowledge(harness: Harness, send: Send) -> None:
    harness.answer(send, EndQuorumEpochResponse(leader=leader_and_epoch(None, harness.epoch)))


def test_rf100_a_leader_that_shuts_down_resigns_and_is_done_when_all_have_acknowledged() -> None:
    harness = replica().make_leader()
    _ = harness.sent  # from here on
    harness.step(ShutdownRequested())
    assert isinstance(harness.state, Resigned)
    first, second = ends(harness)
    acknowledge(harness, first)
    assert not harness.replica.is_shutdown_complete
    acknowledge(harness, second)
    assert harness.replica.is_shutdown_complete


def test_rf100_it_is_done_when_its_timer_fires() -> None:
    harness = replica().make_leader()
    harness.step(ShutdownRequested())
    assert not harness.replica.is_shutdown_complete
    harness.time_out()
    assert harness.replica.is_shutdown_complete


def test_rf100_it_is_done_when_a_higher_epoch_is_seen() -> None:
    harness = replica().make_leader()
    harness.step(ShutdownRequested())
    harness.ask(begin_quorum_epoch(2, 2))
    assert harness.replica.is_shutdown_complete


@pytest.mark.parametrize(
    ("harness", "is_done"),
    [
        (replica().make_follower(3, 5), True),
        (replica(observer=True), True),
        (replica(voter_count=1), True),
        (replica(), False),
        (replica().make_prospective(), False),
        (replica().make_candidate(), False),
    ],
    ids=["follower", "observer", "sole voter", "unattached", "prospective", "candidate"],
)
def test_rf101_who_is_not_needed_is_done_at_once(harness: Harness, is_done: bool) -> None:
    harness.step(ShutdownRequested())
    assert harness.replica.is_shutdown_complete is is_done


@pytest.mark.parametrize("role", [Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE])
def test_rf101_a_voter_without_a_leader_is_done_when_one_is_elected(role: Role) -> None:
    harness = replica()
    if role is not Role.UNATTACHED:
        harness.make_prospective()
    if role is Role.CANDIDATE:
        harness.make_candidate()
    harness.step(ShutdownRequested())
    harness.ask(begin_quorum_epoch(2, 3))
    assert harness.replica.is_shutdown_complete


def test_rf101_a_candidate_that_wins_while_it_shuts_down_hands_over() -> None:
    harness = replica().make_candidate()
    harness.step(ShutdownRequested())
    (first, *_) = [send for send in harness.sent if isinstance(send.request, VoteRequest)]
    harness.answer(first, vote_response(1, granted=True))
    assert (harness.role, harness.epoch) == (Role.RESIGNED, 1)
    assert not harness.replica.is_shutdown_complete
    for send in ends(harness):
        acknowledge(harness, send)
    assert harness.replica.is_shutdown_complete


def test_rf101_leader_only_requests_are_turned_away_while_it_shuts_down() -> None:
    harness = replica().make_leader()
    harness.step(ShutdownRequested())
    assert harness.ask(fetch(2, 1)).error is ErrorCode.BROKER_NOT_AVAILABLE
    request = FetchSnapshotRequest(
        cluster_id=CLUSTER_ID,
        replica_key=key(2),
        current_leader_epoch=Epoch(1),
        snapshot_id=OffsetAndEpoch(epoch=Epoch(1), offset=Offset(1)),
        position=0,
        max_bytes=1,
    )
    assert harness.ask(request).error is ErrorCode.BROKER_NOT_AVAILABLE


def test_rf101_an_unattached_voter_that_shuts_down_waits_for_others_to_elect() -> None:
    harness = replica()
    harness.step(ShutdownRequested())
    harness.advance(60_000)
    assert (harness.role, harness.epoch) == (Role.UNATTACHED, 0)
    assert harness.ask(vote(2, 1)).vote_granted
    harness.advance(60_000)
    assert (harness.role, harness.epoch) == (Role.UNATTACHED, 1)
    harness.ask(begin_quorum_epoch(2, 1))
    assert harness.replica.is_shutdown_complete


def test_rf101_a_nominee_that_shuts_down_and_is_not_elected_in_time_waits_for_others() -> None:
    harness = replica().make_candidate()
    harness.step(ShutdownRequested())
    harness.advance(60_000)
    assert (harness.role, harness.epoch) == (Role.UNATTACHED, 1)
    assert not harness.replica.is_shutdown_complete
