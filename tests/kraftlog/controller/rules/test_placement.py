"""Where the replicas of new partitions go when there are no racks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.rules.placement import PlacementBroker, ReplicaPlacer


def placer(active: Iterable[int], fenced: Iterable[int] = (), seed: int = 1) -> ReplicaPlacer:
    """Over brokers that have no rack."""
    brokers = {broker_id: PlacementBroker(is_active=True) for broker_id in active}
    brokers |= {broker_id: PlacementBroker(is_active=False) for broker_id in fenced}
    return ReplicaPlacer(brokers, Random(seed))


@given(
    active=st.integers(1, 8),
    fenced=st.integers(0, 4),
    partitions=st.integers(1, 60),
    seed=st.integers(0, 1_000),
    data=st.data(),
)
def test_replicas_are_different_brokers_and_evenly_spread(
    active: int, fenced: int, partitions: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, active + fenced))
    brokers, reserve = list(range(active)), list(range(100, 100 + fenced))
    placed = placer(brokers, reserve, seed).place(partitions, factor)
    assert len(placed) == partitions
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(broker, 0) for broker in brokers) <= 1
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        used = [broker for broker in replicas if broker in brokers]
        assert len(used) == min(factor, active)
        assert replicas[: len(used)] == used  # fenced brokers come last (CT-32)


def test_the_load_of_a_failed_leader_falls_on_all_others() -> None:
    placed = placer([1, 2, 3, 4], seed=3).place(12, 2)
    followers = {leader: {replicas[1] for replicas in placed if replicas[0] == leader} for leader in (1, 2, 3, 4)}
    assert all(followers[leader] == {1, 2, 3, 4} - {leader} for leader in followers)


def test_the_same_random_numbers_give_the_same_placement() -> None:
    assert placer([1, 2, 3], seed=7).place(5, 2) == placer([1, 2, 3], seed=7).place(5, 2)
    starts = {placer([1, 2, 3], seed=seed).place(1, 1)[0][0] for seed in range(50)}
    assert starts == {1, 2, 3}


def test_many_small_topics_are_led_as_evenly_as_a_large_one() -> None:
    in_turn = placer([1, 2, 3])
    leaders = Counter(in_turn.place(1, 2)[0][0] for _ in range(9))
    assert leaders == {1: 3, 2: 3, 3: 3}


def test_fenced_brokers_that_are_needed_take_turns() -> None:
    placed = placer([1], [2, 3, 4]).place(12, 2)
    assert Counter(replicas[1] for replicas in placed) == {2: 4, 3: 4, 4: 4}


def test_ct32_more_replicas_than_brokers_is_an_invalid_replication_factor() -> None:
    with pytest.raises(ApiError, match=r"replication factor of 3 .* 2 are registered; lower it") as refusal:
        placer([1], [2]).place(1, 3)
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_ct32_only_fenced_brokers_is_an_invalid_replication_factor() -> None:
    with pytest.raises(ApiError, match="all brokers are fenced or shutting down") as refusal:
        placer([], [1, 2]).place(1, 1)
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_without_brokers_there_is_no_placement() -> None:
    with pytest.raises(ApiError, match="0 are registered") as refusal:
        placer([]).place(1, 1)
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
