"""The errors of any operation: from a node that does not lead, and from one that stops leading (CT-12 to CT-19)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftlog.admin.client.channels import open_channel
from kraftpb.v1 import admin_pb2_grpc
from kraftpb.v1.admin_pb2 import Operation, OperationBatch, OperationResult
from raft.core.config import QuorumConfig
from raft.rpc.codec import endpoint_to_proto
from statemachine.words.limits import NOTHING_WRITTEN, OPERATION_TIMEOUT_MS_MAX, RECORDS_PER_BATCH_MAX
from tests.kraftlog.admin.admin_nodes import AdminCluster, admin_cluster
from tests.kraftlog.controller.errors.cases import Case, provokes, refused
from tests.kraftlog.controller.errors.world import World, refusals, running_world
from tests.statemachine.builders import creatable, create, register
from tests.statemachine.waiting import until

PATIENT = QuorumConfig(
    election_timeout_ms=150, fetch_timeout_ms=600_000, fetch_max_wait_ms=200, request_timeout_ms=1_000
)
"""A leader that hears from no follower continues to lead."""

KINDS = [field.name for field in Operation.DESCRIPTOR.oneofs_by_name["operation"].fields]


async def asked(cluster: AdminCluster, node_id: int, operation: Operation) -> OperationResult:
    """The answer of that node."""
    async with open_channel(cluster.endpoints[node_id]) as channel:
        (result,) = await asked_together(admin_pb2_grpc.AdminServiceStub(channel), operation)
        return result


async def asked_together(stub: admin_pb2_grpc.AdminServiceAsyncStub, *operations: Operation) -> list[OperationResult]:
    """The answers to what comes in one message, as they come."""
    call = stub.Execute()
    await call.write(OperationBatch(operations=operations))
    await call.done_writing()
    return [result async for message in call for result in message.results]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def observed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AdminCluster]:
    """Node 1 leads, node 2 observes and knows that."""
    async with admin_cluster(tmp_path_factory.mktemp("observed"), observer_count=1) as cluster:
        await until(lambda: cluster.nodes[2].machine.applied_end_offset > 0)
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Broker 1, alive."""
    async with running_world(tmp_path_factory.mktemp("engine")) as world:
        await world.with_brokers(1)
        yield world


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind", KINDS)
@provokes("CT-13: not active", ErrorCode.NOT_CONTROLLER)
async def test_ct13_who_does_not_lead_refuses_every_operation_and_says_who_leads(
    observed: AdminCluster, kind: str
) -> None:
    operation = Operation(correlation_id=5)
    getattr(operation, kind).SetInParent()
    before = observed.nodes[1].machine.applied_end_offset
    result = await asked(observed, 2, operation)
    assert ErrorCode(result.error_code) is ErrorCode.NOT_CONTROLLER
    assert (result.correlation_id, result.end_offset) == (5, NOTHING_WRITTEN)
    assert "not the active controller" in result.error_message
    assert result.current_leader.leader_id == 1
    assert result.current_leader.leader_endpoint == endpoint_to_proto(observed.endpoints[1])
    assert observed.nodes[1].machine.applied_end_offset == before


MANY = RECORDS_PER_BATCH_MAX + 1


def in_parts(kind: str, parts: str, count: int = MANY) -> Callable[[World], Operation]:
    """An operation of broker 1, if it is a broker's, on this many things."""

    def make(world: World) -> Operation:
        operation = Operation()
        request = getattr(operation, kind)
        if "broker_epoch" in request.DESCRIPTOR.fields_by_name:
            request.broker_id, request.broker_epoch = 1, world.epochs[1]
        container = request
        *path, name = parts.split(".")
        for step in path:
            container = getattr(container, step)
        for _ in range(count):
            getattr(container, name).add()
        return operation

    return make


