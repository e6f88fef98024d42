"""A node that is cut off opens no epochs."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.epochs_bounded import EpochsBounded
from kraftlog.sim.quorum.observation.step import Step
from raft.core.states import Role
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import CONFIG, election_state, key

ALONE = [(1, 2), (2, 1), (1, 3), (3, 1)]
PATIENCE_MS = CONFIG.request_timeout_ms


class Voter:
    """Node 1 of three, which was in epoch 1 when links were cut."""

    def __init__(self, links: list[tuple[int, int]]) -> None:
        self.cluster = Cluster()
        self.invariant = EpochsBounded(self.cluster)
        self.now_ms = 0
        self.be(Role.PROSPECTIVE, 1)
        self.cut(links)

    def cut(self, links: list[tuple[int, int]]) -> None:
        """Cut these links from now on, and no others."""
        self.cluster.cut_since_us = dict.fromkeys(links, self.cluster.now_us)

    def be(self, role: Role, epoch: int, *, after_ms: int = 0) -> None:
        """Let it be that after a while of its own time, and have it judged."""
        self.become(role, epoch, after_ms=after_ms)
        self.invariant.after_step(self.cluster.step(1))

    def become(self, role: Role, epoch: int, *, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        self.cluster.now_us += after_ms * 1_000
        self.cluster.become(1, role=role, epoch=epoch, now_ms=self.now_ms, config=CONFIG)

    def restart(self, role: Role, epoch: int) -> Step:
        step = self.cluster.start(1)
        self.become(role, epoch)
        return step


def waiting(links: list[tuple[int, int]]) -> Voter:
    """It asks for pre-votes, and has given up what it asked for before the cut."""
    voter = Voter(links)
    voter.be(Role.PROSPECTIVE, 1)
    voter.be(Role.PROSPECTIVE, 1, after_ms=PATIENCE_MS)
    return voter


@pytest.mark.parametrize("links", [[(1, 2), (1, 3)], [(2, 1), (3, 1)], [(1, 2), (3, 1)], ALONE])
def test_a_candidate_that_no_majority_hears_or_that_hears_none_is_wrong(links: list[tuple[int, int]]) -> None:
    voter = waiting(links)
    with violates(voter.invariant):
        voter.be(Role.CANDIDATE, 2)


@pytest.mark.parametrize("links", [[], [(1, 2), (2, 1)], [(2, 3), (3, 2)]])
def test_one_that_reaches_one_of_two_is_fine(links: list[tuple[int, int]]) -> None:
    waiting(links).be(Role.CANDIDATE, 2)


def test_what_was_asked_before_the_cut_may_be_answered_until_it_is_given_up() -> None:
    voter = Voter(ALONE)
    voter.be(Role.PROSPECTIVE, 1)
    voter.be(Role.PROSPECTIVE, 1, after_ms=PATIENCE_MS - 1)
    voter.be(Role.CANDIDATE, 2)


def test_a_paused_process_finds_the_answers_however_late_it_is() -> None:
    voter = Voter(ALONE)
    voter.be(Role.PROSPECTIVE, 1)
    voter.be(Role.CANDIDATE, 2, after_ms=10 * PATIENCE_MS)


def test_one_that_was_reached_in_between_may_have_new_answers() -> None:
    voter = waiting(ALONE)
    voter.cluster.now_us += 1
    voter.cut(ALONE)
    voter.be(Role.CANDIDATE, 2)


def test_a_cut_that_was_mended_counts_no_more() -> None:
    voter = waiting(ALONE)
    voter.cut([])
    voter.be(Role.PROSPECTIVE, 1)
    voter.be(Role.CANDIDATE, 2)


def test_asking_and_entering_the_epochs_of_others_is_fine() -> None:
    voter = waiting([(1, 2), (1, 3)])
    voter.be(Role.UNATTACHED, 7)
    voter.be(Role.PROSPECTIVE, 7)
    with violates(voter.invariant):
        voter.be(Role.CANDIDATE, 8)


def test_a_restart_in_the_epoch_of_the_candidacy_opens_none() -> None:
    voter = waiting(ALONE)
    voter.cluster.nodes[1].durable_election = election_state(1, voted_key=key(1))
    voter.invariant.after_step(voter.cluster.kill(1))
    voter.invariant.after_step(voter.restart(Role.CANDIDATE, 1))
    voter.be(Role.CANDIDATE, 1, after_ms=PATIENCE_MS)
    voter.be(Role.PROSPECTIVE, 1)
    with violates(voter.invariant):
        voter.be(Role.CANDIDATE, 2)


def test_an_epoch_that_reached_the_disk_as_the_process_was_killed_is_not_new_later() -> None:
    voter = waiting(ALONE)
    voter.cluster.nodes[1].durable_election = election_state(2, voted_key=key(1))
    voter.invariant.after_step(voter.cluster.kill(1))
    voter.invariant.after_step(voter.restart(Role.CANDIDATE, 2))
    voter.be(Role.CANDIDATE, 2, after_ms=PATIENCE_MS)
    voter.be(Role.CANDIDATE, 2)
