"""A state's timers end with the state."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.timers import Timers
from raft.core.events import ResponseReceived, TimePassed
from raft.core.states import Role
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import fetch_response, replica


def changing(before: Role, after: Role, voter_count: int = 3) -> tuple[Cluster, Timers]:
    """Node 1 was the one and is the other, in the same process."""
    cluster = Cluster(voter_count)
    invariant = Timers(cluster)
    cluster.become(1, role=before)
    invariant.after_step(cluster.step(1))
    cluster.become(1, role=after)
    return cluster, invariant


@pytest.mark.parametrize("role", list(Role))
def test_time_may_leave_a_replica_what_it_is(role: Role) -> None:
    cluster, invariant = changing(role, role)
    invariant.after_step(cluster.step(1))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Role.UNATTACHED, Role.CANDIDATE),
        (Role.UNATTACHED, Role.LEADER),
        (Role.FOLLOWER, Role.CANDIDATE),
        (Role.FOLLOWER, Role.UNATTACHED),
        (Role.FOLLOWER, Role.RESIGNED),
        (Role.LEADER, Role.CANDIDATE),
        (Role.LEADER, Role.PROSPECTIVE),
        (Role.CANDIDATE, Role.FOLLOWER),
        (Role.RESIGNED, Role.LEADER),
    ],
)
def test_no_timer_leads_there(before: Role, after: Role) -> None:
    cluster, invariant = changing(before, after)
    with violates(invariant):
        invariant.after_step(cluster.step(1, events=[TimePassed()]))


def test_a_message_or_a_new_process_may_lead_there() -> None:
    cluster, invariant = changing(Role.LEADER, Role.FOLLOWER)
    invariant.after_step(cluster.step(1, label="Vote from 2"))
    invariant.after_step(cluster.start(1, role=Role.UNATTACHED))
    cluster.start(1, role=Role.RESIGNED)
    invariant.after_step(cluster.step(1))


@pytest.mark.parametrize("before", [Role.UNATTACHED, Role.RESIGNED])
def test_a_sole_voter_goes_on_to_leading(before: Role) -> None:
    cluster, invariant = changing(before, Role.LEADER, voter_count=1)
    invariant.after_step(cluster.step(1, events=[TimePassed()]))


def test_an_answer_that_a_full_disk_held_back_may_lead_there() -> None:
    cluster, invariant = changing(Role.UNATTACHED, Role.FOLLOWER)
    invariant.after_step(cluster.step(1, events=[ResponseReceived(1, fetch_response(2, 1))]))


def test_where_a_real_voters_timers_lead() -> None:
    cluster = Cluster()
    invariant = Timers(cluster)
    harness = replica(1)
    cluster.nodes[1].replica = harness.replica
    invariant.after_step(cluster.step(1, label="start"))
    for move in (harness.time_out, harness.time_out, harness.make_leader, harness.time_out, harness.time_out):
        move()
        is_message = move == harness.make_leader
        invariant.after_step(cluster.step(1, label="Vote answer" if is_message else "timer"))
