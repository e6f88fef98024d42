"""Where the replicas of new partitions go when brokers are in racks (CT-32)."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from random import Random
from types import FrameType

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog.controller.rules.placement import PlacementBroker, ReplicaPlacer, placement_brokers
from tests.effort import examples
from tests.statemachine.builders import an_id, broker
from tests.statemachine.states import metadata

Brokers = dict[int, PlacementBroker]


def in_racks(*sizes: int) -> Brokers:
    """Active brokers in racks of these sizes."""
    racks = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    return {broker_id: PlacementBroker(True, rack=f"rack-{rack}") for broker_id, rack in enumerate(racks)}


def racks_of(brokers: Brokers, replicas: list[int]) -> set[str | None]:
    return {brokers[broker_id].rack for broker_id in replicas}


@st.composite
def any_brokers(draw: st.DrawFn) -> Brokers:
    """Up to a dozen brokers, at least one of which is active; some may have no rack."""
    racks = st.sampled_from([None, "a", "b", "c", "d"])
    drawn = draw(st.lists(st.builds(PlacementBroker, st.booleans(), rack=racks), max_size=11))
    return dict(enumerate([*drawn, PlacementBroker(True, rack=draw(racks))]))


@settings(max_examples=examples(100), deadline=None)
@given(brokers=any_brokers(), partitions=st.integers(1, 80), seed=st.integers(0, 1_000), data=st.data())
def test_whatever_the_racks_replicas_differ_fenced_come_last_and_leaders_are_even(
    brokers: Brokers, partitions: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    active = {broker_id for broker_id, found in brokers.items() if found.is_active}
    placed = ReplicaPlacer(brokers, Random(seed)).place(partitions, factor)
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        used = min(factor, len(active))
        assert set(replicas[:used]) <= active and not set(replicas[used:]) & active
        most_racks = len(racks_of(brokers, list(active)))
        assert len(racks_of(brokers, replicas[:used])) == min(used, most_racks)
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders) <= active
    assert max(leaders.values()) - min(leaders.get(broker_id, 0) for broker_id in active) <= 1


@settings(max_examples=examples(100), deadline=None)
@given(racks=st.integers(1, 5), size=st.integers(1, 4), rounds=st.integers(1, 6), seed=st.integers(0, 1_000))
def test_over_equal_racks_every_broker_gets_as_many_replicas(racks: int, size: int, rounds: int, seed: int) -> None:
    brokers = in_racks(*[size] * racks)
    for factor in range(1, len(brokers) + 1):
        placed = ReplicaPlacer(brokers, Random(seed)).place(rounds * len(brokers), factor)
        assert set(Counter(replicas[0] for replicas in placed).values()) == {rounds}
        assert set(Counter(broker_id for replicas in placed for broker_id in replicas).values()) == {rounds * factor}
        for replicas in placed:
            in_rack = Counter(brokers[broker_id].rack for broker_id in replicas)
            assert len(in_rack) == min(racks, factor)
            assert max(in_rack.values()) - min(in_rack.get(f"rack-{rack}", 0) for rack in range(racks)) <= 1


def test_leaders_go_from_rack_to_rack() -> None:
    brokers = in_racks(3, 3, 3)
    leading = [brokers[replicas[0]].rack for replicas in ReplicaPlacer(brokers, Random(1)).place(9, 2)]
    for first in range(7):
        assert len(set(leading[first : first + 3])) == 3


def test_the_load_of_a_failed_leader_falls_on_all_brokers_of_the_other_racks() -> None:
    brokers = in_racks(2, 2, 2)
    followers = defaultdict(set)
    for leader, follower in ReplicaPlacer(brokers, Random(1)).place(4 * len(brokers), 2):
        followers[leader].add(follower)
    for leader, found in followers.items():
        assert found == {broker_id for broker_id in brokers if brokers[broker_id].rack != brokers[leader].rack}


def test_brokers_without_a_rack_share_one() -> None:
    brokers = {
        **{broker_id: PlacementBroker(True) for broker_id in (1, 2)},
        **{broker_id: PlacementBroker(True, rack="a") for broker_id in (3, 4)},
    }
    for replicas in ReplicaPlacer(brokers, Random(1)).place(40, 2):
        assert len(set(replicas) & {1, 2}) == len(set(replicas) & {3, 4}) == 1


def test_a_fenced_broker_is_not_even_taken_for_the_sake_of_its_rack() -> None:
    brokers = in_racks(2, 2, 1) | {4: PlacementBroker(False, rack="rack-2")}
    for replicas in ReplicaPlacer(brokers, Random(1)).place(40, 3):
        assert 4 not in replicas


def test_fenced_brokers_are_taken_from_the_racks_that_have_the_fewest() -> None:
    brokers = {
        1: PlacementBroker(True, rack="a"),
        2: PlacementBroker(False, rack="a"),
        3: PlacementBroker(False, rack="b"),
        4: PlacementBroker(False, rack="b"),
        5: PlacementBroker(False, rack="c"),
    }
    placed = ReplicaPlacer(brokers, Random(1)).place(40, 3)
    for replicas in placed:
        assert replicas[0] == 1
        assert racks_of(brokers, replicas) == {"a", "b", "c"}
    assert {replicas[1] for replicas in placed} == {3, 4, 5}


def test_a_brokers_rack_is_in_its_registration() -> None:
    shutting_down = broker(4, rack="east")
    shutting_down.register_broker.in_controlled_shutdown = True
    several = broker(5)
    several.register_broker.log_dirs.append(an_id(999))
    state = metadata(broker(1, rack="east"), broker(2), broker(3, fenced=True, rack="west"), shutting_down, several)
    assert placement_brokers(state) == {
        1: PlacementBroker(True, an_id(901), "east"),
        2: PlacementBroker(True, an_id(902), None),
        3: PlacementBroker(False, an_id(903), "west"),
        4: PlacementBroker(False, an_id(904), "east"),
        5: PlacementBroker(True, None, None),
    }


def test_ten_thousand_partitions_are_placed_at_once() -> None:
    """A controller does nothing else meanwhile: few calls for each, of which a million take a tenth of a second."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    placer = ReplicaPlacer(in_racks(2, 2, 2), Random(1))
    sys.setprofile(count)
    try:
        placed = placer.place(10_000, 3)
    finally:
        sys.setprofile(None)
    assert len(placed) == 10_000
    assert calls / 10_000 < 20
