"""What a broker tells the controller of where its replicas are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import LOST_DIRECTORY
from kraftbase.partition import TopicPartition
from kraftlog.broker.shell import directory_assignments
from kraftlog.broker.shell.directory_assignments import RETRY_MS, DirectoryAssignments
from kraftlog.broker.shell.ports import OnAnswer, OnResult
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import PartitionRecord
from tests.raft.by_hand import HandRuntime

HERE, THERE = UUID(int=77), UUID(int=78)


class Stage:
    """Broker 1 with epoch 5, and the controller."""

    def __init__(self) -> None:
        self.runtime = HandRuntime()
        self.assignments = DirectoryAssignments(1, lambda: 5, self, self.runtime)
        self.told: list[dict[int, UUID]] = []
        """By request, the numbers of partitions and where their replicas are."""
        self.on_result: OnResult | None = None

    def ask(
        self, operation: admin_pb2.Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False
    ) -> None:
        assert self.on_result is None, "one request is under way at a time"
        request = operation.assign_replicas_to_dirs
        assert (request.broker_id, request.broker_epoch) == (1, 5)
        self.told.append({one.partition_id: UUID(bytes=one.directory_id) for one in request.assignments})
        self.on_result = on_result

    def find_cluster(self, on_found: OnAnswer[str]) -> None:
        raise NotImplementedError

    def answer(self, result: admin_pb2.OperationResult | ApiError | None = None) -> None:
        assert self.on_result is not None
        on_result, self.on_result = self.on_result, None
        on_result(admin_pb2.OperationResult() if result is None else result)
        self.runtime.run()


class _Replica(SimpleNamespace):
    __hash__ = object.__hash__


def replica(index: int) -> Any:
    """One that is in HERE by the metadata."""
    record = PartitionRecord(replicas=[1], directories=[HERE.bytes])
    return cast(Any, _Replica(record=record, topic_id=bytes(16), name=TopicPartition("t", index)))


def test_what_the_metadata_says_by_now_takes_back_what_the_controller_has_yet_to_be_told() -> None:
    """A log was damaged, and is copied anew before the controller has heard of the damage."""
    stage = Stage()
    mended, other = replica(0), replica(1)
    stage.assignments.start()
    stage.assignments.placed(mended, UUID(bytes=LOST_DIRECTORY))
    stage.assignments.placed(mended, HERE)
    stage.assignments.placed(other, THERE)
    stage.runtime.run()
    assert stage.told == [{1: THERE}]


def test_nothing_is_told_of_what_the_metadata_says_by_the_time_that_it_is_asked_again() -> None:
    stage = Stage()
    moved = replica(0)
    stage.assignments.start()
    stage.assignments.placed(moved, THERE)
    stage.runtime.run()
    stage.assignments.placed(moved, HERE)
    stage.answer(ApiError(ErrorCode.NOT_CONTROLLER, "not now"))
    stage.runtime.advance(RETRY_MS)
    assert stage.told == [{0: THERE}]
    stage.assignments.placed(moved, THERE)
    stage.runtime.run()
    assert stage.told == [{0: THERE}] * 2


def test_a_broker_that_takes_its_partitions_over_tells_of_all_in_one_request() -> None:
    stage = Stage()
    for index in range(3):
        stage.assignments.placed(replica(index), THERE)
        stage.runtime.run()
    assert stage.told == []
    stage.assignments.start()
    stage.runtime.run()
    assert stage.told == [dict.fromkeys(range(3), THERE)]


def test_what_comes_up_while_a_request_is_under_way_goes_into_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "ASSIGNMENTS_MAX", 2)
    stage = Stage()
    replicas = [replica(index) for index in range(4)]
    for one in replicas[:3]:
        stage.assignments.placed(one, THERE)
    stage.assignments.start()
    stage.runtime.run()
    stage.assignments.placed(replicas[3], THERE)
    stage.assignments.placed(replicas[0], UUID(bytes=LOST_DIRECTORY))
    stage.answer()
    stage.answer()
    assert stage.told == [
        {0: THERE, 1: THERE},
        {0: UUID(bytes=LOST_DIRECTORY), 2: THERE},
        {3: THERE},
    ]
    stage.answer()
    assert len(stage.told) == 3


def test_it_is_told_again_a_while_after_a_failure_and_not_when_it_is_stopped() -> None:
    stage = Stage()
    stage.assignments.start()
    stage.assignments.placed(replica(0), THERE)
    stage.runtime.run()
    stage.answer(ApiError(ErrorCode.REQUEST_TIMED_OUT, "not now"))
    stage.runtime.advance(RETRY_MS - 1)
    assert len(stage.told) == 1
    stage.runtime.advance(1)
    assert len(stage.told) == 2
    stage.answer(ApiError(ErrorCode.REQUEST_TIMED_OUT, "not now"))
    stage.assignments.stop()
    stage.runtime.advance(RETRY_MS)
    assert len(stage.told) == 2
