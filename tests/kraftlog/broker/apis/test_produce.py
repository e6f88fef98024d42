"""Produce: what is refused and with which error, several partitions in one request, and what is shown to readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.broker.requests import ConnectionRefused
from tests.kraftlog.broker.broker_world import BrokerWorld, replicas, topic
from tests.kraftlog.broker.log.builders import batch
from tests.statemachine.builders import config

NO_BATCH = b"x" * 80


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """A broker that leads two partitions."""
    return BrokerWorld(tmp_path, [topic("clicks"), replicas(index=0), replicas(index=1)])


# --- several partitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0, 1])
def test_without_acks_an_error_in_one_partition_closes_the_connection_and_the_other_is_shown(
    world: BrokerWorld, wrong: int
) -> None:
    parts = [(0, batch(1)), (1, batch(1))]
    parts[wrong] = (wrong, NO_BATCH)
    with pytest.raises(ConnectionRefused, match="magic"):
        world.send(*parts, acks=0)
    world.runtime.run()
    assert world.answers == []
    assert world.high_watermark(wrong) == 0
    assert world.high_watermark(1 - wrong) == 1


@pytest.mark.parametrize("acks", [1, -1])
def test_each_partition_has_its_own_result(world: BrokerWorld, acks: int) -> None:
    world.send((1, batch(2)), (0, NO_BATCH), (7, batch(1)), acks=acks)
    assert world.answers == []
    world.runtime.run()
    answered = world.produced()
    assert [(part.index, part.error_code, part.base_offset) for part in answered] == [
        (1, ErrorCode.NONE, 0),
        (0, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert world.high_watermark(0) == 0
    assert world.high_watermark(1) == 2


# --- waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_flushed_after_the_time_of_its_request_is_shown_to_readers(world: BrokerWorld, acks: int) -> None:
    world.send((0, batch(1)), acks=acks)
    world.runtime.expire()
    assert world.produced_codes() == [ErrorCode.REQUEST_TIMED_OUT]
    world.read((0, 0))
    assert world.answers == []
    world.runtime.run()
    assert [part.high_watermark for part in world.fetched()] == [1]
    assert world.answers == []


def test_a_partition_that_is_twice_in_a_request_is_waited_for_twice(tmp_path: Path) -> None:
    world = BrokerWorld(
        tmp_path, [topic("clicks"), replicas(on=[1, 2]), config("clicks", "flush.before.ack", "false")]
    )  # fmt: skip
    world.send((0, batch(1)), (0, batch(1)))
    log = world.replica().online_log()
    for offset in (1, 2):
        assert world.answers == []
        log.advance_high_watermark(offset)
        world.replica().notify()
    assert [(part.error_code, part.base_offset) for part in world.produced()] == [(0, 0), (0, 1)]
    assert world.replica().watcher_count == 0
