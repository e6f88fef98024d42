"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.admin.client.client import NewTopic
from kraftlog.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from kraftlog.kafka.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from kraftlog.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.kraftlog.broker.administration.world import ME, OTHER, AdministrationWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFERRED, UNCLEAN = range(2)

Codes = dict[tuple[str, int], int]


async def with_topic(world: AdministrationWorld, name: str, *replicas: int) -> None:
    await world.client.create_topics([NewTopic(name, assignments={0: replicas})])
    await world.settle()


async def elected(
    world: AdministrationWorld, *partitions: tuple[str, int], version: int = 2, kind: int = PREFERRED,
    timeout_ms: int = 30_000, wants_all: bool = False,
) -> tuple[int, Codes]:  # fmt: skip
    given = tuple(TopicPartitions(topic=topic, partitions=(index,)) for topic, index in partitions)
    body = ElectLeadersRequest(
        election_type=kind, topic_partitions=None if wants_all else given, timeout_ms=timeout_ms
    )  # fmt: skip
    response = await world.answer(body, version, ElectLeadersResponse)
    await world.settle()
    return response.error_code, {
        (topic.topic, part.partition_id): part.error_code
        for topic in response.replica_election_results
        for part in topic.partition_result
    }


async def reassigned(
    world: AdministrationWorld, *partitions: tuple[str, int, tuple[int, ...] | None], version: int = 1,
    keeps_count: bool = False, timeout_ms: int = 30_000,
) -> tuple[int, Codes]:  # fmt: skip
    body = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, allow_replication_factor_change=not keeps_count,
        topics=tuple(
            ReassignableTopic(
                name=topic, partitions=(ReassignablePartition(partition_index=index, replicas=replicas),)
            )
            for topic, index, replicas in partitions
        ),
    )  # fmt: skip
    response = await world.answer(body, version, AlterPartitionReassignmentsResponse)
    await world.settle()
    assert response.allow_replication_factor_change is not keeps_count
    return response.error_code, {
        (topic.name, part.partition_index): part.error_code for topic in response.responses for part in topic.partitions
    }


async def listed(world: AdministrationWorld, *topics: tuple[str, tuple[int, ...]]) -> dict[tuple[str, int], object]:
    """Replicas, added ones and removed ones by partition; of all partitions if none is named."""
    given = tuple(ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in topics)
    body = ListPartitionReassignmentsRequest(topics=given or None)
    response = await world.answer(body, 0, ListPartitionReassignmentsResponse)
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.name, part.partition_index): (part.replicas, part.adding_replicas, part.removing_replicas)
        for topic in response.topics
        for part in topic.partitions
    }


def leader_of(world: AdministrationWorld, name: str) -> int:
    view = world.broker.cluster.topic_named(name)
    assert view is not None
    return view.partitions[0].leader


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("wants_all", [False, True])
async def test_the_preferred_leader_is_elected(world: AdministrationWorld, version: int, wants_all: bool) -> None:
    name = f"elected-{version}-{wants_all}"
    await with_topic(world, name, OTHER, ME)
    await reassigned(world, (name, 0, (ME, OTHER)))
    assert leader_of(world, name) == OTHER
    code, codes = await elected(world, (name, 0), version=version, wants_all=wants_all)
    assert (code, codes) == (ErrorCode.NONE, {(name, 0): ErrorCode.NONE})
    assert leader_of(world, name) == ME
    code, codes = await elected(world, (name, 0), version=version, wants_all=wants_all)
    assert codes == ({} if wants_all else {(name, 0): ErrorCode.ELECTION_NOT_NEEDED})


async def test_each_partition_without_an_election_has_its_own_error(world: AdministrationWorld) -> None:
    await with_topic(world, "leads", ME)
    code, codes = await elected(
        world, ("leads", 0), ("leads", 1), ("missing", 0), ("twice", 0), ("twice", 0), kind=UNCLEAN
    )  # fmt: skip
    assert code == ErrorCode.NONE
    assert codes == {
        ("leads", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("leads", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("twice", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await elected(world, ("leads", 0), kind=9) == (
        ErrorCode.INVALID_REQUEST,
        {("leads", 0): ErrorCode.INVALID_REQUEST},
    )


@pytest.mark.parametrize("version", range(3))
async def test_an_election_without_time_is_told_in_each_version(world: AdministrationWorld, version: int) -> None:
    code, codes = await elected(world, ("late", 0), version=version, timeout_ms=0)
    assert code == (ErrorCode.REQUEST_TIMED_OUT if version else ErrorCode.NONE), "version 0 lacks the field"
    assert codes == {("late", 0): ErrorCode.REQUEST_TIMED_OUT}


@pytest.mark.parametrize("version", range(2))
async def test_a_reassignment_is_begun_listed_and_cancelled(world: AdministrationWorld, version: int) -> None:
    name = f"moves-{version}"
    await with_topic(world, name, ME)
    assert await listed(world, (name, (0,))) == {}
    assert await reassigned(world, (name, 0, (OTHER,)), version=version) == (0, {(name, 0): ErrorCode.NONE})
    expected = {(name, 0): ((OTHER, ME), (OTHER,), (ME,))}
    assert await listed(world, (name, (0, 1)), ("missing", (0,))) == expected
    assert await listed(world) == expected
    for code in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
        assert await reassigned(world, (name, 0, None), version=version) == (0, {(name, 0): code})
        assert await listed(world) == {}


async def test_each_partition_that_cannot_be_reassigned_has_its_own_error(world: AdministrationWorld) -> None:
    await with_topic(world, "stays", ME)
    code, codes = await reassigned(
        world, ("stays", 0, (7,)), ("stays", 1, (ME,)), ("missing", 0, None), ("twice", 0, None), ("twice", 0, (ME,))
    )  # fmt: skip
    assert code == ErrorCode.NONE
    assert codes == {
        ("stays", 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ("stays", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("twice", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await reassigned(world, ("stays", 0, ())) == (0, {("stays", 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT})
    assert await reassigned(world, ("stays", 0, (OTHER,)), timeout_ms=0) == (
        ErrorCode.REQUEST_TIMED_OUT,
        {("stays", 0): ErrorCode.REQUEST_TIMED_OUT},
    )
    assert await listed(world) == {}


async def test_a_request_may_forbid_another_number_of_replicas(world: AdministrationWorld) -> None:
    await with_topic(world, "counted", ME)
    assert await reassigned(world, ("counted", 0, (ME, OTHER)), keeps_count=True) == (
        0,
        {("counted", 0): ErrorCode.INVALID_REPLICATION_FACTOR},
    )
    both = await reassigned(world, ("counted", 0, (OTHER,)), ("missing", 0, (ME, OTHER)), keeps_count=True)
    assert both == (0, {("counted", 0): 0, ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert list(await listed(world)) == [("counted", 0)]
    await reassigned(world, ("counted", 0, None))
