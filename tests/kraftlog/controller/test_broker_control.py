"""Brokers register, fall silent and leave, and their partitions change with them: through the controller (CT-30, CT-31,
CT-35)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftlog.controller.controller_config import ControllerConfig
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import PartitionRecord, RegisterBrokerRecord
from statemachine.tables.cluster_tables import BROKERS, FEATURES
from statemachine.tables.topic_tables import PARTITIONS
from tests.statemachine.builders import alive, assigned, creatable, create, heartbeat, register
from tests.statemachine.conftest import Bench, errors, memory_bench
from tests.statemachine.hand_time import HandTime
from tests.statemachine.waiting import until

SESSION_MS = 300


@pytest_asyncio.fixture
async def time(database: Path) -> HandTime:
    return HandTime()


@pytest_asyncio.fixture
async def by_hand(database: Path, time: HandTime) -> AsyncIterator[Bench]:
    """An active controller whose time the test moves."""
    config = ControllerConfig(broker_session_timeout_ms=SESSION_MS)
    async with memory_bench(database, config=config, runtime=time) as bench:
        bench.log.lead()
        await bench.lead()
        yield bench


def brokers(bench: Bench) -> dict[int, RegisterBrokerRecord]:
    return {record.broker_id: record for _, record in BROKERS.find(bench.store.reader)}


def partitions(bench: Bench) -> list[PartitionRecord]:
    return [record for _, record in PARTITIONS.find(bench.store.reader)]


def beat(bench: Bench, broker_id: int, *, shut_down: bool = False, fence: bool = False) -> admin_pb2.Operation:
    epoch = brokers(bench)[broker_id].broker_epoch
    request = heartbeat(broker_id, epoch, bench.store.applied_end_offset, want_shut_down=shut_down, want_fence=fence)
    return admin_pb2.Operation(broker_heartbeat=request)


async def with_topic(bench: Bench, replicas: dict[int, list[int]]) -> None:
    await bench.with_brokers(*sorted({broker_id for given in replicas.values() for broker_id in given}))
    await bench.done(create(assigned("clicks", replicas)))


async def test_ct14_a_new_cluster_begins_with_its_feature_levels(bench: Bench) -> None:
    """CT-14."""
    levels = {record.name: record.level for _, record in FEATURES.find(bench.store.reader)}
    assert levels == {"metadata.version": 30, "eligible.leader.replicas.version": 1}


async def test_a_broker_is_fenced_until_it_has_applied_its_registration(bench: Bench) -> None:
    registered = (await bench.done(register(1))).register_broker
    assert brokers(bench)[1].fenced
    refused = await bench.run(create(creatable("clicks")))
    assert errors(refused) == [ErrorCode.INVALID_REPLICATION_FACTOR]
    behind = admin_pb2.Operation(broker_heartbeat=heartbeat(1, registered.broker_epoch, registered.broker_epoch))
    assert (await bench.done(behind)).broker_heartbeat.is_fenced
    level = await bench.done(alive(1, registered.broker_epoch))
    assert not level.broker_heartbeat.is_fenced
    assert not brokers(bench)[1].fenced
    await bench.done(create(creatable("clicks")))


async def test_ct30_a_heartbeat_that_changes_nothing_writes_nothing(bench: Bench) -> None:
    await bench.with_brokers(1)
    end_offset = bench.log.log_end_offset
    for _ in range(3):
        assert (await bench.done(beat(bench, 1))).end_offset == -1
    assert bench.log.log_end_offset == end_offset


async def test_ct30_who_is_silent_is_fenced_and_its_partitions_get_other_leaders(
    by_hand: Bench, time: HandTime
) -> None:
    await with_topic(by_hand, {0: [1, 2, 3], 1: [2, 3, 1], 2: [1, 3, 2]})
    for _ in range(2):
        assert not brokers(by_hand)[1].fenced
        for broker_id in (2, 3):
            await by_hand.run(beat(by_hand, broker_id))
        time.advance(SESSION_MS * 2 / 3)
    await until(lambda: all(1 not in partition.isr for partition in partitions(by_hand)))
    assert [broker_id for broker_id, broker in brokers(by_hand).items() if broker.fenced] == [1]
    assert [partition.leader for partition in partitions(by_hand)] == [2, 2, 3]
    assert [list(partition.isr) for partition in partitions(by_hand)] == [[2, 3], [2, 3], [3, 2]]
    assert [partition.leader_epoch for partition in partitions(by_hand)] == [1, 0, 1]


async def test_ct31_the_last_one_leaves_no_leader_and_leads_again_when_it_is_back(bench: Bench) -> None:
    await with_topic(bench, {0: [1]})
    assert (await bench.done(beat(bench, 1, fence=True))).broker_heartbeat.is_fenced
    (partition,) = partitions(bench)
    assert partition.leader == -1
    await bench.done(beat(bench, 1))
    await until(lambda: partitions(bench)[0].leader == 1)
    assert list(partitions(bench)[0].isr) == [1]


async def test_ct31_a_controlled_shutdown_moves_leaders_before_the_broker_may_go(bench: Bench) -> None:
    await with_topic(bench, {0: [1, 2], 1: [2, 1]})
    first = (await bench.done(beat(bench, 1, shut_down=True))).broker_heartbeat
    assert not first.should_shut_down
    assert brokers(bench)[1].in_controlled_shutdown
    await until(lambda: [partition.leader for partition in partitions(bench)] == [2, 2])
    await bench.done(beat(bench, 2))
    last = (await bench.done(beat(bench, 1, shut_down=True))).broker_heartbeat
    assert last.should_shut_down
    await until(lambda: brokers(bench)[1].fenced)


async def test_an_operators_fence_lasts_until_the_next_heartbeat(bench: Bench) -> None:
    await with_topic(bench, {0: [1, 2]})
    await bench.done(admin_pb2.Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=1)))
    assert brokers(bench)[1].fenced
    assert partitions(bench)[0].leader == 2
    await bench.done(beat(bench, 1))
    assert not brokers(bench)[1].fenced


async def test_who_is_unregistered_is_in_no_isr_and_gone(bench: Bench) -> None:
    await with_topic(bench, {0: [1, 2], 1: [2, 1]})
    await bench.done(admin_pb2.Operation(unregister_broker=admin_pb2.UnregisterBrokerRequest(broker_id=1)))
    assert list(brokers(bench)) == [2]
    assert all(1 not in partition.isr and partition.leader == 2 for partition in partitions(bench))
    again = await bench.run(admin_pb2.Operation(unregister_broker=admin_pb2.UnregisterBrokerRequest(broker_id=1)))
    assert errors(again) == [ErrorCode.BROKER_ID_NOT_REGISTERED]


async def test_a_live_broker_keeps_others_from_registering_under_its_id(bench: Bench) -> None:
    await bench.with_brokers(1)
    refused = await bench.run(register(1, incarnation=77))
    assert errors(refused) == [ErrorCode.DUPLICATE_BROKER_REGISTRATION]


async def test_another_incarnation_has_left_every_isr_and_may_have_lost_what_it_had(bench: Bench) -> None:
    await with_topic(bench, {0: [1, 2]})
    await bench.done(admin_pb2.Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=1)))
    await bench.done(register(1, incarnation=77))
    assert brokers(bench)[1].unclean_shutdown
    (partition,) = partitions(bench)
    assert 1 not in [*partition.isr, *partition.eligible_leader_replicas, *partition.last_known_elr]
    await bench.done(beat(bench, 1))
    assert not brokers(bench)[1].unclean_shutdown


async def test_a_controller_that_takes_over_finishes_a_departure(bench: Bench) -> None:
    await with_topic(bench, {0: [1, 2], 1: [2, 1]})
    await bench.done(admin_pb2.Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=1)))
    # As if the previous controller had died right after the fence: the partitions are as they were.
    bench.store._tables.connection.execute("UPDATE partitions SET leader = 1, isr = '[1, 2]' WHERE partition_id = 0")
    bench.log.lose_leadership()
    await until(lambda: not bench.controller.is_active)
    bench.log.lead()
    await bench.lead()
    await until(lambda: partitions(bench)[0].leader == 2)
    assert list(partitions(bench)[0].isr) == [2]


async def test_a_departure_of_many_partitions_comes_in_pages(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.controller.rules.pages.PAGE_PARTITIONS", 3)
    await with_topic(bench, {partition_id: [1, 2] for partition_id in range(10)})
    batches = len(bench.log.batches)
    await bench.done(admin_pb2.Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=1)))
    assert [(partition.leader, list(partition.isr)) for partition in partitions(bench)] == [(2, [2])] * 10
    assert len(bench.log.batches) - batches >= 5  # the fence, and four pages
