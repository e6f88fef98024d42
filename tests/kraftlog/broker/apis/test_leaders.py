"""What clients are told that ask the wrong broker, or for what is not there, in every version."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.messages.fetch import FetchResponse
from kraftlog.kafka.messages.produce import ProduceResponse
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic
from tests.kraftlog.storage.builders import batch

ZERO = -1_000
"""The number of the topic whose id is zero."""


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """A broker with a follower, and a partition that only another broker has."""
    return BrokerWorld(
        tmp_path,
        [registration(1), registration(2), topic("clicks")],
        [replicas(on=[1, 2], leader=2, epoch=7), replicas(index=1, on=[2], epoch=8)],
    )


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("version", range(3, 14))
def test_a_producer_is_told_of_the_leader_from_version_10_on(world: BrokerWorld, version: int, index: int) -> None:
    world.send((index, batch(1)), version=version, acks=1)
    response = world.last(ProduceResponse)
    (part,) = response.responses[0].partition_responses
    told = (part.current_leader.leader_id, part.current_leader.leader_epoch)
    assert (part.error_code, told) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (2, 7 + index) if version >= 10 else (-1, -1),
    )
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == (
        [(2, "host2", 9094)] if version >= 10 else []
    )


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("version", range(4, 19))
def test_a_consumer_is_told_of_the_leader_from_version_16_on(world: BrokerWorld, version: int, index: int) -> None:
    world.read((index, 0), version=version, leader_epoch=3)
    response = world.last(FetchResponse)
    (part,) = response.responses[0].partitions
    told = (part.current_leader.leader_id, part.current_leader.leader_epoch)
    knows_epoch = index == 0 and version >= 9
    assert (part.error_code, told) == (
        ErrorCode.FENCED_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (2, 7 + index) if version >= 16 else (-1, -1),
    )
    assert [node.node_id for node in response.node_endpoints] == ([2] if version >= 16 else [])


@pytest.mark.parametrize(
    ("version", "number", "name", "code"),
    [
        (12, 1, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (13, 9, "", ErrorCode.UNKNOWN_TOPIC_ID),
        (13, ZERO, "", ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_topic_that_is_not_there_is_unknown_by_its_name_or_by_its_id(
    world: BrokerWorld, version: int, number: int, name: str, code: ErrorCode
) -> None:
    world.send((0, batch(1)), version=version, number=number, name=name)
    assert world.produced_codes() == [code]
    world.read((0, 0), version=version, number=number, name=name)
    assert [part.error_code for part in world.fetched()] == [code]


@pytest.mark.parametrize("index", [2, -1, 2**31 - 1])
def test_a_partition_that_is_not_there_is_unknown(world: BrokerWorld, index: int) -> None:
    world.send((index, batch(1)))
    assert world.produced_codes() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    world.read((index, 0))
    assert [part.error_code for part in world.fetched()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_are_none_one_or_all(world: BrokerWorld, acks: int) -> None:
    world.commit(topic("views", 2), replicas(2))
    world.send((0, batch(1)), number=2, acks=acks)
    assert world.produced_codes() == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert world.replica(number=2).online_log().log_end_offset == 0
