"""A voter that lost durable data stays out until it has it back."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.recovering import RecoveringStaysOut
from raft.core.states import Role
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, send, violates
from tests.raft.core.builders import fetch, vote, vote_response


def recovering(role: Role = Role.FOLLOWER) -> tuple[Cluster, RecoveringStaysOut]:
    cluster = Cluster()
    cluster.become(1, is_recovering=True, role=role)
    return cluster, RecoveringStaysOut(cluster)


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.UNATTACHED])
def test_it_may_follow_refuse_votes_and_fetch_as_one_that_recovers(role: Role) -> None:
    cluster, invariant = recovering(role)
    refusal = (vote(2, 1), vote_response(1, granted=False))
    invariant.after_step(cluster.step(1, replies=[refusal], actions=[send(fetch(1, 1, recovering=True))]))


@pytest.mark.parametrize("role", [Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER])
def test_it_must_not_want_to_lead(role: Role) -> None:
    cluster, invariant = recovering(role)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


@pytest.mark.parametrize("pre_vote", [False, True])
def test_it_must_not_grant_a_vote(pre_vote: bool) -> None:
    cluster, invariant = recovering()
    granted = (vote(2, 1, pre_vote=pre_vote), vote_response(1, granted=True, pre_vote=pre_vote))
    with violates(invariant):
        invariant.after_step(cluster.step(1, replies=[granted]))


def test_its_fetches_must_say_so() -> None:
    cluster, invariant = recovering()
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=[send(fetch(1, 1))]))


def test_one_that_has_everything_back_may_do_all_of_that() -> None:
    cluster = Cluster()
    cluster.become(1, role=Role.CANDIDATE)
    granted = (vote(2, 1), vote_response(1, granted=True))
    RecoveringStaysOut(cluster).after_step(cluster.step(1, replies=[granted], actions=[send(fetch(1, 1))]))