TOO_LARGE = [
    Case("CT-12: too many records", ErrorCode.RECORD_LIST_TOO_LARGE, make, str(count), str(RECORDS_PER_BATCH_MAX))
    for make, count in (
        (in_parts("create_topics", "topics", 5_001), 10_002),  # a topic has a partition
        *[
            (in_parts(kind, parts), MANY)
            for kind, parts in (
                ("delete_topics", "topics"),
                ("create_partitions", "topics"),
                ("alter_partition", "partitions"),
                ("elect_leaders", "partitions.partitions"),
                ("alter_partition_reassignments", "partitions"),
                ("assign_replicas_to_dirs", "assignments"),
                ("alter_configs", "alterations"),
                ("update_features", "updates"),
                ("alter_client_quotas", "alterations"),
                ("create_acls", "entries"),
            )
        ],
    )
]


@pytest.mark.asyncio(loop_scope="module")
@refused(TOO_LARGE)
async def test_ct12_what_may_come_to_more_records_than_one_batch_holds_is_refused(world: World, case: Case) -> None:
    await world.refuses(case)


def with_timeout(timeout_ms: int) -> Operation:
    return Operation(timeout_ms=timeout_ms, register_broker=register(1).register_broker)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("timeout_ms", [-1, OPERATION_TIMEOUT_MS_MAX + 1])
@provokes("any operation: timeout", ErrorCode.INVALID_REQUEST)
async def test_a_time_that_nobody_waits_is_refused(observed: AdminCluster, timeout_ms: int) -> None:
    before = observed.nodes[1].machine.applied_end_offset
    result = await asked(observed, 1, with_timeout(timeout_ms))
    assert ErrorCode(result.error_code) is ErrorCode.INVALID_REQUEST
    assert str(timeout_ms) in result.error_message
    assert result.end_offset == NOTHING_WRITTEN
    assert observed.nodes[1].machine.applied_end_offset == before


@pytest.mark.asyncio(loop_scope="module")
@refused([Case("any operation: says nothing", ErrorCode.INVALID_REQUEST, Operation(), "no kind")])
async def test_an_operation_that_says_nothing_is_refused(world: World, case: Case) -> None:
    await world.refuses(case)


async def without_a_majority(cluster: AdminCluster) -> int:
    """Stop the one of two voters that follows; the id of the one that leads."""
    leader = await cluster.leader()
    await cluster.stop(3 - leader)
    return leader


@provokes("CT-15: leadership lost while it waits", ErrorCode.NOT_CONTROLLER)
async def test_ct15_who_waits_when_leadership_is_lost_is_told_that_it_may_yet_be_done(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path, voter_count=2) as cluster:
        result = await asked(cluster, await without_a_majority(cluster), register(1))
        assert ErrorCode(result.error_code) is ErrorCode.NOT_CONTROLLER
        assert "leadership was lost" in result.error_message
        assert "may or may not be carried out" in result.error_message
        assert result.end_offset != NOTHING_WRITTEN


@provokes("CT-19: time is up", ErrorCode.REQUEST_TIMED_OUT)
async def test_ct19_who_is_not_done_in_time_is_told_that_it_may_yet_be_done(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path, voter_count=2, quorum_config=PATIENT) as cluster:
        result = await asked(cluster, await without_a_majority(cluster), with_timeout(100))
        assert ErrorCode(result.error_code) is ErrorCode.REQUEST_TIMED_OUT
        assert "not done in time" in result.error_message
        assert "may or may not be carried out" in result.error_message
        assert result.end_offset != NOTHING_WRITTEN


@pytest.mark.asyncio(loop_scope="module")
@provokes("CT-19: time was up before", ErrorCode.REQUEST_TIMED_OUT)
async def test_ct19_what_has_waited_too_long_for_its_turn_is_not_carried_out(world: World) -> None:
    """It came in one message with an operation that takes the controller longer than this one would wait."""
    long_work, late = create(creatable("a", RECORDS_PER_BATCH_MAX - 1)), register(7)
    long_work.correlation_id, late.correlation_id, late.timeout_ms = 1, 2, 1
    answers = {result.correlation_id: result for result in await asked_together(world.stub, long_work, late)}
    assert refusals(answers[1]) == []
    assert ErrorCode(answers[2].error_code) is ErrorCode.REQUEST_TIMED_OUT
    assert "before its turn; nothing was written" in answers[2].error_message
    assert answers[2].end_offset == NOTHING_WRITTEN
    await world.learn()
    assert 7 not in world.epochs
