"""When service is owed."""

from __future__ import annotations

from itertools import permutations

import pytest

from kraftbase.types import NodeId
from kraftlog.chaos.truth import Truth

ONE, TWO, THREE, OBSERVER = map(NodeId, (1, 2, 3, 4))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def truth(clock: Clock) -> Truth:
    truth = Truth(frozenset({ONE, TWO, THREE}), clock)
    truth.running = {ONE, TWO, THREE, OBSERVER}
    return truth


def test_all_is_well(truth: Truth) -> None:
    assert truth.owes_service


def test_one_of_three_may_be_missing_two_may_not(truth: Truth) -> None:
    truth.running.discard(ONE)
    assert truth.owes_service
    truth.paused.add(TWO)
    assert not truth.owes_service


def test_a_full_disk_counts_as_missing_and_an_observer_does_not_count(truth: Truth) -> None:
    truth.running.discard(OBSERVER)
    truth.full.add(ONE)
    assert truth.owes_service
    truth.running.discard(TWO)
    truth.running.add(OBSERVER)
    assert not truth.owes_service


@pytest.mark.parametrize("cut", list(permutations((ONE, TWO, THREE), 2)))
def test_one_link_less_leaves_a_majority(truth: Truth, cut: tuple[NodeId, NodeId]) -> None:
    truth.cuts = {cut}
    assert truth.owes_service


def test_a_majority_must_be_connected_both_ways_each_with_each(truth: Truth) -> None:
    truth.cuts = {(ONE, TWO), (TWO, THREE)}
    assert truth.owes_service  # 1 and 3
    truth.cuts.add((THREE, ONE))
    assert not truth.owes_service


def test_five_voters_need_three_that_are_all_connected(clock: Clock) -> None:
    voters = [NodeId(number) for number in range(1, 6)]
    truth = Truth(frozenset(voters), clock, running=set(voters))
    truth.cuts = {(source, target) for source in voters[:3] for target in voters[3:]}
    assert truth.owes_service
    truth.cuts.add((voters[0], voters[1]))
    assert not truth.owes_service


def test_intervals_are_from_change_to_change(truth: Truth, clock: Clock) -> None:
    truth.changed()
    clock.now = 105
    truth.changed()
    clock.now = 110
    truth.running -= {ONE, TWO}
    truth.changed()
    clock.now = 111
    truth.running.add(ONE)
    truth.changed()
    clock.now = 120
    assert truth.finish() == [(100, 110), (111, 120)]
