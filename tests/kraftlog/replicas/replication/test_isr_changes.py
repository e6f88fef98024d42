"""Asking the controller for ISRs (DB-10 to DB-12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.replicas.replication.isr_changes import CHANGES_MAX, IsrChanges
from kraftlog.replicas.replication.leading import Leading
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import PartitionRecord
from tests.kraftlog.broker.broker_world import TimedRuntime
from tests.kraftlog.replicas.replication.test_leading import LAG_MAX_MS, ME, KnownBrokers
from tests.kraftlog.telemetry.recorder import Recorder
from tests.statemachine.builders import an_id

OnAnswer = Callable[[admin_pb2.AlterPartitionResponse | ApiError], None]


@dataclass(eq=False)
class Led:
    """A partition that this broker leads."""

    index: int
    leading: Leading | None
    topic_id: bytes = an_id(1)
    settled: int = 0

    def isr_settled(self) -> None:
        self.settled += 1

    @property
    def known(self) -> Leading:
        assert self.leading is not None
        return self.leading


class AskedController:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.requests: list[admin_pb2.AlterPartitionRequest] = []
        self.answers: list[OnAnswer] = []

    def alter_partition(self, request: admin_pb2.AlterPartitionRequest, on_answer: OnAnswer) -> None:
        self.requests.append(request)
        self.answers.append(on_answer)

    def answer(self, code: ErrorCode = ErrorCode.NONE, *, epoch: int = 10) -> None:
        """Answer the request that is under way, the same for all its partitions."""
        results = [
            admin_pb2.AlterPartitionResult(
                topic_id=asked.topic_id, partition_id=asked.partition_id, error_code=code, leader=ME, leader_epoch=5,
                isr=[member.broker_id for member in asked.new_isr], partition_epoch=epoch,
            )
            for asked in self.requests[-1].partitions
        ]  # fmt: skip
        self.answers.pop()(admin_pb2.AlterPartitionResponse(partitions=results))


def record(index: int, isr: tuple[int, ...] = (1, 2, 3), partition_epoch: int = 9) -> PartitionRecord:
    return PartitionRecord(
        topic_id=an_id(1), partition_id=index, replicas=[1, 2, 3], isr=isr, leader=ME, leader_epoch=5,
        partition_epoch=partition_epoch,
    )  # fmt: skip


class World:
    """The changes of a broker, whose epoch is 11."""

    def __init__(self) -> None:
        self.runtime = TimedRuntime()
        self.controller = AskedController()
        self.observer = Recorder()
        self.changes = IsrChanges(ME, lambda: 11, self.controller, self.runtime, self.observer)

    def led(self, index: int = 0, isr: tuple[int, ...] = (1, 2, 3)) -> Led:
        return Led(index, Leading(ME, record(index, isr), KnownBrokers(), LAG_MAX_MS, 0, 0.0))

    @property
    def asked(self) -> list[list[int]]:
        """The partitions of each request so far."""
        return [[one.partition_id for one in request.partitions] for request in self.controller.requests]


@pytest.fixture
def world() -> World:
    return World()


def test_db10_what_comes_up_while_a_request_is_under_way_goes_together_in_the_next(world: World) -> None:
    partitions = [world.led(index, (1,)) for index in range(3)]
    for partition in partitions:
        world.changes.ask(partition, (1, 2))
    assert world.asked == [[0]]
    world.controller.answer()
    assert world.asked == [[0], [1, 2]]
    world.controller.answer()
    assert [partition.known.isr for partition in partitions] == [(1, 2)] * 3
    assert [partition.settled for partition in partitions] == [1, 1, 1]
    assert world.asked == [[0], [1, 2]]


def test_db11_who_leaves_is_waited_for_until_the_metadata_says_so(world: World) -> None:
    """By then the leader knows a `min.insync.replicas` that was raised before: it may not commit alone."""
    partition = world.led()
    world.changes.ask(partition, (1, 2))
    world.controller.answer()
    assert (partition.known.isr, partition.known.maximal_isr, partition.settled) == ((1, 2, 3), {1, 2, 3}, 0)
    partition.known.update(record(0, (1, 2), 10))
    assert (partition.known.isr, partition.known.pending) == ((1, 2), None)
    world.changes.ask(partition, (1, 2, 3))
    world.controller.answer(epoch=11)
    assert (partition.known.isr, partition.settled) == ((1, 2, 3), 1)


def test_a_request_names_epochs_and_that_the_leader_has_recovered(world: World) -> None:
    world.changes.ask(world.led(), (1, 2))
    (request,) = world.controller.requests
    (asked,) = request.partitions
    assert (request.broker_id, request.broker_epoch) == (ME, 11)
    assert (asked.leader_epoch, asked.partition_epoch, asked.leader_recovery_state) == (5, 9, 0)
    assert [(member.broker_id, member.broker_epoch) for member in asked.new_isr] == [(1, 11), (2, -1)]


def test_a_request_has_a_bound(world: World) -> None:
    world.changes.ask(world.led(), (1, 2))
    for index in range(1, CHANGES_MAX + 2):
        world.changes.ask(world.led(index), (1, 2))
    world.controller.answer()
    assert len(world.asked[1]) == CHANGES_MAX
    world.controller.answer()
    assert world.asked[2] == [CHANGES_MAX + 1]


def test_db11_an_ineligible_replica_puts_the_committed_isr_back(world: World) -> None:
    partition = world.led()
    world.changes.ask(partition, (1, 2))
    world.controller.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert (partition.known.isr, partition.known.pending, partition.settled) == ((1, 2, 3), None, 1)
    assert len(world.asked) == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NEW_LEADER_ELECTED,
    ],
)  # fmt: skip
def test_db11_an_error_that_says_that_the_metadata_is_old_leaves_the_change_pending(
    world: World, code: ErrorCode
) -> None:
    partition = world.led()
    world.changes.ask(partition, (1, 2))
    world.controller.answer(code)
    assert partition.known.pending is not None
    world.runtime.expire()
    assert len(world.asked) == 1
    partition.known.update(record(0, (1, 3), 10))
    assert (partition.known.pending, partition.known.isr) == (None, (1, 3))


@pytest.mark.parametrize("is_whole", [True, False])
def test_db11_other_errors_are_tried_again_after_a_pause(world: World, is_whole: bool) -> None:
    partition = world.led(isr=(1,))
    world.changes.ask(partition, (1, 2))
    if is_whole:
        world.controller.answers.pop()(ApiError(ErrorCode.REQUEST_TIMED_OUT, "no answer"))
    else:
        world.controller.answer(ErrorCode.NOT_CONTROLLER)
    assert len(world.asked) == 1
    world.changes.ask(world.led(1), (1, 2))
    world.runtime.expire()
    assert [sorted(one) for one in world.asked] == [[0], [0, 1]]
    world.controller.answer()
    assert partition.known.isr == (1, 2)


def test_an_answer_without_one_of_the_partitions_is_none_for_it(world: World) -> None:
    partition = world.led()
    world.changes.ask(partition, (1, 2))
    world.controller.answers.pop()(admin_pb2.AlterPartitionResponse())
    world.runtime.expire()
    assert world.asked == [[0], [0]]


def test_db12_an_answer_that_comes_after_newer_metadata_is_not_taken(world: World) -> None:
    partition = world.led()
    world.changes.ask(partition, (1, 2))
    partition.known.update(record(0, (1, 3), 10))
    world.controller.answer(epoch=11)
    assert (partition.known.isr, partition.settled) == ((1, 3), 0)


def test_what_is_not_led_any_more_is_not_asked_for_again(world: World) -> None:
    partition = world.led()
    world.changes.ask(partition, (1, 2))
    partition.leading = None
    world.controller.answers.pop()(ApiError(ErrorCode.REQUEST_TIMED_OUT, "no answer"))
    world.runtime.expire()
    assert len(world.asked) == 1
    world.changes.ask(world.led(1), (1, 2))
    assert world.asked == [[0], [1]]


def test_after_the_end_nothing_is_asked_for(world: World) -> None:
    world.changes.stop()
    partition = world.led()
    world.changes.ask(partition, (1, 2))
    assert (world.asked, partition.known.pending) == ([], None)
