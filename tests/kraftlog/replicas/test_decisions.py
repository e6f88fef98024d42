"""What partitions, their fetches, their followers and their ISRs tell an observer."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.partition import TopicPartition
from kraftlog.replicas.replication.leading import BELOW_HIGH_WATERMARK, NEVER_FETCHED
from kraftlog.telemetry.observer import (
    FetchEnd,
    IsrChangeAsked,
    IsrChanged,
    IsrChangeRefused,
    LeadershipBegun,
    LeadershipEnded,
    LeadershipRefused,
    LogStartedOver,
    LogTruncated,
    ReplicaStaysOut,
)
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic
from tests.kraftlog.replicas.partitions.test_followed import LeaderWorld
from tests.kraftlog.replicas.replication.cluster_world import BACKOFF_MS, A, B, led_by, two_brokers
from tests.kraftlog.replicas.replication.test_isr_changes import World
from tests.kraftlog.storage.builders import batch

CLICKS = TopicPartition("clicks", 0)


def test_a_leadership_begins_where_the_log_ends_once_for_each_epoch_and_ends(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.send((0, batch(3)), acks=1)
    world.runtime.run()
    world.commit(replicas(epoch=1))
    world.commit(replicas(on=[1, 2], leader=2, epoch=2))
    assert world.observer.decisions == [
        LeadershipBegun(CLICKS, 0, 0),
        LeadershipBegun(CLICKS, 1, 3),
        LeadershipEnded(CLICKS, 1),
    ]


def test_a_leader_without_a_log_is_refused_with_the_reason(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.logs.directories[0].fail(OSError("gone"))
    world.partitions.check_logs()
    world.observer.decisions.clear()
    world.commit(replicas(epoch=1))
    (refused,) = world.observer.decisions
    assert isinstance(refused, LeadershipRefused)
    assert (refused.partition, refused.leader_epoch) == (CLICKS, 1)
    assert "data is offline: gone" in refused.reason


def test_a_fetch_is_parked_and_completes_when_there_is_enough(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, (1, 2, 3))
    sent = batch(1)
    world.follow(2, 0)
    assert world.observer.fetches == [("parked", 2, 0, 1, 500)]
    world.send((0, sent))
    world.runtime.run()
    assert world.observer.fetches[1:] == [("completed", 2, len(sent), FetchEnd.ENOUGH)]


def test_a_fetch_that_is_not_parked_is_not_told(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.send((0, batch(1)), acks=1)
    world.runtime.run()
    world.read((0, 0))
    assert len(world.fetched()) == 1
    assert world.observer.fetches == []


def test_a_fetch_completes_as_its_time_is_over_its_client_is_gone_or_its_partition_has_changed(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2])])
    for _ in range(3):
        world.read((0, 0), version=18, leader_epoch=0)
    (first, second, _) = world.on_client_done
    first()
    first()  # it is told once
    assert world.observer.fetches[3:] == [("completed", -1, 0, FetchEnd.TIME_OR_CLIENT)]
    world.runtime.timers[1].callback()
    world.commit(replicas(on=[1, 2], leader=2, epoch=1))
    second()
    assert [event[-1] for event in world.observer.fetches[4:]] == [
        FetchEnd.TIME_OR_CLIENT, FetchEnd.PARTITION_CHANGED,
    ]  # fmt: skip


def test_a_replica_stays_out_of_the_isr_with_the_reasons_that_describe_replicas_has(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, (1, 2), flushes=False)
    world.send((0, batch(4)))
    world.follow(2, 4)
    world.observer.decisions.clear()
    world.follow(3, 1)
    (decision,) = world.observer.decisions
    assert isinstance(decision, ReplicaStaysOut)
    assert (decision.partition, decision.replica) == (CLICKS, 3)
    assert BELOW_HIGH_WATERMARK in decision.reasons
    assert NEVER_FETCHED not in decision.reasons
    world.observer.wants_details = False
    world.follow(3, 2)
    world.follow(2, 4)
    assert world.observer.decisions == [decision]
    world.follow(3, 4)
    assert world.asked == [(1, 2, 3)]


@pytest.mark.parametrize(
    ("wanted", "code", "told"),
    [
        ((1, 2), ErrorCode.NONE, IsrChanged("t-0", (1, 2, 3), (1, 2))),
        ((1, 2), ErrorCode.INELIGIBLE_REPLICA, IsrChangeRefused("t-0", (1, 2), "INELIGIBLE_REPLICA", "")),
    ],
)
def test_a_change_of_an_isr_is_asked_for_and_made_or_refused(
    wanted: tuple[int, ...], code: ErrorCode, told: IsrChanged | IsrChangeRefused
) -> None:
    world = World()
    world.changes.ask(world.led(), wanted)
    world.controller.answer(code)
    asked, answered = world.observer.decisions
    assert isinstance(asked, IsrChangeAsked)
    assert (asked.isr, asked.wanted) == ((1, 2, 3), wanted)
    assert type(answered) is type(told)
    if isinstance(answered, IsrChanged) and isinstance(told, IsrChanged):
        assert (answered.isr, answered.changed) == (told.isr, told.changed)
    elif isinstance(answered, IsrChangeRefused) and isinstance(told, IsrChangeRefused):
        assert (answered.wanted, answered.error) == (told.wanted, told.error)


def test_a_log_is_cut_from_and_to_an_offset(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append(b"both have it")
    cluster.settle()
    cluster.cut(B, A)
    cluster[A].append(b"A alone has it")
    cluster[A].kill()
    cluster.commit(led_by(B, 1))
    cluster[B].append(b"B has this instead")
    cluster[A].start()
    cluster.settle()
    (cut,) = cluster[A].observer.of(LogTruncated)
    assert isinstance(cut, LogTruncated)
    assert (cut.leader_epoch, cut.from_offset, cut.to_offset, cut.is_unclean) == (1, 2, 1, False)
    assert cut.reason
    assert cluster[B].observer.of(LogTruncated) == []


def test_a_log_starts_over_where_the_leaders_begins(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.cut(B, A)
    for _ in range(3):
        cluster[A].append(count=4)
    log = cluster[A].log()
    log.advance_high_watermark(12)
    log.delete_records(8)
    cluster.mend()
    cluster.settle(3 * BACKOFF_MS)
    (started,) = cluster[B].observer.of(LogStartedOver)
    assert isinstance(started, LogStartedOver)
    assert (started.from_offset, started.to_offset) == (0, 8)


def test_registrations_are_no_business_of_partitions(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [registration(1), topic("clicks"), replicas()])
    world.observer.decisions.clear()
    world.commit(registration(2))
    assert world.observer.decisions == []
