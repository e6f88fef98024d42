"""What listeners are told of the partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kraftpb.v1.metadata_pb2 import MetadataRecord, RemoveTopicRecord
from tests.kraftlog.broker.broker_world import BrokerWorld, replicas, topic
from tests.statemachine.builders import an_id

ALL = [1, 2]


def led(leader: int, epoch: int) -> Callable[[BrokerWorld], None]:
    return lambda world: world.commit(replicas(on=ALL, leader=leader, epoch=epoch))


def isr_shrinks(world: BrokerWorld) -> None:
    record = replicas(on=ALL, isr=[1], leader=1, epoch=0)
    record.partition.partition_epoch = 1
    world.commit(record)


def deleted(world: BrokerWorld) -> None:
    world.commit(MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=an_id(1))))
    world.runtime.run()


def made_again(world: BrokerWorld) -> None:
    deleted(world)
    world.commit(topic("clicks", 2), replicas(2, on=ALL))


def made_again_at_once(world: BrokerWorld) -> None:
    gone = MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=an_id(1)))
    world.commit(gone, topic("clicks", 2), replicas(2, on=ALL))
    world.runtime.run()


def reassigned(world: BrokerWorld) -> None:
    world.commit(replicas(on=[2], epoch=1))
    world.runtime.run()


def disk_is_lost(world: BrokerWorld) -> None:
    for directory in list(world.logs.online):
        directory.fail(OSError("gone"))
    for _ in range(2):
        world.partitions.check_logs()


def stopped(world: BrokerWorld) -> None:
    for _ in range(2):
        world.partitions.stop()


def shown_again(world: BrokerWorld) -> None:
    world.begin_anew()
    world.runtime.run()


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([], [(1, 0, True)]),
        ([isr_shrinks, shown_again], [(1, 0, True)]),
        ([led(2, 1)], [(1, 0, True), (1, 0, False)]),
        ([led(2, 1), led(2, 2)], [(1, 0, True), (1, 0, False)]),
        ([led(2, 1), led(1, 2)], [(1, 0, True), (1, 0, False), (1, 2, True)]),
        ([led(1, 1)], [(1, 0, True), (1, 0, False), (1, 1, True)]),
        ([deleted], [(1, 0, True), (1, 0, False)]),
        ([made_again], [(1, 0, True), (1, 0, False), (2, 0, True)]),
        ([made_again_at_once], [(1, 0, True), (1, 0, False), (2, 0, True)]),
        ([reassigned], [(1, 0, True), (1, 0, False)]),
        ([disk_is_lost], [(1, 0, True), (1, 0, False)]),
        ([stopped], [(1, 0, True), (1, 0, False)]),
    ],
)
def test_listeners_are_told_of_each_change_once(
    tmp_path: Path, events: list[Callable[[BrokerWorld], None]], told: list[tuple[int, int, bool]]
) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=ALL)])
    for event in events:
        event(world)
    assert world.leaderships == [("clicks-0", an_id(number), epoch, leads) for number, epoch, leads in told]
