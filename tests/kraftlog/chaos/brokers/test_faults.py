"""Whom the faults of brokers meet. The cluster is a pretence: what the faults do is the arena's, and tested there."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.chaos.brokers import faults
from kraftlog.chaos.brokers.cluster import ClusterWithBrokers
from kraftlog.chaos.brokers.evidence_faults import ClogBroker, KillAndStart, RestartAtOnce, ShutDownAndStart
from kraftlog.chaos.brokers.faults import OTHER_KINDS, PROCESS_KINDS
from statemachine.query.descriptions import PartitionDescription

VOTERS = [NodeId(1), NodeId(2), NodeId(3)]
BROKERS = [NodeId(101), NodeId(102), NodeId(103)]


class PretendedCluster(ClusterWithBrokers):
    """Broker 102 leads everything that is led."""

    def __init__(self, leaders: Sequence[int]) -> None:
        self.broker_ids = BROKERS
        self._leaders = leaders

    @property
    def voter_ids(self) -> list[NodeId]:
        return VOTERS

    @property
    def node_ids(self) -> list[NodeId]:
        return VOTERS + BROKERS

    async def partitions(self) -> dict[str, tuple[PartitionDescription, ...]]:
        if not self._leaders:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "nobody answers")
        return {
            "three": tuple(
                PartitionDescription(number, leader, 0, 0, (101, 102, 103), ())
                for number, leader in enumerate(self._leaders)
            )
        }


def arena(*leaders: int) -> Any:
    return SimpleNamespace(cluster=PretendedCluster(leaders))


async def test_a_leading_broker_is_one_that_leads() -> None:
    for seed in range(20):
        assert await faults.KillLeadingBroker(Random(seed)).choose(arena(-1, 102)) == [102]
        assert await faults.ShutDownBroker(Random(seed)).choose(arena(102, -1)) == 102


@pytest.mark.parametrize("leaders", [(), (-1, -1)])
async def test_if_none_is_found_it_is_any(leaders: tuple[int, ...]) -> None:
    found = {(await faults.KillLeadingBroker(Random(seed)).choose(arena(*leaders)))[0] for seed in range(40)}
    assert found == set(BROKERS)


async def test_only_brokers_are_killed_by_their_faults() -> None:
    assert len(await faults.KillAllButOne(Random(1)).choose(arena())) == 2
    assert await faults.KillAllBrokers(Random(1)).choose(arena()) == BROKERS
    assert (await faults.KillBroker(Random(1)).choose(arena()))[0] in BROKERS
    assert faults.BrokerStorm(Random(1)).candidates(arena()) == BROKERS


async def test_a_broker_is_cut_off_from_all_or_from_the_controllers_only() -> None:
    links = set(await faults.IsolateBroker(Random(1)).choose(arena(103)))
    assert links == {(103, other) for other in VOTERS + BROKERS[:2]} | {(other, 103) for other in VOTERS + BROKERS[:2]}
    links = set(await faults.CutFromControllers(Random(1)).choose(arena(103)))
    assert links == {(103, voter) for voter in VOTERS} | {(voter, 103) for voter in VOTERS}


async def test_a_link_between_brokers_is_cut_one_way_or_both() -> None:
    counts = {len(list(await faults.CutFollowers(Random(seed)).choose(arena()))) for seed in range(20)}
    assert counts == {1, 2}


async def test_a_node_that_does_not_lead_is_cut_off_from_the_others_and_not_from_brokers() -> None:
    pretended = arena()

    async def leader() -> NodeId:
        return NodeId(2)

    pretended.leader = leader
    found = {frozenset(await faults.CutOffNode(Random(seed)).choose(pretended)) for seed in range(20)}
    assert found == {
        frozenset({(1, 2), (2, 1), (1, 3), (3, 1)}),
        frozenset({(3, 2), (2, 3), (1, 3), (3, 1)}),
    }


def test_the_disk_of_a_broker_or_of_a_node_is_filled() -> None:
    pretended = arena()
    pretended.disks = {NodeId(3): None, NodeId(103): None}
    assert faults.FillNodeDisk(Random(1)).candidates(pretended) == [3]
    assert faults.FillBrokerDisk(Random(1)).candidates(pretended) == [103]


class RecordedArena:
    """What faults ask of an arena, in order."""

    def __init__(self) -> None:
        self.cluster = PretendedCluster((102,))
        self.asked: list[str] = []

    async def kill(self, node_id: NodeId) -> None:
        self.asked.append(f"kill {node_id}")

    async def terminate(self, node_id: NodeId) -> None:
        self.asked.append(f"terminate {node_id}")

    async def start(self, node_id: NodeId) -> None:
        self.asked.append(f"start {node_id}")


@pytest.mark.parametrize(("kind", "end"), [(KillAndStart, "kill"), (ShutDownAndStart, "terminate")])
async def test_a_broker_that_leads_is_ended_and_started_at_once(kind: type[RestartAtOnce], end: str) -> None:
    pretended: Any = RecordedArena()
    await kind(Random(1)).start(pretended)
    assert pretended.asked == [f"{end} 102", "start 102"]


def test_the_links_of_a_broker_are_clogged_not_those_of_a_node() -> None:
    assert {ClogBroker(Random(seed)).choose(arena()) for seed in range(20)} == set(BROKERS)


def test_every_fault_has_a_name_of_its_own() -> None:
    names = [kind.fault.name for kind in (*PROCESS_KINDS, *OTHER_KINDS)]
    assert len(set(names)) == len(names)
