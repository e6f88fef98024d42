"""Who reaches nobody opens no epochs."""

from __future__ import annotations

import pytest

from raft.core.states import Role
from sim.invariants.epochs_bounded import QUIET_US, EpochsBounded
from tests.raft.core.builders import election_state, key
from tests.sim.invariants.builders import Cluster, violates

LATER = QUIET_US + 1


def candidate(*links: tuple[int, int], now_us: int = LATER) -> tuple[Cluster, EpochsBounded]:
    """Node 1 of three is a candidate, and these links are cut since the beginning."""
    cluster = Cluster()
    cluster.now_us = now_us
    cluster.cut_since_us = dict.fromkeys(links, 0)
    cluster.become(1, role=Role.CANDIDATE)
    return cluster, EpochsBounded(cluster)


@pytest.mark.parametrize("links", [[(1, 2), (1, 3)], [(2, 1), (3, 1)], [(1, 2), (3, 1)]])
def test_a_candidate_that_no_majority_hears_or_that_hears_none_is_wrong(links: list[tuple[int, int]]) -> None:
    cluster, invariant = candidate(*links)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_one_that_reaches_one_of_two_is_fine() -> None:
    cluster, invariant = candidate((1, 2), (2, 1))
    invariant.after_step(cluster.step(1))


def test_one_that_was_just_cut_off_is_fine() -> None:
    cluster, invariant = candidate((1, 2), (1, 3), now_us=QUIET_US)
    invariant.after_step(cluster.step(1))


def test_one_that_asks_for_pre_votes_is_fine() -> None:
    cluster, invariant = candidate((1, 2), (1, 3))
    cluster.become(1, role=Role.PROSPECTIVE)
    invariant.after_step(cluster.step(1))


def test_a_restart_in_the_epoch_of_the_candidacy_opens_none() -> None:
    cluster, invariant = candidate((1, 2), (1, 3))
    cluster.become(1, role=Role.PROSPECTIVE, epoch=4)
    cluster.nodes[1].durable_election = election_state(4, voted_key=key(1))
    invariant.after_step(cluster.step(1))
    invariant.after_step(cluster.kill(1))
    invariant.after_step(cluster.start(1, role=Role.CANDIDATE, epoch=4))
    invariant.after_step(cluster.step(1))
    cluster.become(1, role=Role.PROSPECTIVE, epoch=4)
    invariant.after_step(cluster.step(1))
    cluster.become(1, role=Role.CANDIDATE, epoch=5)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_an_epoch_that_reached_the_disk_as_the_process_was_killed_is_not_new_at_the_restart() -> None:
    cluster, invariant = candidate((1, 2), (1, 3))
    cluster.nodes[1].durable_election = election_state(4, voted_key=key(1))
    invariant.after_step(cluster.kill(1))
    invariant.after_step(cluster.start(1, role=Role.CANDIDATE, epoch=4))


def test_answers_that_a_paused_process_reads_late_may_make_it_a_candidate() -> None:
    cluster, invariant = candidate((1, 2), (1, 3))
    invariant.after_step(cluster.step(1, "Vote answer"))
    invariant.after_step(cluster.step(1))
