"""An epoch and a candidate's own vote are durable before anything of them leaves."""

from __future__ import annotations

import pytest

from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.sim.quorum.invariants.persist_first import PersistFirst
from raft.core.actions import Action, AppendLeaderChange, PersistElectionState, Reply
from raft.core.messages import LeaderChange
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, send, violates
from tests.raft.core.builders import (
    begin_quorum_epoch,
    election_state,
    end_quorum_epoch,
    fetch,
    fetch_response,
    key,
    replica,
    vote,
)

OF_EPOCH_4: list[Action] = [
    send(vote(1, 4, pre_vote=True)),
    send(begin_quorum_epoch(1, 4)),
    send(end_quorum_epoch(1, 4)),
    send(fetch(1, 4)),
    Reply(1, fetch_response(1, 4)),
    AppendLeaderChange(Offset(0), Epoch(4), LeaderChange(leader_id=NodeId(1), voters=(), granting_voters=())),
]


def in_epoch(epoch: int) -> tuple[Cluster, PersistFirst]:
    cluster = Cluster()
    cluster.nodes[1].durable_election = election_state(epoch)
    invariant = PersistFirst(cluster)
    invariant.after_step(cluster.step(1, label="start", started=True))
    return cluster, invariant


@pytest.mark.parametrize("action", OF_EPOCH_4)
def test_what_is_ordered_after_its_epoch_is_fine(action: Action) -> None:
    cluster, invariant = in_epoch(3)
    invariant.after_step(cluster.step(1, actions=[PersistElectionState(election_state(4)), action]))
    invariant.after_step(cluster.step(1, actions=[action]))


@pytest.mark.parametrize("action", OF_EPOCH_4)
def test_what_is_ordered_before_its_epoch_is_not(action: Action) -> None:
    cluster, invariant = in_epoch(3)
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=[action, PersistElectionState(election_state(4))]))


def test_a_candidate_votes_for_itself_before_it_asks() -> None:
    cluster, invariant = in_epoch(3)
    voted = PersistElectionState(election_state(4, voted_key=key(1)))
    invariant.after_step(cluster.step(1, actions=[voted, send(vote(1, 4))]))
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=[PersistElectionState(election_state(5)), send(vote(1, 5))]))


def test_a_new_process_has_what_is_on_its_disk_and_no_more() -> None:
    cluster, invariant = in_epoch(3)
    invariant.after_step(cluster.step(1, actions=[PersistElectionState(election_state(4))]))  # killed before it was
    cluster.start(1)
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=[send(fetch(1, 4))]))


def test_a_disk_without_a_quorum_state_is_in_epoch_0() -> None:
    cluster = Cluster()
    invariant = PersistFirst(cluster)
    invariant.after_step(cluster.step(1, actions=[send(fetch(1, 0))]))
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=[send(fetch(1, 1))]))


def test_a_real_election_keeps_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, invariant = in_epoch(0)
    harness, ordered = replica(1), list[Action]()
    note = harness._note

    def record(actions: list[Action]) -> list[Action]:
        ordered.extend(actions)
        return note(actions)

    monkeypatch.setattr(harness, "_note", record)
    harness.make_leader()
    assert any(isinstance(action, AppendLeaderChange) for action in ordered)
    invariant.after_step(cluster.step(1, actions=ordered))
