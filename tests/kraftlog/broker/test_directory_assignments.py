"""What a broker tells the controller of where its replicas are."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from kraftbase.ids import LOST_DIRECTORY
from kraftbase.partition import TopicPartition
from kraftlog.broker.directory_assignments import DirectoryAssignments
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import PartitionRecord

HERE = UUID(int=77)


async def test_what_the_metadata_says_by_now_takes_back_what_the_controller_has_yet_to_be_told() -> None:
    """A log was damaged, and is copied anew before the controller has heard of the damage."""
    told: list[bytes] = []

    async def execute(operation: admin_pb2.Operation, **_: Any) -> admin_pb2.OperationResult:
        told.extend(one.directory_id for one in operation.assign_replicas_to_dirs.assignments)
        return admin_pb2.OperationResult()

    def replica(index: int) -> Any:
        record = PartitionRecord(replicas=[1], directories=[HERE.bytes])
        return cast(Any, _Replica(record=record, topic_id=bytes(16), name=TopicPartition("t", index)))

    assignments = DirectoryAssignments(cast(Any, SimpleNamespace(execute=execute)), 1, lambda: 5)
    mended, other = replica(0), replica(1)
    assignments.placed(mended, UUID(bytes=LOST_DIRECTORY))
    assignments.placed(mended, HERE)
    assignments.placed(other, UUID(int=78))
    running = asyncio.create_task(assignments.run())
    while not told:
        await asyncio.sleep(0)
    running.cancel()
    assert told == [UUID(int=78).bytes]


class _Replica(SimpleNamespace):
    __hash__ = object.__hash__
