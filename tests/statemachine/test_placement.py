"""Where the replicas of a new topic go."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.core.errors import ErrorCode, ProtocolError
from statemachine.placement import place_replicas


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
    placed = place_replicas(brokers, reserve, partitions, factor, Random(seed))
    assert len(placed) == partitions
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(broker, 0) for broker in brokers) <= 1
    for replicas in placed:
        assert len(set(replicas)) == factor
        used = [broker for broker in replicas if broker in brokers]
        assert len(used) == min(factor, active)
        assert replicas[: len(used)] == used  # fenced brokers come last (CT-32)


def test_the_load_of_a_failed_leader_falls_on_all_others() -> None:
    placed = place_replicas([1, 2, 3, 4], [], 12, 2, Random(3))
    followers = {leader: {replicas[1] for replicas in placed if replicas[0] == leader} for leader in (1, 2, 3, 4)}
    assert all(followers[leader] == {1, 2, 3, 4} - {leader} for leader in followers)


def test_the_same_random_numbers_give_the_same_placement() -> None:
    assert place_replicas([1, 2, 3], [], 5, 2, Random(7)) == place_replicas([1, 2, 3], [], 5, 2, Random(7))
    starts = {place_replicas([1, 2, 3], [], 1, 1, Random(seed))[0][0] for seed in range(50)}
    assert starts == {1, 2, 3}


def test_ct32_more_replicas_than_brokers_is_an_invalid_replication_factor() -> None:
    with pytest.raises(ProtocolError, match="2 are registered") as refusal:
        place_replicas([1], [2], 1, 3, Random(1))
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_ct32_only_fenced_brokers_is_an_invalid_replication_factor() -> None:
    with pytest.raises(ProtocolError, match="fenced") as refusal:
        place_replicas([], [1, 2], 1, 1, Random(1))
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
