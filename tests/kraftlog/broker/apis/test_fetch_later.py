"""Fetch of partitions whose records come later than others' (DB-119), through the handler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.broker.apis import fetch as fetch_module
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kraftlog.network.requests import ClientRequest, Reply
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic
from tests.kraftlog.replicas.partitions.later import FAILED, Later, TieredReader, with_later_reads
from tests.kraftlog.storage.builders import batch
from tests.statemachine.builders import an_id, remove_topic

REMOTE = batch(2, value=b"remote")
NOTHING = (ErrorCode.NONE, b"")


@pytest.fixture(params=[256, 1], ids=["at once", "in slices"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerWorld:
    """With partitions 0 to 2, and a committed batch in each."""
    monkeypatch.setattr(fetch_module, "FEW_PARTITIONS", request.param)
    world = BrokerWorld(tmp_path, [topic("clicks"), registration(2), *(replicas(index=index) for index in range(3))])
    for index in range(3):
        world.send((index, batch(2)))
        world.runtime.run()
    world.answers.clear()
    world.observer.fetches.clear()
    return world


def tiered(world: BrokerWorld, *indexes: int, make: Callable[[], Later] = Later) -> list[TieredReader]:
    return [with_later_reads(world.replica(index), make=make) for index in indexes]


def summary(parts: list[PartitionData]) -> list[tuple[int, bytes]]:
    return [(part.error_code, bytes(part.records or b"")) for part in parts]


def local(world: BrokerWorld, index: int) -> tuple[int, bytes]:
    log = world.replica(index).online_log()
    return (ErrorCode.NONE, log.reader.read(0, 1_000_000, log.log_end_offset))


def begun(source: TieredReader) -> Later:
    """The only read that was begun."""
    (read,) = [one for one in source.reads if one.is_started]
    return read


def test_db119_a_fetch_waits_for_what_comes_later_and_keeps_what_it_has_read(world: BrokerWorld) -> None:
    first, second = tiered(world, 0, 1)
    (on_disk,) = [with_later_reads(world.replica(2), local_start=0)]
    expected = local(world, 2)
    world.read((0, 0), (1, 0), (2, 0))
    assert world.answers == []
    assert on_disk.slices_read == 1
    begun(second).finish(FAILED)
    assert world.answers == []
    begun(first).finish(REMOTE)
    assert summary(world.fetched()) == [(ErrorCode.NONE, REMOTE), (ErrorCode.KAFKA_STORAGE_ERROR, b""), expected]
    assert on_disk.slices_read == 1, "read once"
    assert all(timer.is_cancelled for timer in world.runtime.timers)
    assert [world.replica(index).watcher_count for index in range(3)] == [0, 0, 0]


def test_db119_it_waits_though_there_are_enough_bytes(world: BrokerWorld) -> None:
    (source,) = tiered(world, 1)
    expected = local(world, 0)
    world.read((0, 0), (1, 0), min_bytes=0)
    assert world.answers == []
    begun(source).finish(REMOTE)
    assert summary(world.fetched()) == [expected, (ErrorCode.NONE, REMOTE)]


def test_db119_an_error_of_another_partition_does_not_end_the_wait(world: BrokerWorld) -> None:
    (source,) = tiered(world, 1)
    world.read((0, 99), (1, 0), (7, 0))
    assert world.answers == []
    begun(source).finish(REMOTE)
    assert summary(world.fetched()) == [
        (ErrorCode.OFFSET_OUT_OF_RANGE, b""), (ErrorCode.NONE, REMOTE), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b""),
    ]  # fmt: skip


def test_db119_reads_that_have_their_records_at_once_are_answered_at_once(world: BrokerWorld) -> None:
    tiered(world, 0, make=lambda: Later(at_start=FAILED))
    world.read((0, 0), (1, 0))
    assert summary(world.fetched()) == [(ErrorCode.KAFKA_STORAGE_ERROR, b""), local(world, 1)]
    assert world.replica(0).watcher_count == 0


def test_db119_what_may_come_later_counts_in_the_request_limit(world: BrokerWorld) -> None:
    (source,) = tiered(world, 0)
    size = len(local(world, 1)[1])
    world.read((0, 0), (1, 0), max_bytes=50 + size - 1)
    begun(source).finish(REMOTE)
    assert summary(world.fetched()) == [(ErrorCode.NONE, REMOTE), NOTHING]


@pytest.mark.parametrize("by_client", [False, True])
def test_db119_a_client_that_is_gone_or_waits_too_long_cancels_the_reads(world: BrokerWorld, by_client: bool) -> None:
    (source,) = tiered(world, 0)
    expected = local(world, 1)
    world.read((0, 0), (1, 0))
    if by_client:
        world.client_goes()
    else:
        world.runtime.expire()
    assert begun(source).is_cancelled
    assert summary(world.fetched()) == [NOTHING, expected]
    begun(source).finish(REMOTE)
    assert world.answers == []
    assert world.replica(0).watcher_count == 0


def test_db119_a_deleted_partition_ends_the_wait_and_has_its_error(world: BrokerWorld) -> None:
    first, second = tiered(world, 0, 1)
    world.read((0, 0), (1, 0))
    world.commit(remove_topic(1))
    assert begun(first).is_cancelled
    assert begun(second).is_cancelled
    codes = [code for code, _ in summary(world.fetched())]
    assert sorted(codes) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_db119_another_leader_ends_the_wait(world: BrokerWorld) -> None:
    (source,) = tiered(world, 0)
    world.read((0, 0), (1, 0), leader_epoch=0)
    world.commit(replicas(on=[1, 2], leader=2, epoch=1))
    assert begun(source).is_cancelled
    assert [code for code, _ in summary(world.fetched())] == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE]


def test_db119_a_follower_reads_nothing_later(world: BrokerWorld) -> None:
    world.commit(replicas(on=[1, 2], isr=[1], epoch=1))
    (source,) = tiered(world, 0)
    world.read((0, 0), follower=2, broker_epoch=2)
    assert summary(world.fetched()) == [(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, b"")]
    assert not any(read.is_started for read in source.reads)


def test_db119_what_comes_later_only_when_the_wait_for_bytes_is_over_is_left_to_the_next_fetch(
    world: BrokerWorld,
) -> None:
    world.read((0, 2))
    assert world.answers == []
    (source,) = tiered(world, 0)
    world.replica(0).notify()
    assert summary(world.fetched()) == [NOTHING]
    world.read((0, 2))
    begun(source).finish(REMOTE)
    assert summary(world.fetched()) == [(ErrorCode.NONE, REMOTE)]


def test_db119_others_that_want_the_memory_end_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "FEW_PARTITIONS", 0)
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    (source,) = tiered(world, 0)
    world.send((0, batch(1)))
    world.runtime.run()
    world.answers.clear()
    requests: list[ClientRequest] = []

    def handle(request: ClientRequest, reply: Reply) -> None:
        requests.append(request)
        world.fetch.handle(request, reply)

    asked = FetchTopic(topic_id=an_id(1), partitions=(FetchPartition(partition=0, partition_max_bytes=1_000),))
    world.ask(handle, FetchRequest(topics=(asked,), max_bytes=1_000, max_wait_ms=0), 17)
    for told in requests[0].on_memory_wanted:
        told()
    assert begun(source).is_cancelled
    assert summary(world.fetched()) == [NOTHING]
