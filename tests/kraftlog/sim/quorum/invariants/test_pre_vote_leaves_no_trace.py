"""A pre-vote changes no epoch and no vote."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.pre_vote_leaves_no_trace import PreVoteLeavesNoTrace
from kraftlog.sim.quorum.observation.step import Step
from raft.core.events import Event, RequestReceived, TimePassed
from raft.core.states import Role
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import begin_quorum_epoch, election_state, key, vote


def asked(cluster: Cluster, epoch: int, *, pre_vote: bool = True) -> Step:
    """Node 2 asks node 1 for a vote, as of `epoch`."""
    return cluster.step(1, events=[RequestReceived(1, vote(2, epoch, pre_vote=pre_vote))])


def in_epoch(epoch: int, role: Role = Role.FOLLOWER, voter_count: int = 3) -> tuple[Cluster, PreVoteLeavesNoTrace]:
    """Node 1 is in that epoch, and has not voted."""
    cluster = Cluster(voter_count)
    invariant = PreVoteLeavesNoTrace(cluster)
    cluster.become(1, epoch=epoch, role=role)
    cluster.nodes[1].durable_election = election_state(epoch)
    invariant.after_step(cluster.step(1))
    return cluster, invariant


def test_nothing_changes() -> None:
    cluster, invariant = in_epoch(3)
    invariant.after_step(asked(cluster, 3))


def test_the_epoch_that_the_sender_is_in_may_be_entered() -> None:
    cluster, invariant = in_epoch(3)
    cluster.become(1, epoch=5)
    cluster.nodes[1].durable_election = election_state(5)
    invariant.after_step(asked(cluster, 5))


def test_no_epoch_may_be_opened() -> None:
    cluster, invariant = in_epoch(3)
    cluster.become(1, epoch=4)
    with violates(invariant):
        invariant.after_step(asked(cluster, 3))


def test_no_vote_may_be_remembered() -> None:
    cluster, invariant = in_epoch(3)
    cluster.nodes[1].durable_election = election_state(3, voted_key=key(2))
    with violates(invariant):
        invariant.after_step(asked(cluster, 3))


def test_a_vote_proper_is_remembered() -> None:
    cluster, invariant = in_epoch(3)
    cluster.nodes[1].durable_election = election_state(3, voted_key=key(2))
    invariant.after_step(asked(cluster, 3, pre_vote=False))


@pytest.mark.parametrize("other", [TimePassed(), RequestReceived(1, begin_quorum_epoch(2, 5))])
def test_other_events_may_do_anything(other: Event) -> None:
    cluster, invariant = in_epoch(3)
    cluster.become(1, epoch=5)
    invariant.after_step(cluster.step(1, events=[other]))


def test_a_timer_that_was_due_as_well_may_open_the_epoch_after_a_resignation() -> None:
    cluster, invariant = in_epoch(3, Role.RESIGNED)
    cluster.become(1, epoch=4, role=Role.UNATTACHED)
    invariant.after_step(asked(cluster, 3))


@pytest.mark.parametrize("role", [Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER])
def test_no_other_timer_may(role: Role) -> None:
    cluster, invariant = in_epoch(3, role)
    cluster.become(1, epoch=4, role=Role.CANDIDATE)
    with violates(invariant):
        invariant.after_step(asked(cluster, 3))


def test_a_sole_voter_that_was_due_to_elect_itself_may_open_an_epoch() -> None:
    cluster, invariant = in_epoch(3, Role.UNATTACHED, voter_count=1)
    cluster.become(1, epoch=4, role=Role.LEADER)
    invariant.after_step(asked(cluster, 3))
