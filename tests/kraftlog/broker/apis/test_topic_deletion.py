"""DeleteTopics, CreatePartitions, CreateTopics: what the broker adds to the controller's answer (DB-113, DB-114)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.apis.topic_changes import CreatePartitionsApi, DeleteTopicsApi
from kraftlog.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kraftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kraftlog.kafka.notation import ZERO_UUID
from kraftpb.v1 import admin_pb2
from tests.kraftlog.broker.broker_world import ME, BrokerWorld, registration, replicas, topic
from tests.kraftlog.broker.services import services
from tests.statemachine.builders import an_id, remove_topic

INTERNAL = "__consumer_offsets"
CLICKS, INTERNAL_ID = an_id(1), an_id(2)


class Controller:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[admin_pb2.Operation] = []
        self._answer: Any = None

    def submit(self, operation: admin_pb2.Operation, timeout_ms: int, on_result: Any) -> None:
        self.asked.append(operation)
        self._answer = on_result

    def deletes(self, *topics: admin_pb2.DeletedTopic) -> None:
        self._answer(admin_pb2.OperationResult(delete_topics=admin_pb2.DeleteTopicsResponse(topics=topics)))

    def refuses(self) -> None:
        self._answer(ApiError(ErrorCode.REQUEST_TIMED_OUT, "no controller"))


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """A topic, and an internal one."""
    return BrokerWorld(tmp_path, [registration(ME), topic("clicks"), replicas(), topic(INTERNAL, 2), replicas(2)])


@pytest.fixture
def controller() -> Controller:
    return Controller()


def delete(world: BrokerWorld, controller: Controller, *states: DeleteTopicState, version: int = 6) -> None:
    handler = DeleteTopicsApi(replace(world.services, controller=controller)).handle  # type: ignore[arg-type]
    if version < 6:
        body = DeleteTopicsRequest(topic_names=tuple(of.name or "" for of in states), timeout_ms=1_000)
    else:
        body = DeleteTopicsRequest(topics=states, timeout_ms=1_000)
    world.ask(handler, body, version)


def codes(world: BrokerWorld) -> dict[tuple[str | None, bytes], int]:
    return {(of.name, of.topic_id): of.error_code for of in world.last(DeleteTopicsResponse).responses}


def test_db113_the_answer_waits_until_this_broker_has_applied_it(world: BrokerWorld, controller: Controller) -> None:
    delete(world, controller, DeleteTopicState(name="clicks"))
    controller.deletes(admin_pb2.DeletedTopic(name="clicks", topic_id=CLICKS))
    assert world.answers == []
    world.commit(topic("other", 3))
    assert world.answers == []
    world.commit(remove_topic(1))
    assert codes(world) == {("clicks", CLICKS): ErrorCode.NONE}
    world.runtime.expire()
    assert world.answers == []


def test_db113_one_that_is_applied_already_is_answered_at_once(world: BrokerWorld, controller: Controller) -> None:
    delete(world, controller, DeleteTopicState(name="clicks"))
    world.commit(remove_topic(1))
    controller.deletes(admin_pb2.DeletedTopic(name="clicks", topic_id=CLICKS))
    assert codes(world) == {("clicks", CLICKS): ErrorCode.NONE}


@pytest.mark.parametrize("end", ["its time is up", "the client goes", "a snapshot"])
def test_db113_the_controllers_result_is_answered_all_the_same(
    world: BrokerWorld, controller: Controller, end: str
) -> None:
    delete(world, controller, DeleteTopicState(name="clicks"))
    controller.deletes(admin_pb2.DeletedTopic(name="clicks", topic_id=CLICKS))
    if end == "its time is up":
        world.runtime.expire()
    elif end == "the client goes":
        world.client_goes()
    else:
        world._apply([remove_topic(1)])
        world.begin_anew()
    assert codes(world) == {("clicks", CLICKS): ErrorCode.NONE}


def test_db113_what_the_controller_refuses_is_not_waited_for(world: BrokerWorld, controller: Controller) -> None:
    delete(world, controller, DeleteTopicState(name="clicks"))
    controller.refuses()
    assert codes(world) == {("clicks", ZERO_UUID): ErrorCode.REQUEST_TIMED_OUT}


@pytest.mark.parametrize("version", [1, 5, 6])
def test_db114_no_client_deletes_an_internal_topic(world: BrokerWorld, controller: Controller, version: int) -> None:
    delete(world, controller, DeleteTopicState(name=INTERNAL), version=version)
    assert list(codes(world).values()) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert controller.asked == []


def test_db114_neither_by_its_id_nor_beside_others(world: BrokerWorld, controller: Controller) -> None:
    delete(world, controller, DeleteTopicState(name=None, topic_id=INTERNAL_ID), DeleteTopicState(name="clicks"))
    (asked,) = controller.asked
    assert [of.name for of in asked.delete_topics.topics] == ["clicks"]
    world.commit(remove_topic(1))
    controller.deletes(admin_pb2.DeletedTopic(name="clicks", topic_id=CLICKS))
    assert codes(world) == {
        (None, INTERNAL_ID): ErrorCode.INVALID_TOPIC_EXCEPTION,
        ("clicks", CLICKS): ErrorCode.NONE,
    }


@pytest.mark.parametrize("version", [1, 6])
def test_db115_no_topic_has_an_empty_name(world: BrokerWorld, controller: Controller, version: int) -> None:
    delete(world, controller, DeleteTopicState(name=""), version=version)
    assert list(codes(world).values()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    delete(world, controller, DeleteTopicState(name=""), DeleteTopicState(name=""), version=version)
    assert list(codes(world).values()) == [ErrorCode.INVALID_REQUEST]
    assert controller.asked == []


def test_db114_no_client_makes_an_internal_topic_larger(world: BrokerWorld, controller: Controller) -> None:
    handler = CreatePartitionsApi(services(controller=controller)).handle
    growing = tuple(CreatePartitionsTopic(name=of, count=3, assignments=None) for of in (INTERNAL, "clicks"))
    body = CreatePartitionsRequest(topics=growing[:1], timeout_ms=1_000)
    answer = world.answer_to(handler, body, 3, CreatePartitionsResponse)
    assert [(of.name, of.error_code) for of in answer.results] == [(INTERNAL, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert controller.asked == []
    world.ask(handler, CreatePartitionsRequest(topics=growing, timeout_ms=1_000), 3)
    controller.refuses()
    assert {of.name: of.error_code for of in world.last(CreatePartitionsResponse).results} == {
        INTERNAL: ErrorCode.INVALID_TOPIC_EXCEPTION,
        "clicks": ErrorCode.REQUEST_TIMED_OUT,
    }
