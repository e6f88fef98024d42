"""InitProducerId: ids for idempotent producers, while the controller answers and while it does not (DB-118)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.apis.init_producer_id import InitProducerIdApi
from kraftlog.broker.producer_ids import FEW_IDS, WAITING_MAX, Block, ProducerIds
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import ClientRequest, RequestContext
from tests.kraftlog.broker.services import services

UNREACHABLE = ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "no controller answers")


class World:
    """The API over a controller that answers when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers: list[Message | None] = []
        self.ids = ProducerIds(self._ask)
        self._api = InitProducerIdApi(services(producer_ids=self.ids))

    def _ask(self) -> None:
        self.asked += 1

    def init(self, **fields: Any) -> None:
        """A producer asks for an id; its answer is appended to `answers`."""
        body = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})
        request = ClientRequest(api_of(body.KEY), 5, body, RequestContext("127.0.0.1", "PLAINTEXT"), 100)
        self._api.handle(request, lambda response, throttle_ms=0: self.answers.append(response))

    def found(self) -> list[tuple[int, int, int]]:
        """Error code, id and epoch of each answer."""
        assert all(isinstance(answer, InitProducerIdResponse) for answer in self.answers)
        return [(answer.error_code, answer.producer_id, answer.producer_epoch) for answer in self.answers]  # type: ignore[union-attr]


@pytest.fixture
def world() -> World:
    return World()


def test_db118_each_producer_gets_an_id_of_its_own_with_epoch_0(world: World) -> None:
    world.init()
    world.init(producer_id=7, producer_epoch=3)
    assert world.found() == []
    world.ids.allocated(Block(1_000, 1_000))
    world.init()
    assert world.found() == [(0, 1_000, 0), (0, 1_001, 0), (0, 1_002, 0)]
    assert world.asked == 1


def test_db118_without_a_controller_producers_are_told_what_all_of_them_try_again(world: World) -> None:
    world.init()
    world.init()
    world.ids.refused(UNREACHABLE)
    refused = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert world.found() == [refused, refused]
    assert world.asked == 1, "nobody asks again until a producer does"
    world.init()
    assert world.asked == 2
    world.ids.allocated(Block(0, 1_000))
    assert world.found()[2:] == [(0, 0, 0)]


def test_db118_the_next_block_is_asked_for_early_and_its_refusal_harms_nobody(world: World) -> None:
    world.init()
    world.ids.allocated(Block(0, FEW_IDS + 1))
    assert world.asked == 1
    world.init()
    assert world.asked == 2
    world.ids.refused(UNREACHABLE)
    world.init()
    world.ids.allocated(Block(5_000, 1))
    for _ in range(FEW_IDS - 2):
        world.init()
    assert [producer_id for _, producer_id, _ in world.found()] == list(range(FEW_IDS + 1))
    world.init()
    assert world.found()[-1] == (0, 5_000, 0)


def test_only_so_many_producers_wait(world: World) -> None:
    for _ in range(WAITING_MAX):
        world.init()
    assert world.found() == []
    world.init()
    assert world.found() == [(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)]
    assert world.asked == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "mine"}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"producer_id": 7}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "mine", "producer_id": 7}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_db118_what_is_refused_takes_no_id(world: World, fields: dict[str, Any], code: ErrorCode) -> None:
    world.init(**fields)
    assert world.found() == [(code, -1, -1)]
    assert world.asked == 0
