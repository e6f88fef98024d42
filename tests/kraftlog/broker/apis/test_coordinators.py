"""FindCoordinator and OffsetFetch: each broker coordinates all groups, and none has committed anything (DB-110)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.broker.apis.coordinators import FindCoordinatorApi, OffsetFetchApi
from kraftlog.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kraftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.kraftlog.broker.broker_world import ME, BrokerWorld, registration, replicas, topic
from tests.statemachine.builders import an_id

OF_GROUPS, OF_TRANSACTIONS, OF_SHARE_GROUPS = range(3)
Found = tuple[int, int, str, int]
"""Error code, id, host and port."""


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """This broker, 1, with two listeners."""
    return BrokerWorld(
        tmp_path, [registration(1, listeners={"PLAINTEXT": 9093, "OTHER": 9999}), registration(2)],
        [topic("clicks"), replicas()],
    )  # fmt: skip


def find(world: BrokerWorld, version: int, key_type: int = OF_GROUPS, key: str = "g") -> list[Found]:
    """The coordinators of one key, or of two."""
    if version < 4:
        body = FindCoordinatorRequest(key=key, key_type=key_type)
    else:
        body = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key, "h"))
    handler = FindCoordinatorApi(world.services).handle
    answer = world.answer_to(handler, body, version, FindCoordinatorResponse)
    if version < 4:
        return [(answer.error_code, answer.node_id, answer.host, answer.port)]
    assert [of.key for of in answer.coordinators] == [key, "h"]
    return [(of.error_code, of.node_id, of.host, of.port) for of in answer.coordinators]


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize(("listener", "port"), [("PLAINTEXT", 9093), ("OTHER", 9999)])
def test_db110_this_broker_coordinates_every_group_at_the_clients_listener(
    world: BrokerWorld, version: int, listener: str, port: int
) -> None:
    world.listener = listener
    assert set(find(world, version)) == {(ErrorCode.NONE, ME, "host1", port)}
    assert set(find(world, version, key="")) == {(ErrorCode.NONE, ME, "host1", port)}


@pytest.mark.parametrize("version", range(7))
def test_db110_a_broker_that_is_not_registered_is_no_coordinator(tmp_path: Path, version: int) -> None:
    world = BrokerWorld(tmp_path, [registration(2)])
    assert set(find(world, version)) == {(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)}


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (OF_TRANSACTIONS, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (OF_SHARE_GROUPS, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.INVALID_REQUEST),
        (-1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_db110_what_nobody_coordinates_is_refused_for_good(
    world: BrokerWorld, version: int, key_type: int, code: ErrorCode
) -> None:
    assert set(find(world, version, key_type)) == {(code, -1, "", -1)}


@pytest.mark.parametrize("version", range(1, 8))
def test_db110_no_group_has_committed_an_offset(world: BrokerWorld, version: int) -> None:
    topics = (
        OffsetFetchRequestTopic(name="clicks", partition_indexes=(0, 7)),
        OffsetFetchRequestTopic(name="missing", partition_indexes=(0,)),
    )
    body = OffsetFetchRequest(group_id="g", topics=topics)
    answer = world.answer_to(OffsetFetchApi(world.services).handle, body, version, OffsetFetchResponse)
    assert answer.error_code == ErrorCode.NONE
    assert [(of.name, [part.partition_index for part in of.partitions]) for of in answer.topics] == [
        ("clicks", [0, 7]),
        ("missing", [0]),
    ]
    parts = [part for of in answer.topics for part in of.partitions]
    assert {(part.committed_offset, part.committed_leader_epoch, part.metadata) for part in parts} == {(-1, -1, "")}
    assert {part.error_code for part in parts} == {ErrorCode.NONE}


@pytest.mark.parametrize("version", range(8, 11))
def test_db110_nor_has_any_of_several(world: BrokerWorld, version: int) -> None:
    asked = (OffsetFetchRequestTopics(name="clicks", topic_id=an_id(1), partition_indexes=(0, 7)),)
    groups = tuple(OffsetFetchRequestGroup(group_id=of, topics=asked) for of in ("g", "h"))
    body = OffsetFetchRequest(groups=groups)
    answer = world.answer_to(OffsetFetchApi(world.services).handle, body, version, OffsetFetchResponse)
    assert [(of.group_id, of.error_code) for of in answer.groups] == [("g", 0), ("h", 0)]
    for group in answer.groups:
        (found,) = group.topics
        assert found.topic_id == an_id(1) if version >= 10 else found.name == "clicks"
        assert [(part.partition_index, part.committed_offset, part.metadata) for part in found.partitions] == [
            (0, -1, ""),
            (7, -1, ""),
        ]
        assert {part.error_code for part in found.partitions} == {ErrorCode.NONE}


def test_db110_an_id_that_no_topic_has_is_said_to_be_unknown(world: BrokerWorld) -> None:
    asked = (OffsetFetchRequestTopics(topic_id=an_id(8), partition_indexes=(0,)),)
    body = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=asked),))
    answer = world.answer_to(OffsetFetchApi(world.services).handle, body, 10, OffsetFetchResponse)
    (part,) = answer.groups[0].topics[0].partitions
    assert (part.error_code, part.committed_offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)


@pytest.mark.parametrize("version", range(2, 11))
def test_db110_a_group_has_nothing_of_any_topic(world: BrokerWorld, version: int) -> None:
    groups = (OffsetFetchRequestGroup(group_id="g", topics=None),)
    body = OffsetFetchRequest(groups=groups) if version >= 8 else OffsetFetchRequest(group_id="g", topics=None)
    answer = world.answer_to(OffsetFetchApi(world.services).handle, body, version, OffsetFetchResponse)
    assert [of.topics for of in answer.groups] == ([()] if version >= 8 else [])
    assert answer.topics == ()
