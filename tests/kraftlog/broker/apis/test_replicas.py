"""DescribeReplicas: what a leader says of the replicas of its partitions, over the wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.broker.apis.replicas import DISK_FULL, DescribeReplicasApi
from kraftlog.kafka.messages.describe_replicas import (
    DescribedPartition,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    DescribeReplicasTopic,
)
from kraftlog.replicas.replication.leading import FENCED, NEVER_FETCHED
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic
from tests.kraftlog.storage.builders import batch
from tests.statemachine.builders import an_id


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """A broker that leads `clicks` 0 and 2 and `views` 0, and follows in `clicks` 1. Broker 3 is fenced."""
    return BrokerWorld(
        tmp_path,
        [
            *(registration(1), registration(2), registration(3, fenced=True)),
            *(topic("views", 2), topic("clicks"), replicas(index=2), replicas(2)),
            replicas(on=[1, 2, 3], isr=[1, 2], epoch=4),
            replicas(index=1, on=[2, 1], leader=2, epoch=5),
        ],
    )


def described(world: BrokerWorld, *asked: tuple[str, int]) -> dict[tuple[str, int], DescribedPartition]:
    """By topic and number, in the order of the answer; of all that is led here if nothing is asked for."""
    topics = tuple(DescribeReplicasTopic(name=name, partition_indexes=(index,)) for name, index in asked)
    api = DescribeReplicasApi(world.services)
    body = DescribeReplicasRequest(topics=topics or None)
    answer = world.answer_to(api.handle, body, 0, DescribeReplicasResponse)
    return {(of.name, partition.partition_index): partition for of in answer.topics for partition in of.partitions}


def test_a_leader_says_how_far_each_replica_is_and_why_one_is_not_in_sync(world: BrokerWorld) -> None:
    world.send((0, batch(4)), acks=1)
    world.runtime.run()
    partition = described(world, ("clicks", 0))["clicks", 0]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (ErrorCode.NONE, 1, 4)
    assert (partition.high_watermark, partition.log_end_offset) == (0, 4)
    leader, in_sync, out = partition.replicas
    assert (leader.broker_id, leader.log_start_offset, leader.log_end_offset, leader.lag_ms) == (1, 0, 4, 0)
    assert (leader.is_in_sync, leader.is_pending, leader.reasons) == (True, False, ())
    assert (in_sync.broker_id, in_sync.log_end_offset, in_sync.is_in_sync, in_sync.reasons) == (2, -1, True, ())
    assert (out.broker_id, out.log_end_offset, out.lag_ms, out.is_in_sync) == (3, -1, -1, False)
    assert out.reasons[:2] == (NEVER_FETCHED, FENCED)


def test_null_asks_for_all_that_is_led_in_order(world: BrokerWorld) -> None:
    assert list(described(world)) == [("clicks", 0), ("clicks", 2), ("views", 0)]


def test_a_partition_that_is_not_led_here_or_has_no_log_is_an_error(world: BrokerWorld) -> None:
    found = described(world, ("clicks", 1), ("clicks", 9), ("none", 0))
    assert [(of.error_code, of.leader_id, of.replicas) for of in found.values()] == [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, ()),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, ()),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, ()),
    ]
    world.files.failing_syncs |= {"data/clicks-0/" + name for name in world.files.list_directory("data/clicks-0")}
    world.send((0, batch(1)))
    world.runtime.run()
    world.partitions.check_logs()
    offline = described(world)["clicks", 0]
    assert (offline.error_code, offline.leader_id) == (ErrorCode.KAFKA_STORAGE_ERROR, 1)


def test_ct66_a_replica_on_a_disk_without_room_says_so_in_sync_or_not(world: BrokerWorld) -> None:
    for broker_id in (1, 3):
        full = registration(broker_id)
        full.register_broker.log_dirs.append(an_id(900 + broker_id))
        full.register_broker.full_log_dirs.append(an_id(900 + broker_id))
        world.cluster.brokers[broker_id] = full.register_broker
    leader, in_sync, out = described(world, ("clicks", 0))["clicks", 0].replicas
    assert (leader.is_in_sync, leader.reasons) == (True, (DISK_FULL,))
    assert in_sync.reasons == ()
    assert out.reasons[-1] == DISK_FULL
