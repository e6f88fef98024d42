"""Only voters take part in elections."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.roles import Roles
from raft.core.states import Role
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import OBSERVER_ID


def test_a_voter_may_be_anything() -> None:
    cluster = Cluster()
    for role in Role:
        cluster.become(1, role=role)
        Roles(cluster).after_step(cluster.step(1))


@pytest.mark.parametrize("role", [Role.UNATTACHED, Role.FOLLOWER])
def test_an_observer_may_look_for_a_leader_and_follow(role: Role) -> None:
    cluster = Cluster()
    cluster.become(OBSERVER_ID, role=role)
    Roles(cluster).after_step(cluster.step(OBSERVER_ID))


@pytest.mark.parametrize("role", [Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER, Role.RESIGNED])
def test_an_observer_must_not_be_more(role: Role) -> None:
    cluster = Cluster()
    invariant = Roles(cluster)
    cluster.become(OBSERVER_ID, role=role)
    with violates(invariant):
        invariant.after_step(cluster.step(OBSERVER_ID))
