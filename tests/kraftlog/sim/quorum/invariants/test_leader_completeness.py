"""A leader has everything that was committed."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.leader_completeness import LeaderCompleteness
from raft.core.states import Role
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates
from tests.raft.storage.builders import data_batch


def test_a_leader_that_has_it_and_more_is_fine() -> None:
    cluster = Cluster()
    invariant = LeaderCompleteness(cluster)
    cluster.commit(*batches(1, 1))
    cluster.append(2, *batches(1, 1, 1, 2))
    cluster.become(2, role=Role.LEADER, epoch=2, leader_id=2)
    invariant.after_step(cluster.step(2))


@pytest.mark.parametrize("log", [batches(1), [], [data_batch(0, 1), data_batch(1, 2)]], ids=["less", "none", "other"])
def test_a_leader_that_lacks_some_of_it_is_not(log: list[object]) -> None:
    cluster = Cluster()
    invariant = LeaderCompleteness(cluster)
    cluster.commit(*batches(1, 1))
    cluster.append(2, *log)  # type: ignore[arg-type]
    cluster.become(2, role=Role.LEADER, epoch=2, leader_id=2)
    with violates(invariant):
        invariant.after_step(cluster.step(2))


def test_a_leader_of_an_older_epoch_may_lack_what_the_newer_committed() -> None:
    cluster = Cluster()
    invariant = LeaderCompleteness(cluster)
    cluster.append(2, *batches(2))
    cluster.become(2, role=Role.LEADER, epoch=2, leader_id=2)
    invariant.after_step(cluster.step(2))
    cluster.commit(*batches(2))
    cluster.become(1, role=Role.LEADER, epoch=1, leader_id=1)
    invariant.after_step(cluster.step(1))


def test_a_run_that_destroys_a_majority_is_not_judged() -> None:
    cluster = Cluster()
    cluster.faults_may_lose_quorum = True
    invariant = LeaderCompleteness(cluster)
    cluster.commit(*batches(1, 1))
    cluster.become(2, role=Role.LEADER, epoch=2, leader_id=2)
    invariant.after_step(cluster.step(2))


@pytest.mark.parametrize("lacks", [False, True])
def test_a_leader_whose_disk_cannot_be_read_ends_when_it_notices(lacks: bool) -> None:
    cluster = Cluster()
    invariant = LeaderCompleteness(cluster)
    log = batches(*[1] * 8)
    cluster.commit(*log, *([data_batch(8, 1)] if lacks else []))
    cluster.store(2, *log)
    if lacks:
        cluster.become(2, role=Role.LEADER, epoch=2, leader_id=2)
        with violates(invariant):
            invariant.after_step(cluster.step(2))
        invariant = LeaderCompleteness(cluster)
    cluster.make_unreadable(2)
    cluster.become(2, role=Role.LEADER, epoch=2, leader_id=2)
    invariant.after_step(cluster.step(2))


def test_a_leader_whose_orders_are_not_carried_out_yet_is_judged_when_they_are() -> None:
    cluster = Cluster()
    invariant = LeaderCompleteness(cluster)
    cluster.commit(*batches(1))
    cluster.become(2, role=Role.LEADER, epoch=2, leader_id=2)
    cluster.nodes[2].is_behind = True
    invariant.after_step(cluster.step(2))
    cluster.nodes[2].is_behind = False
    with violates(invariant):
        invariant.after_step(cluster.step(2))


@pytest.mark.parametrize("start", [1, 2, 3])
def test_a_leader_may_have_it_in_a_snapshot(start: int) -> None:
    cluster = Cluster()
    invariant = LeaderCompleteness(cluster)
    cluster.commit(*batches(1, 1, 1))
    cluster.truncate_fully_and_start_at(2, at(start))
    cluster.become(2, role=Role.LEADER, epoch=2, leader_id=2)
    if start == 3:
        invariant.after_step(cluster.step(2))
        return
    with violates(invariant):
        invariant.after_step(cluster.step(2))
