"""What ElectLeaders refuses (CT-24, CT-51)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftpb.v1.admin_pb2 import ElectLeadersRequest, Operation, PartitionReference
from tests.kraftlog.controller.errors.cases import Case, refused
from tests.kraftlog.controller.errors.world import World, parts, refusals, running_world
from tests.statemachine.builders import assigned, create

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFERRED, UNCLEAN = ElectLeadersRequest.PREFERRED, ElectLeadersRequest.UNCLEAN


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Broker 3 is fenced. "lagging" prefers 1, which is not in sync; "lost" has a replica on 3 only."""
    async with running_world(tmp_path_factory.mktemp("elections")) as world:
        await world.with_brokers(1, 2, 3)
        await world.done(create(*[assigned(name, {0: on}) for name, on in (("lagging", [1, 2]), ("lost", [3]))]))
        await world.fence(1)
        await world.unfence(1)
        await world.fence(3)
        await world.done(create(assigned("fine", {0: [2]})))
        await world.settle()
        yield world


def electing(topic: str, partition_id: int = 0, *, kind: Any = PREFERRED, repeated: int = 1) -> Operation:
    request = ElectLeadersRequest(election_type=kind)
    request.partitions.partitions.extend([PartitionReference(topic=topic, partition_id=partition_id)] * repeated)
    return Operation(elect_leaders=request)


E = ErrorCode


@refused(
    [
        Case("ElectLeaders: needed", E.ELECTION_NOT_NEEDED, electing("fine"), "0 of topic 'fine'", "broker 2"),
        Case(
            "ElectLeaders: needed",
            E.ELECTION_NOT_NEEDED,
            electing("fine", kind=UNCLEAN),
            "partition 0 of topic 'fine'",
            "broker 2",
        ),
        Case(
            "ElectLeaders: preferred leader",
            E.PREFERRED_LEADER_NOT_AVAILABLE,
            electing("lagging"),
            "partition 0 of topic 'lagging'",
            "broker 1",
        ),
        Case(
            "ElectLeaders: preferred leader",
            E.PREFERRED_LEADER_NOT_AVAILABLE,
            electing("lost"),
            "partition 0 of topic 'lost'",
            "broker 3",
        ),
        Case(
            "ElectLeaders: any replica",
            E.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            electing("lost", kind=UNCLEAN),
            "partition 0 of topic 'lost'",
            "[3]",
        ),
        Case("ElectLeaders: unknown topic", E.UNKNOWN_TOPIC_OR_PARTITION, electing("none"), "no topic 'none'"),
        Case("ElectLeaders: unknown partition", E.UNKNOWN_TOPIC_OR_PARTITION, electing("fine", 9), "'fine'", "9"),
        Case("ElectLeaders: repeated", E.INVALID_REQUEST, electing("fine", repeated=2), "'fine'", "more than once"),
        Case("ElectLeaders: kind", E.INVALID_REQUEST, electing("fine", kind=7), "7 is not a type"),
    ]
)
async def test_an_election_that_cannot_be_is_refused(world: World, case: Case) -> None:
    await world.refuses(case)


@pytest.mark.parametrize(
    ("kind", "error", "topics"),
    [
        (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, {"lagging", "lost"}),
        (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, {"lost"}),
    ],
)
async def test_of_all_partitions_those_that_need_no_election_are_not_named(
    world: World, kind: Any, error: ErrorCode, topics: set[str]
) -> None:
    before = world.log.next_append_offset
    result = await world.run(Operation(elect_leaders=ElectLeadersRequest(election_type=kind)))
    assert {found for found, _ in refusals(result)} == {error}
    assert {part.topic for part in parts(result)} == topics
    assert await world.written_since(before) == []
