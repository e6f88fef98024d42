"""Operations that came together: they are taken in slices, in order, and others are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.admin.server.operation_stream_server import OperationStreamServer
from kraftlog.controller.paged_writes import SLICE_MS
from kraftlog.controller.pending_operations import OnResult
from kraftlog.controller.submission import Submission
from kraftpb.v1.admin_pb2 import Operation, OperationBatch, OperationResult
from tests.raft.by_hand import HandRuntime
from tests.statemachine.builders import create
from tests.statemachine.conftest import Bench, errors
from tests.statemachine.waiting import turns


class Slow:
    """Takes operations, each of which takes the same time; notes what happens."""

    def __init__(self, runtime: HandRuntime, take_ms: float) -> None:
        self._runtime = runtime
        self._take_ms = take_ms
        self.happened: list[str] = []
        self.arrived_ms: set[float] = set()

    def process(self, operation: Operation, on_result: OnResult, arrived_ms: float) -> None:
        self._runtime.time_ms += self._take_ms
        self.happened.append(str(operation.correlation_id))
        self.arrived_ms.add(arrived_ms)

    def schedule(self) -> None:
        self.happened.append("scheduled")


def submitted(count: int, take_ms: float) -> tuple[Submission, Slow, HandRuntime]:
    runtime = HandRuntime()
    slow = Slow(runtime, take_ms)
    operations = [Operation(correlation_id=number) for number in range(count)]
    submission = Submission(slow, runtime, operations, lambda result: None, lambda: slow.happened.append("taken"))
    submission.take_slice()
    return submission, slow, runtime


def test_few_are_taken_at_once_and_appended_together() -> None:
    _, slow, runtime = submitted(3, SLICE_MS / 10)
    assert slow.happened == ["0", "1", "2", "scheduled", "taken"]
    assert not runtime.soon


def test_none_are_taken_at_once() -> None:
    assert submitted(0, 1)[1].happened == ["scheduled", "taken"]


def test_many_are_taken_in_slices_and_each_slice_is_appended_before_the_others_are_served() -> None:
    _, slow, runtime = submitted(5, SLICE_MS / 2)
    assert slow.happened == ["0", "1", "scheduled"]
    runtime.soon.popleft()()
    assert slow.happened[3:] == ["2", "3", "scheduled"]
    runtime.run()
    assert slow.happened[6:] == ["4", "scheduled", "taken"]
    assert slow.arrived_ms == {1_000.0}  # they arrived together, so each waits from then on (CT-19)


def test_who_holds_the_loop_with_its_last_operation_lets_others_be_served_before_it_brings_more() -> None:
    _, slow, runtime = submitted(1, SLICE_MS)
    assert slow.happened == ["0", "scheduled"]
    runtime.run()
    assert slow.happened == ["0", "scheduled", "scheduled", "taken"]


def test_what_is_cancelled_takes_no_more() -> None:
    submission, slow, runtime = submitted(5, SLICE_MS)
    submission.cancel()
    runtime.run()
    assert slow.happened == ["0", "scheduled"]


async def test_leadership_that_is_lost_between_two_slices_refuses_the_second(
    held: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first may be carried out; nothing of the second is written, and each has one answer."""
    monkeypatch.setattr("kraftlog.controller.submission.SLICE_MS", 0)
    results: list[OperationResult] = []
    taken = asyncio.Event()
    held.controller.submit([create("a"), create("b")], results.append, taken.set)
    held.log.lose_leadership()
    await taken.wait()
    assert [(result.error_code, result.end_offset) for result in results] == [
        (ErrorCode.NOT_CONTROLLER, results[0].end_offset),
        (ErrorCode.NOT_CONTROLLER, -1),
    ]
    assert results[0].end_offset > 0


async def test_a_stream_that_ends_between_two_slices_takes_the_rest_of_its_message_with_it(
    held: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlog.controller.submission.SLICE_MS", 0)
    start = held.log.next_append_offset

    async def batches() -> AsyncIterator[OperationBatch]:
        yield OperationBatch(operations=[create("a"), create("b"), create("c")])

    reading = asyncio.create_task(OperationStreamServer(held.controller).read(batches()))
    while held.log.next_append_offset == start:
        await turns(1)  # not a moment: the other slices are taken in it
    first = held.log.next_append_offset
    reading.cancel()
    await turns(100)
    assert reading.cancelled()
    assert held.log.next_append_offset == first
    held.log.commit()


async def test_a_stream_reads_no_more_before_all_that_it_read_is_taken(
    held: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlog.controller.submission.SLICE_MS", 0)
    names = iter("abcdef")
    pending_when_read: list[int] = []

    async def batches() -> AsyncIterator[OperationBatch]:
        for _ in range(2):
            pending_when_read.append(len(held.controller._pending))
            yield OperationBatch(operations=[create(next(names)) for _ in range(3)])

    stream = OperationStreamServer(held.controller)
    await stream.read(batches())
    assert pending_when_read == [0, 3]
    held.log.commit()
    results: list[OperationResult] = []
    while taken := await stream.take():
        results += taken
    assert [errors(result) for result in results] == [[]] * 6
