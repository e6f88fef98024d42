"""Where consumers are sent (KIP-392), and what throttled followers get of a leader (KIP-73): DB-67."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.broker.apis.fetch import FetchApi
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kraftlog.replicas.partitions.leader_throttle import LeaderThrottle
from kraftlog.replicas.partitions.replica_choice import RackAwareChoice
from kraftpb.v1.metadata_pb2 import MetadataRecord
from tests.kraftlog.broker.broker_world import ME, registration
from tests.kraftlog.replicas.partitions.test_followed import LeaderWorld
from tests.kraftlog.storage.builders import batch
from tests.statemachine.builders import an_id, config

SIZE = len(batch(1))


def in_rack(broker_id: int, rack: str, *, fenced: bool = False) -> MetadataRecord:
    record = registration(broker_id, fenced=fenced)
    record.register_broker.rack = rack
    return record


class RackWorld(LeaderWorld):
    """Broker 1 is in rack "a", broker 2 in "b", broker 3 in "b" and out of the ISR."""

    def __init__(self, directory: Path, isr: tuple[int, ...] = (1, 2)) -> None:
        super().__init__(directory, isr, flushes=False)
        self.commit(in_rack(1, "a"), in_rack(2, "b"), in_rack(3, "b"))
        choice, throttle = RackAwareChoice(ME, self.cluster), LeaderThrottle(self.configs, self.runtime.now_ms)
        self.fetch = FetchApi(replace(self.services, choice=choice, throttle=throttle))

    def consume(self, offset: int, rack: str, leader_epoch: int = -1) -> PartitionData:
        """The answer to a consumer in a rack; one that would wait has waited."""
        asked = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1_000, current_leader_epoch=leader_epoch
        )
        topics = (FetchTopic(topic="clicks", topic_id=an_id(1), partitions=(asked,)),)
        self.ask(self.fetch.handle, FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics, rack_id=rack), 18)
        if not self.answers:
            self.runtime.expire()
        (part,) = self.fetched()
        return part


@pytest.fixture
def world(tmp_path: Path) -> RackWorld:
    world = RackWorld(tmp_path)
    for _ in range(2):
        world.send((0, batch(1)))
    world.follow(3, 2)
    world.follow(2, 2)
    world.runtime.run()
    world.answers.clear()
    world.asked.clear()
    return world


def test_a_consumer_is_sent_to_the_replica_of_its_rack_that_is_in_sync(world: RackWorld) -> None:
    part = world.consume(1, "b")
    assert (part.preferred_read_replica, part.error_code, bytes(part.records or b"")) == (2, ErrorCode.NONE, b"")
    assert part.high_watermark == 2


@pytest.mark.parametrize(("rack", "offset"), [("a", 1), ("", 1), ("c", 1), ("b", 3)])
def test_the_leader_answers_itself_if_nobody_is_nearer_or_has_the_offset(
    world: RackWorld, rack: str, offset: int
) -> None:
    assert world.consume(offset, rack).preferred_read_replica == -1


def test_nobody_is_sent_to_a_fenced_broker_or_with_an_epoch_that_is_over(world: RackWorld) -> None:
    assert world.consume(1, "b", leader_epoch=7).preferred_read_replica == -1
    world.commit(in_rack(2, "b", fenced=True))
    part = world.consume(1, "b")
    assert (part.preferred_read_replica, len(part.records or b"")) == (-1, SIZE)


# --- throttled --------------------------------------------------------------------------------------------------------


def throttled(replicas: str, rate: int) -> Sequence[MetadataRecord]:
    rates = config(str(ME), "leader.replication.throttled.rate", str(rate))
    rates.config.resource_type = 4
    return [config("clicks", "leader.replication.throttled.replicas", replicas), rates]


def sent(world: RackWorld, follower: int) -> int:
    """How many bytes a follower that has nothing is sent, at once or after its time."""
    world.answers.clear()
    world.follow(follower, 0)
    if not world.answers:
        world.runtime.expire()
    ((_, byte_count),) = world.follower_got()
    return byte_count


@pytest.mark.parametrize("listed", ["0:1", "*"])
def test_db67_over_the_rate_who_is_not_in_sync_gets_nothing_and_who_is_gets_all(tmp_path: Path, listed: str) -> None:
    world = RackWorld(tmp_path)
    world.commit(*throttled(listed, 5))
    world.send((0, batch(1)), acks=1)
    assert sent(world, 3) == SIZE
    assert (sent(world, 3), sent(world, 2)) == (0, SIZE)
    world.runtime.clock_ms += 60_000
    assert sent(world, 3) == SIZE


@pytest.mark.parametrize(("listed", "rate"), [("0:2,1:1", 5), ("0:1", 2**63 - 1), ("", 5)])
def test_who_is_not_listed_or_has_no_limit_is_not_throttled(tmp_path: Path, listed: str, rate: int) -> None:
    world = RackWorld(tmp_path)
    world.commit(*throttled(listed, rate))
    world.send((0, batch(1)), acks=1)
    assert [sent(world, 3) for _ in range(3)] == [SIZE] * 3
