"""Producer ids: from blocks, none twice, and nobody waits for ever; and InitProducerId, which hands them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.apis.init_producer_id import InitProducerIdApi
from kraftlog.broker.producer_ids import FEW_IDS, WAITING_MAX, Block, ProducerIds
from kraftlog.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.kraftlog.broker.broker_world import BrokerWorld
from tests.kraftlog.broker.services import services

UNREACHABLE = ApiError(ErrorCode.REQUEST_TIMED_OUT, "there is no controller")


class Controller:
    """Notes that it was asked for blocks; the test allocates them."""

    def __init__(self) -> None:
        self.asked = 0
        self.ids = ProducerIds(self.ask)
        self.taken: list[int] = []
        self.errors: list[ApiError] = []

    def ask(self) -> None:
        self.asked += 1

    def take(self, count: int) -> None:
        for _ in range(count):
            self.ids.allocate(self.note)

    def note(self, producer_id: int, error: ApiError | None) -> None:
        if error is None:
            self.taken.append(producer_id)
        else:
            self.errors.append(error)


def test_ids_are_taken_in_order_and_the_next_block_is_asked_for_before_they_are_used_up() -> None:
    controller = Controller()
    controller.take(2)
    assert (controller.taken, controller.asked) == ([], 1)
    controller.ids.allocated(Block(1_000, 1_000))
    controller.take(1_000 - FEW_IDS - 2)
    assert controller.asked == 1
    controller.take(1)
    assert controller.asked == 2
    controller.ids.allocated(Block(5_000, 1_000))
    controller.take(FEW_IDS)
    assert controller.taken == [*range(1_000, 2_000), 5_000]
    assert controller.asked == 2


@pytest.mark.parametrize("size", [0, -1])
def test_after_a_block_without_ids_who_waits_is_refused_and_only_the_next_one_asks_again(size: int) -> None:
    controller = Controller()
    controller.take(2)
    controller.ids.allocated(Block(1_000, size))
    assert [error.code for error in controller.errors] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    assert controller.asked == 1
    controller.take(1)
    assert controller.asked == 2
    controller.ids.allocated(Block(2_000, 10))
    assert controller.taken == [2_000]


def test_more_than_a_block_may_wait_and_all_get_one_in_the_end() -> None:
    controller = Controller()
    controller.take(25)
    for start in (100, 200, 300):
        controller.ids.allocated(Block(start, 10))
    assert controller.taken == [*range(100, 110), *range(200, 210), *range(300, 305)]
    assert controller.errors == []


def test_who_waits_is_refused_when_the_controller_cannot_be_asked_and_the_next_one_asks_again() -> None:
    controller = Controller()
    controller.take(3)
    controller.ids.refused(UNREACHABLE)
    assert controller.errors == [UNREACHABLE] * 3
    controller.take(1)
    assert controller.asked == 2
    controller.ids.allocated(Block(0, 1_000))
    assert controller.taken == [0]


def test_a_refusal_while_there_are_ids_harms_nobody() -> None:
    controller = Controller()
    controller.take(1)
    controller.ids.allocated(Block(0, FEW_IDS))
    assert controller.asked == 2
    controller.ids.refused(UNREACHABLE)
    controller.take(1)
    assert (controller.taken, controller.errors, controller.asked) == ([0, 1], [], 3)


def test_so_many_may_wait_and_no_more() -> None:
    controller = Controller()
    controller.take(WAITING_MAX + 1)
    assert [error.code for error in controller.errors] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    controller.ids.allocated(Block(0, WAITING_MAX))
    assert len(controller.taken) == WAITING_MAX


# --- InitProducerId ---------------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return BrokerWorld(tmp_path)


@pytest.mark.parametrize("version", range(7))
def test_a_producer_gets_a_new_id_with_epoch_0_when_there_is_one(world: BrokerWorld, version: int) -> None:
    controller = Controller()
    api = InitProducerIdApi(services(producer_ids=controller.ids))
    world.ask(api.handle, InitProducerIdRequest(transactional_id=None), version)
    assert world.answers == []
    controller.ids.allocated(Block(7_000, 1_000))
    answer = world.last(InitProducerIdResponse)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 7_000, 0)
    again = InitProducerIdRequest(transactional_id=None)
    if version >= 3:
        again.producer_id, again.producer_epoch = 7_000, 3
    answer = world.answer_to(api.handle, again, version, InitProducerIdResponse)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 7_001, 0)


def test_a_producer_tries_again_when_there_is_none(world: BrokerWorld) -> None:
    controller = Controller()
    world.ask(
        InitProducerIdApi(services(producer_ids=controller.ids)).handle, InitProducerIdRequest(transactional_id=None), 4
    )
    controller.ids.refused(UNREACHABLE)
    answer = world.last(InitProducerIdResponse)
    refusal = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == refusal


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (InitProducerIdRequest(transactional_id=""), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(transactional_id="mine"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (InitProducerIdRequest(transactional_id=None, producer_id=3), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(transactional_id=None, producer_epoch=3), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_and_takes_no_id(
    world: BrokerWorld, body: InitProducerIdRequest, code: ErrorCode
) -> None:
    controller = Controller()
    answer = world.answer_to(
        InitProducerIdApi(services(producer_ids=controller.ids)).handle, body, 4, InitProducerIdResponse
    )
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
    assert controller.asked == 0
