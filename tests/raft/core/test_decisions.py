"""What a replica decided in a step, and why, can be read until its next step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftbase.types import Epoch, Offset
from raft.core.decisions import ElectionBegun, ElectionPutOff, StateEntered, VoteRefused
from raft.core.events import TimePassed
from raft.core.messages import VoteRequest
from raft.core.states import Role
from raft.core.types import RecoveringLog
from tests.raft.core.builders import Harness, key, replica, vote, vote_response


def refusals(harness: Harness) -> list[str]:
    return [decision.reason for decision in harness.replica.decisions if isinstance(decision, VoteRefused)]


def test_a_step_in_which_nothing_is_decided_has_no_decisions() -> None:
    harness = replica()
    harness.ask(vote(2, 0))  # which is refused
    harness.step(TimePassed())
    assert list(harness.replica.decisions) == []


def test_every_edge_of_a_step_is_there_in_order_with_the_reason_of_the_election() -> None:
    harness = replica(voter_count=1)
    assert list(harness.replica.decisions) == [
        ElectionBegun("it is the only voter"),
        StateEntered(Role.UNATTACHED, Epoch(0), Role.PROSPECTIVE, Epoch(0)),
        StateEntered(Role.PROSPECTIVE, Epoch(0), Role.CANDIDATE, Epoch(1)),
        StateEntered(Role.CANDIDATE, Epoch(1), Role.LEADER, Epoch(1)),
    ]


def test_a_vote_that_is_granted_is_no_refusal() -> None:
    harness = replica()
    assert harness.ask(vote(2, 5)).vote_granted
    assert refusals(harness) == []
    edge = StateEntered(Role.UNATTACHED, Epoch(0), Role.UNATTACHED, Epoch(5))
    assert edge in harness.replica.decisions


@pytest.mark.parametrize(
    ("enter", "request_", "reason"),
    [
        (Harness.make_leader, vote(2, 1, last_epoch=1, last_offset=1, pre_vote=True), "this node leads epoch 1"),
        (Harness.make_leader, vote(2, 1), "epoch 1 is this node's own"),
        (Harness.make_candidate, vote(2, 1), "this node is a candidate of epoch 1 itself"),
        (lambda harness: harness.make_follower(3, 1), vote(2, 1), "3 leads epoch 1"),
    ],
)
def test_why_a_vote_is_refused_in_a_state(
    enter: Callable[[Harness], object], request_: VoteRequest, reason: str
) -> None:
    harness = replica()
    enter(harness)
    answer = harness.ask(request_)
    assert not answer.vote_granted
    assert list(harness.replica.decisions) == [VoteRefused(key(2), Epoch(1), request_.pre_vote, reason)]


@pytest.mark.parametrize("pre_vote", [False, True])
def test_why_who_recovers_refuses(pre_vote: bool) -> None:
    recovering = RecoveringLog(Offset(9), Epoch(2), reason="a segment is damaged")
    harness = replica(log=[(1, 3)], recovering=recovering)
    assert not harness.ask(vote(2, 4, last_epoch=3, last_offset=9, pre_vote=pre_vote)).vote_granted
    assert refusals(harness) == ["this node recovers: its log ends at 3, and may once have been longer"]


def test_why_a_candidate_asks_again() -> None:
    harness = replica().make_candidate()
    harness.time_out()
    reasons = [decision.reason for decision in harness.replica.decisions if isinstance(decision, ElectionBegun)]
    assert reasons == ["epoch 1 has no leader: only [1] voted for this node"]


def test_a_pre_vote_that_is_rejected_puts_the_election_off_until_the_next_deadline() -> None:
    harness = replica().make_prospective()
    for send in harness.sent:
        if isinstance(send.request, VoteRequest):
            harness.answer(send, vote_response(0, granted=False, pre_vote=True))
    (put_off,) = [decision for decision in harness.replica.decisions if isinstance(decision, ElectionPutOff)]
    assert put_off.reason == "pre-votes of [1] alone: a majority could not be won"
    assert harness.replica.next_deadline_ms is not None
    assert put_off.wait_ms > 0
