"""Every answer can be written in every version, with and without errors: what one lacks a handler must not set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kraftlog.broker.apis.coordinators import FindCoordinatorApi
from kraftlog.broker.apis.delete_records import DeleteRecordsApi
from kraftlog.broker.apis.logs import DescribeLogDirsApi
from kraftlog.broker.apis.services import DiskSpace
from kraftlog.kafka.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kraftlog.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftlog.kafka.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kraftlog.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import Handler
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic
from tests.kraftlog.storage.builders import batch

LED, FOLLOWED, UNKNOWN = range(3)


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """A broker that leads one partition with a record, and follows in another."""
    world = BrokerWorld(
        tmp_path, [registration(1), registration(2), topic("clicks"), replicas(epoch=3)],
        [replicas(index=FOLLOWED, on=[1, 2], leader=2, epoch=5)],
    )  # fmt: skip
    world.send((LED, batch(1)))
    world.runtime.run()
    world.answers.clear()
    return world


def delete_records(world: BrokerWorld, index: int, version: int) -> tuple[Handler, Message]:
    part = DeleteRecordsPartition(partition_index=index, offset=0)
    topics = (DeleteRecordsTopic(name="clicks", partitions=(part,)),)
    return DeleteRecordsApi(world.services).handle, DeleteRecordsRequest(topics=topics, timeout_ms=1)


def describe_log_dirs(world: BrokerWorld, index: int, version: int) -> tuple[Handler, Message]:
    handler = DescribeLogDirsApi(replace(world.services, disk_space=lambda path: DiskSpace(2, 1))).handle
    return handler, DescribeLogDirsRequest(topics=None)


def find_coordinator(world: BrokerWorld, index: int, version: int) -> tuple[Handler, Message]:
    body = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=("g", "h"))
    return FindCoordinatorApi(world.services).handle, body


def list_offsets(world: BrokerWorld, index: int, version: int) -> tuple[Handler, Message]:
    part = ListOffsetsPartition(partition_index=index, timestamp=-1)
    body = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="clicks", partitions=(part,)),))
    return world.list_offsets.handle, body


def epoch_ends(world: BrokerWorld, index: int, version: int) -> tuple[Handler, Message]:
    part = OffsetForLeaderPartition(partition=index, leader_epoch=3)
    body = OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic="clicks", partitions=(part,)),))
    return world.epoch_ends.handle, body


Asked = Callable[[BrokerWorld, int, int], tuple[Handler, Message]]
REQUESTS: list[tuple[type[Message], Asked]] = [
    (DeleteRecordsRequest, delete_records),
    (DescribeLogDirsRequest, describe_log_dirs),
    (FindCoordinatorRequest, find_coordinator),
    (ListOffsetsRequest, list_offsets),
    (OffsetForLeaderEpochRequest, epoch_ends),
]


@pytest.mark.parametrize("index", [LED, FOLLOWED, UNKNOWN])
@pytest.mark.parametrize(
    ("version", "asked"), [(version, asked) for kind, asked in REQUESTS for version in kind.VERSIONS]
)
def test_an_answer_is_written_in_every_version(world: BrokerWorld, version: int, asked: Asked, index: int) -> None:
    handler, body = asked(world, index, version)
    world.ask(handler, body, version)
    assert len(world.answers) == 1


@pytest.mark.parametrize("index", [LED, FOLLOWED, UNKNOWN])
@pytest.mark.parametrize("version", range(3, 14))
def test_produce_is_answered_in_every_version(world: BrokerWorld, version: int, index: int) -> None:
    world.send((index, batch(1)), version=version, acks=1)
    world.runtime.run()
    assert len(world.produced()) == 1


@pytest.mark.parametrize("index", [LED, FOLLOWED, UNKNOWN])
@pytest.mark.parametrize("offset", [0, 9])
@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_is_answered_in_every_version(world: BrokerWorld, version: int, offset: int, index: int) -> None:
    for isolation in (0, 1):
        world.read((index, offset), version=version, isolation=isolation)
        if not world.answers:  # a consumer may read from a follower, and waits there as at the leader
            assert version >= 11
            assert (index, offset) == (FOLLOWED, 0)
            world.runtime.expire()
        assert len(world.fetched()) == 1
