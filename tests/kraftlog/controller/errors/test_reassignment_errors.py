"""What AlterPartitionReassignments refuses (CT-25, CT-54)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import Operation, PartitionReassignment
from kraftpb.v1.metadata_pb2 import BrokerIds
from tests.kraftlog.controller.errors.cases import Case, refused
from tests.kraftlog.controller.errors.test_partition_errors import altering
from tests.kraftlog.controller.errors.world import World, running_world
from tests.statemachine.builders import assigned, create

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Broker 1 is fenced. "moving" and "careless" move away from it; of the new replicas 2 is in sync and 3 is not.

    "careless" allows unclean elections.
    """
    async with running_world(tmp_path_factory.mktemp("reassignments")) as world:
        await world.with_brokers(1, 2, 3)
        careless = assigned("careless", {0: [1]})
        careless.configs.add(name="unclean.leader.election.enable", value="true")
        await world.done(create(assigned("still", {0: [2]}), assigned("moving", {0: [1]}), careless))
        for name in ("moving", "careless"):
            await world.done(reassigning(name, 0, [2, 3]))
            await world.learn()
            await world.done(altering(topic=name, isr=[1, 2])(world))
        await world.fence(1)
        await world.settle()
        yield world


def reassigning(topic: str, partition_id: int, replicas: list[int] | None, repeated: int = 1) -> Operation:
    """None: cancel."""
    asked = PartitionReassignment(topic=topic, partition_id=partition_id)
    if replicas is not None:
        asked.replicas.CopyFrom(BrokerIds(ids=replicas))
    request = admin_pb2.AlterPartitionReassignmentsRequest(partitions=[asked] * repeated)
    return Operation(alter_partition_reassignments=request)


STILL = "partition 0 of topic 'still'"
MOVING = "partition 0 of topic 'moving'"
CARELESS = "partition 0 of topic 'careless'"
R = "AlterPartitionReassignments: "
E = ErrorCode


@refused(
    [
        Case(R + "nothing to cancel", E.NO_REASSIGNMENT_IN_PROGRESS, reassigning("still", 0, None), STILL),
        Case(R + "unknown broker", E.INVALID_REPLICA_ASSIGNMENT, reassigning("still", 0, [2, 9]), STILL, "broker 9"),
        Case(R + "broker twice", E.INVALID_REPLICA_ASSIGNMENT, reassigning("still", 0, [3, 3]), STILL, "broker 3"),
        Case(R + "empty", E.INVALID_REPLICA_ASSIGNMENT, reassigning("still", 0, []), STILL, "no replicas"),
        Case(R + "unknown topic", E.UNKNOWN_TOPIC_OR_PARTITION, reassigning("none", 0, [2]), "no topic 'none'"),
        Case(R + "unknown topic", E.UNKNOWN_TOPIC_OR_PARTITION, reassigning("none", 0, None), "no topic 'none'"),
        Case(R + "unknown partition", E.UNKNOWN_TOPIC_OR_PARTITION, reassigning("still", 9, [2]), "'still'", "9"),
        Case(R + "repeated", E.INVALID_REQUEST, reassigning("still", 0, [3], 2), STILL, "more than once"),
        Case("CT-54: nobody in sync", E.INVALID_REPLICA_ASSIGNMENT, reassigning("moving", 0, None), MOVING, "[1]"),
        Case(
            "CT-54: nobody in sync",
            E.INVALID_REPLICA_ASSIGNMENT,
            reassigning("careless", 0, None),
            CARELESS,
            "[1]",
            "active",
        ),
    ]
)
async def test_a_reassignment_that_cannot_be_is_refused(world: World, case: Case) -> None:
    await world.refuses(case)
