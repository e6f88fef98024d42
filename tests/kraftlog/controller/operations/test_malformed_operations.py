"""Operations and reads with anything in them: each is answered, and what is written can be applied."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ErrorCode
from kraftlog.admin.server.service import AdminServicer
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from statemachine.words.limits import NOTHING_WRITTEN
from statemachine.words.resources import ResourceType
from tests.effort import examples
from tests.raft.rpc.arbitrary_messages import Hints, arbitrary, mangled
from tests.statemachine.builders import CLUSTER_ID, an_id, creatable, create
from tests.statemachine.conftest import Bench, errors, memory_bench
from tests.statemachine.waiting import until

HINTS: Hints = {
    "assignments": [],
    "configs": [],
    "timeout_ms": [0, 1_000],
    "name": ["a", "retention.ms", "cleanup.policy", "PLAINTEXT"],
    "num_partitions": [-1, 1, 3],
    "replication_factor": [-1, 1],
    "partition_id": [0, 1],
    "broker_ids": [1, 2],
    "broker_id": [1, 2, 3],
    "cluster_id": [CLUSTER_ID],
    "incarnation_id": [an_id(501), an_id(600)],
    "log_dirs": [an_id(901), an_id(902)],
    "resource_type": [int(ResourceType.TOPIC), int(ResourceType.BROKER)],
    "resource_name": ["a", "1", ""],
    "kind": [0, 1],
    "value": ["1", "delete", "compact"],
    "host": ["localhost"],
    "port": [9092],
    "security_protocol": [0, 1],
    "validate_only": [False],
    "wait_ms": [0],
    "min_applied_end_offset": [0],
}
OPERATIONS = arbitrary(Operation, HINTS)


def _decoded(data: bytes) -> Operation | None:
    try:
        return Operation.FromString(data)
    except DecodeError:
        return None


async def _execute(path: Path, operations: list[Operation]) -> None:
    async with memory_bench(path) as bench:  # it asserts that everything written could be applied
        bench.log.lead()
        await bench.lead()
        await bench.with_brokers(1, 2)
        for number, operation in enumerate(operations):
            operation.correlation_id = number
            await _submit(bench, operation)
        await bench.with_brokers(99)  # the others may have been unregistered by now
        await bench.done(create(creatable("goes-on")))


async def _submit(bench: Bench, operation: Operation) -> None:
    before = bench.log.log_end_offset
    results: list[OperationResult] = []
    bench.controller.submit([operation], results.append)
    await until(lambda: len(results) == 1)
    (result,) = results
    assert result.correlation_id == operation.correlation_id
    found = errors(result)  # each has a number that is known
    assert all(error is not ErrorCode.UNKNOWN_SERVER_ERROR for error in found)
    if result.end_offset == NOTHING_WRITTEN:
        assert bench.log.log_end_offset == before
    else:
        assert bench.log.log_end_offset == result.end_offset > before
        # On a busy machine the time of one that was written may be over before it is committed.
        assert ErrorCode(result.error_code) in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)


def _in_a_new_database(story: Callable[[Path], Awaitable[None]]) -> None:
    async def run(path: Path) -> None:
        await story(path)

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory) / "metadata.db"))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(OPERATIONS, min_size=1, max_size=8))
def test_operations_with_anything_in_them_are_answered_and_write_what_can_be_applied(
    operations: list[Operation],
) -> None:
    _in_a_new_database(lambda path: _execute(path, operations))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(mangled(OPERATIONS.map(lambda operation: operation.SerializeToString())), min_size=1, max_size=12))
def test_operations_of_mangled_bytes_are_answered_and_write_what_can_be_applied(mangled_bytes: list[bytes]) -> None:
    operations = [operation for data in mangled_bytes if (operation := _decoded(data)) is not None]
    _in_a_new_database(lambda path: _execute(path, operations))


READS: dict[type[Message], Callable[[AdminServicer], Callable[[Any, Any], Awaitable[Any]]]] = {
    admin_pb2.ListTopicsRequest: lambda servicer: servicer.ListTopics,
    admin_pb2.DescribeTopicsRequest: lambda servicer: servicer.DescribeTopics,
    admin_pb2.ListBrokersRequest: lambda servicer: servicer.ListBrokers,
    admin_pb2.DescribeConfigsRequest: lambda servicer: servicer.DescribeConfigs,
}


@pytest.mark.parametrize("kind", READS)
def test_reads_with_anything_in_them_are_answered_and_write_nothing(kind: type[Message]) -> None:
    async def ask(path: Path, requests: list[Message]) -> None:
        async with memory_bench(path) as bench:
            bench.log.lead()
            await bench.lead()
            await bench.with_brokers(1)
            await bench.done(create(creatable("a")))
            end_offset = bench.log.log_end_offset
            servicer = AdminServicer(bench.controller, bench.store, bench.machine)
            for request in requests:
                request.consistency.wait_ms = min(request.consistency.wait_ms, 1)  # type: ignore[attr-defined]
                response = await READS[kind](servicer)(request, None)
                assert ErrorCode(response.error_code) is not ErrorCode.UNKNOWN_SERVER_ERROR
            assert bench.log.log_end_offset == end_offset

    @settings(max_examples=examples(40), deadline=None)
    @given(st.lists(arbitrary(kind, HINTS), min_size=1, max_size=8))
    def read(requests: list[Message]) -> None:
        _in_a_new_database(lambda path: ask(path, requests))

    read()
