"""Which state may follow which (RF-07 to RF-13)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from kraftbase.errors import InvariantViolation
from kraftbase.types import Epoch, NodeId, Offset
from raft.core import transitions
from raft.core.accumulator import Accumulator
from raft.core.edge_checks import HIGHER, NEXT, SAME
from raft.core.environment import Environment
from raft.core.events import ResignRequested
from raft.core.messages import FetchRequest
from raft.core.output import Output
from raft.core.purgatory import Purgatory
from raft.core.quorum import VoteTally
from raft.core.replica_state import ReplicaState
from raft.core.startup import elect_only_voter
from raft.core.states import ROLES, Candidate, Follower, Leader, Prospective, Resigned, Role, State, Unattached
from raft.core.transitions import EDGES, transition
from raft.core.types import OffsetAndEpoch, ReplicaKey
from tests.raft.core.builders import (
    Harness,
    begin_quorum_epoch,
    election_state,
    endpoint,
    fetch_response,
    key,
    replica,
    vote,
    vote_response,
)

Build = Callable[[], Harness]
Do = Callable[[Harness], object]


def unattached(voted_key: ReplicaKey | None = None) -> Harness:
    return replica(election_state=election_state(5, voted_key=voted_key))


def prospective() -> Harness:
    return unattached().make_prospective()


def candidate() -> Harness:
    return unattached().make_candidate()


def leader() -> Harness:
    return unattached().make_leader()


def follower() -> Harness:
    return replica().make_follower(3, 5)


def follower_with_a_log() -> Harness:
    made = replica(log=[(1, 5)])
    made.sent.clear()
    return made.make_follower(3, 5)


def resigned() -> Harness:
    return replica(election_state=election_state(5, leader_id=1))


def sole_resigned() -> Harness:
    """A sole voter resigns while it runs; how it starts again is in test_startup."""
    harness = replica(voter_count=1)
    harness.step(ResignRequested(Epoch(harness.epoch)))
    return harness


def hear_of_leader(epochs_on: int) -> Do:
    return lambda harness: harness.ask(begin_quorum_epoch(3, harness.epoch + epochs_on))


def hear_of_epoch(harness: Harness) -> None:
    harness.ask(vote(2, harness.epoch + 2, last_epoch=0, last_offset=0))


def vote_for_2(harness: Harness) -> None:
    request = vote(2, harness.epoch, last_epoch=harness.epoch - 1, last_offset=100)
    assert harness.ask(request).vote_granted


def time_out(harness: Harness) -> None:
    harness.time_out()


def win(harness: Harness) -> None:
    (first, *_) = [send for send in harness.sent if send.destination == endpoint(2)][-1:]
    pre_vote = harness.role is Role.PROSPECTIVE
    harness.answer(first, vote_response(harness.epoch, granted=True, pre_vote=pre_vote))


def resign(harness: Harness) -> None:
    harness.step(ResignRequested(Epoch(harness.epoch)))


def elect_at_start(harness: Harness) -> None:
    elect_only_voter(harness.environment, harness.replica_state, harness.output)


def find_that_the_leader_lacks_what_is_committed(harness: Harness) -> None:
    harness.advance(0)
    (send,) = [send for send in harness.sent if isinstance(send.request, FetchRequest)]
    harness.replica_state.high_watermark = Offset(5)
    point = OffsetAndEpoch(epoch=Epoch(1), offset=Offset(3))
    harness.answer(send, fetch_response(3, 5, diverging_epoch=point))


REACHED: dict[tuple[Role, Role, str], tuple[Build, Do]] = {
    (Role.UNATTACHED, Role.UNATTACHED, HIGHER): (unattached, hear_of_epoch),
    (Role.UNATTACHED, Role.UNATTACHED, SAME): (unattached, vote_for_2),
    (Role.UNATTACHED, Role.FOLLOWER, HIGHER): (unattached, hear_of_leader(2)),
    (Role.UNATTACHED, Role.FOLLOWER, SAME): (unattached, hear_of_leader(0)),
    (Role.UNATTACHED, Role.PROSPECTIVE, SAME): (unattached, time_out),
    (Role.PROSPECTIVE, Role.CANDIDATE, NEXT): (prospective, win),
    (Role.PROSPECTIVE, Role.FOLLOWER, HIGHER): (prospective, hear_of_leader(2)),
    (Role.PROSPECTIVE, Role.FOLLOWER, SAME): (prospective, hear_of_leader(0)),
    (Role.PROSPECTIVE, Role.UNATTACHED, HIGHER): (prospective, hear_of_epoch),
    (Role.PROSPECTIVE, Role.UNATTACHED, SAME): (prospective, time_out),
    (Role.CANDIDATE, Role.LEADER, SAME): (candidate, win),
    (Role.CANDIDATE, Role.PROSPECTIVE, SAME): (candidate, time_out),
    (Role.CANDIDATE, Role.FOLLOWER, HIGHER): (candidate, hear_of_leader(2)),
    (Role.CANDIDATE, Role.FOLLOWER, SAME): (candidate, hear_of_leader(0)),
    (Role.CANDIDATE, Role.UNATTACHED, HIGHER): (candidate, hear_of_epoch),
    (Role.LEADER, Role.RESIGNED, SAME): (leader, resign),
    (Role.LEADER, Role.FOLLOWER, HIGHER): (leader, hear_of_leader(2)),
    (Role.LEADER, Role.UNATTACHED, HIGHER): (leader, hear_of_epoch),
    (Role.FOLLOWER, Role.FOLLOWER, HIGHER): (follower, hear_of_leader(2)),
    (Role.FOLLOWER, Role.PROSPECTIVE, SAME): (follower, time_out),
    (Role.FOLLOWER, Role.UNATTACHED, HIGHER): (follower, hear_of_epoch),
    (Role.FOLLOWER, Role.UNATTACHED, SAME): (follower_with_a_log, find_that_the_leader_lacks_what_is_committed),
    (Role.RESIGNED, Role.UNATTACHED, HIGHER): (resigned, hear_of_epoch),
    (Role.RESIGNED, Role.FOLLOWER, HIGHER): (resigned, hear_of_leader(2)),
    (Role.RESIGNED, Role.CANDIDATE, NEXT): (sole_resigned, elect_at_start),
}
"""Every edge, with a way to take it."""


def spy_on_states(monkeypatch: pytest.MonkeyPatch) -> list[State]:
    """The states that are entered from now on."""
    entered: list[State] = []
    enter = transitions.enter

    def note(environment: Environment, replica: ReplicaState, output: Output, state: State) -> None:
        entered.append(state)
        enter(environment, replica, output, state)

    monkeypatch.setattr(transitions, "enter", note)
    return entered


@pytest.mark.parametrize("edge", REACHED, ids=lambda edge: f"{edge[0]} to {edge[1]} in {edge[2]}")
def test_every_edge_is_taken(edge: tuple[Role, Role, str], monkeypatch: pytest.MonkeyPatch) -> None:
    build, do = REACHED[edge]
    harness = build()
    assert harness.role is edge[0]
    old_epoch = harness.epoch
    entered = spy_on_states(monkeypatch)
    do(harness)
    assert ROLES[type(entered[0])] is edge[1]
    epochs_on = entered[0].epoch - old_epoch
    assert {SAME: epochs_on == 0, HIGHER: epochs_on > 0, NEXT: epochs_on == 1}[edge[2]]


def test_the_table_above_is_the_automaton() -> None:
    edges = {(old, new, epoch) for old, row in EDGES.items() for new, epochs in row.items() for epoch in epochs}
    assert set(REACHED) == edges


# --- forbidden transitions (RF-07) ------------------------------------------------------------------------------------


def a_state(role: Role, epoch: int, *, leader_id: int = 3, voted_key: ReplicaKey | None = None) -> State:
    """A state to try to enter; the votes in it do not matter to the edge."""
    votes = VoteTally((NodeId(1), NodeId(2), NodeId(3)), allows_change=True)
    at, leader_node = Epoch(epoch), NodeId(leader_id)
    match role:
        case Role.UNATTACHED:
            return Unattached(epoch=at, leader_id=None, voted_key=voted_key, election_deadline_ms=9_999)
        case Role.PROSPECTIVE:
            return Prospective(
                epoch=at,
                leader_id=None,
                leader_endpoint=None,
                voted_key=voted_key,
                election_deadline_ms=9_999,
                votes=votes,
            )
        case Role.CANDIDATE:
            return Candidate(epoch=at, voted_key=voted_key or key(1), election_deadline_ms=9_999, votes=votes)
        case Role.FOLLOWER:
            return Follower(
                epoch=at,
                leader_id=leader_node,
                leader_endpoint=endpoint(leader_id),
                voted_key=voted_key,
                fetch_deadline_ms=9_999,
            )
        case Role.RESIGNED:
            return Resigned(
                epoch=at, voted_key=voted_key, election_deadline_ms=9_999, unacknowledged={}, preferred_candidates=()
            )
        case Role.LEADER:
            return Leader(
                epoch=at,
                leader_id=NodeId(1),
                voted_key=voted_key or key(1),
                epoch_start_offset=Offset(0),
                accumulator=Accumulator(Offset(0)),
                purgatory=Purgatory(1),
                granting_voters=(),
                voters={},
                check_quorum_deadline_ms=None,
                begin_quorum_deadline_ms=0,
            )


def go(harness: Harness, state: State) -> None:
    transition(harness.environment, harness.replica_state, harness.output, state)


STATES: dict[Role, Build] = {
    Role.UNATTACHED: unattached,
    Role.PROSPECTIVE: prospective,
    Role.CANDIDATE: candidate,
    Role.LEADER: leader,
    Role.FOLLOWER: follower,
    Role.RESIGNED: resigned,
}


ILLEGAL = [
    (old, new, epochs_on)
    for old in Role
    for new in Role
    for epochs_on, names in ((0, {SAME}), (1, {HIGHER, NEXT}), (2, {HIGHER}))
    if names.isdisjoint(EDGES[old].get(new, ()))
]


def refusal(harness: Harness, state: State) -> str:
    """Why the state cannot be entered; empty if it was."""
    try:
        go(harness, state)
    except InvariantViolation as violation:
        return str(violation)
    return ""


def test_rf07_an_edge_that_is_not_in_the_table_raises() -> None:
    for old, new, epochs_on in ILLEGAL:
        harness = STATES[old]()
        left = harness.state
        why = refusal(harness, a_state(new, harness.epoch + epochs_on))
        assert "no such edge" in why, (old, new, epochs_on)
        assert harness.state is left, (old, new, epochs_on)


def test_rf07_no_edge_leads_to_a_lower_epoch() -> None:
    for old, new in itertools.product(Role, Role):
        harness = STATES[old]()
        why = refusal(harness, a_state(new, harness.epoch - 1))
        assert "epoch never decreases" in why, (old, new)


def test_rf07_a_vote_does_not_change_within_an_epoch() -> None:
    harness = unattached(voted_key=key(2))
    with pytest.raises(InvariantViolation, match="vote is kept"):
        go(harness, a_state(Role.UNATTACHED, 5, voted_key=key(3)))


def test_rf07_nobody_follows_itself() -> None:
    with pytest.raises(InvariantViolation, match="no replica follows itself"):
        go(unattached(), a_state(Role.FOLLOWER, 5, leader_id=1))


def test_rf07_nobody_but_a_candidate_votes_for_itself() -> None:
    with pytest.raises(InvariantViolation, match="votes for itself"):
        go(unattached(), a_state(Role.UNATTACHED, 5, voted_key=key(1)))


def test_rf07_an_epoch_has_one_leader() -> None:
    with pytest.raises(InvariantViolation, match="one leader"):
        go(follower().make_prospective(), a_state(Role.FOLLOWER, 5, leader_id=2))


def test_rf07_an_observer_is_no_nominee() -> None:
    with pytest.raises(InvariantViolation, match="only a voter"):
        go(replica(observer=True), a_state(Role.PROSPECTIVE, 0))


def test_rf07_nobody_leads_without_a_majority() -> None:
    harness = candidate()
    with pytest.raises(InvariantViolation, match="majority"):
        go(harness, a_state(Role.LEADER, harness.epoch))


def test_rf07_only_a_sole_voter_goes_from_resigned_to_candidate() -> None:
    harness = resigned()
    with pytest.raises(InvariantViolation, match="sole voter"):
        go(harness, a_state(Role.CANDIDATE, harness.epoch + 1))
