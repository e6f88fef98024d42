"""A lower min.insync.replicas, and the eligible replicas that it ends (KIP-966, CT-56)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.controller import config_updates
from kraftlog.controller.rules.pages import PAGE_PARTITIONS
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import PartitionRecord
from tests.kraftlog.controller.lives import (
    appended_records,
    beat,
    brokers,
    fence,
    pages_held,
    partitions,
    quiet,
    with_topic,
)
from tests.statemachine.builders import BROKER, alter, alteration, assigned, create, delete
from tests.statemachine.conftest import Bench, errors

MIN_ISR = "min.insync.replicas"
MANY = 2 * PAGE_PARTITIONS + 50


def eligible(bench: Bench) -> list[PartitionRecord]:
    return [partition for partition in partitions(bench) if partition.eligible_leader_replicas]


async def with_eligible(bench: Bench, count: int = 1) -> None:
    """Broker 2 leads alone, 1 is eligible: the cluster wants two in sync."""
    await with_topic(bench, {partition_id: [1, 2] for partition_id in range(count)}, min_isr=2)
    await bench.done(fence(1))
    await quiet(bench)
    assert len(eligible(bench)) == count


@pytest.mark.parametrize(
    "alterations",
    [
        [alteration("clicks", MIN_ISR, "3")],
        [alteration("clicks", MIN_ISR, "2")],
        [alteration("clicks", MIN_ISR, None)],
        [alteration("", MIN_ISR, "3", BROKER)],
        [alteration("", MIN_ISR, "2", BROKER)],
        [alteration("1", MIN_ISR, None, BROKER)],
        [alteration("clicks", MIN_ISR, "2"), alteration("", MIN_ISR, "3", BROKER)],
    ],
    ids=["raised", "set as it is", "not set", "default raised", "default as it is", "a broker's own", "both"],
)
async def test_ct56_the_eligible_stay_while_the_value_is_no_lower(
    bench: Bench, alterations: list[admin_pb2.ConfigAlteration]
) -> None:
    await with_eligible(bench)
    await bench.done(alter(*alterations))
    assert [list(partition.eligible_leader_replicas) for partition in partitions(bench)] == [[1]]


async def test_ct56_a_lower_default_is_for_topics_without_a_value_of_their_own(bench: Bench) -> None:
    await with_eligible(bench)
    await bench.done(alter(alteration("clicks", MIN_ISR, "2")))
    await bench.done(alter(alteration("", MIN_ISR, "1", BROKER)))
    assert len(eligible(bench)) == 1
    await bench.done(alter(alteration("clicks", MIN_ISR, None)))
    assert eligible(bench) == []


async def test_ct56_a_topics_own_lower_value_is_for_that_topic(bench: Bench) -> None:
    await with_eligible(bench)
    await bench.done(create(assigned("other", {0: [2, 1]})))
    await bench.done(alter(alteration("other", MIN_ISR, "1")))
    assert len(eligible(bench)) == 1
    await bench.done(alter(alteration("clicks", MIN_ISR, "1")))
    assert eligible(bench) == []


@pytest.mark.parametrize("lowered", [("", BROKER), ("clicks",)], ids=["default", "topic"])
async def test_ct12_many_are_forgotten_in_pages_and_the_value_is_lowered_with_the_last(
    bench: Bench, lowered: tuple[str, ...]
) -> None:
    await with_eligible(bench, MANY)
    since = bench.log.next_append_offset
    await bench.done(alter(alteration(lowered[0], MIN_ISR, "1", *lowered[1:])))
    assert eligible(bench) == []
    batches = [batch for batch in bench.log.batches if batch.base_offset >= since]
    assert [batch.record_count for batch in batches] == [PAGE_PARTITIONS, PAGE_PARTITIONS, 51]
    assert appended_records(bench, since=since)[-1].config.value == "1"


async def test_ct56_who_becomes_eligible_behind_the_pages_is_forgotten_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_topic(
        bench, {partition_id: [1, 2] if partition_id else [3, 2] for partition_id in range(MANY)}, min_isr=2
    )
    await bench.done(fence(1))
    await quiet(bench)
    assert len(eligible(bench)) == MANY - 1
    with pages_held(monkeypatch):
        results = await bench.submit(alter(alteration("", MIN_ISR, "1", BROKER)))
        bench.controller._paged_writes.next_page()
        passed = partitions(bench)[0]
        await bench.submit(out_of_the_isr(bench, passed))
        altered = bench.controller.state.partition(passed.topic_id, 0)
        assert altered is not None
        assert list(altered.eligible_leader_replicas) == [2]
        assert results == []
    await bench.answered(results)
    await quiet(bench)
    assert errors(results[0]) == []
    assert eligible(bench) == []


def out_of_the_isr(bench: Bench, partition: PartitionRecord) -> admin_pb2.Operation:
    """The leader continues alone."""
    altered = admin_pb2.AlteredPartition(
        topic_id=partition.topic_id,
        partition_id=partition.partition_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr=[admin_pb2.IsrMember(broker_id=partition.leader, broker_epoch=-1)],
    )
    request = admin_pb2.AlterPartitionRequest(
        broker_id=partition.leader, broker_epoch=brokers(bench)[partition.leader].broker_epoch, partitions=[altered]
    )
    return admin_pb2.Operation(alter_partition=request)


async def test_the_answer_is_that_of_the_time_when_the_value_is_lowered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_eligible(bench, MANY)
    with pages_held(monkeypatch):
        results = await bench.submit(alter(alteration("clicks", MIN_ISR, "1")))
        await bench.submit(delete("clicks"))
    await bench.answered(results)
    assert errors(results[0]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_validate_only_forgets_nobody(bench: Bench) -> None:
    await with_eligible(bench, MANY)
    operation = alter(alteration("", MIN_ISR, "1", BROKER))
    operation.alter_configs.validate_only = True
    await bench.done(operation)
    assert len(eligible(bench)) == MANY


async def test_ct12_what_is_forgotten_and_the_configs_may_be_too_many_for_one_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_eligible(bench, 3)
    monkeypatch.setattr(config_updates, "RECORDS_PER_BATCH_MAX", 3)
    since = bench.log.next_append_offset
    await bench.done(alter(alteration("", MIN_ISR, "1", BROKER)))
    assert [batch.record_count for batch in bench.log.batches if batch.base_offset >= since] == [3, 1]
    assert eligible(bench) == []


async def test_ct56_a_value_that_was_raised_before_the_turn_of_the_pages_is_lowered_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it arrived only the topic's value was to be lower, at the end the default is as well."""
    await with_eligible(bench, 3)
    await bench.done(beat(bench, 1))
    await bench.done(create(assigned("other", {0: [2, 1]})))
    await bench.done(fence(1))
    await quiet(bench)
    assert len(eligible(bench)) == 4
    await bench.done(alter(alteration("clicks", MIN_ISR, "2")))
    both = alter(alteration("clicks", MIN_ISR, "1"), alteration("", MIN_ISR, "2", BROKER))
    with pages_held(monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(config_updates, "PAGE_PARTITIONS", 1)  # so that it is not done at once
            results = await bench.submit(both)
        await bench.submit(alter(alteration("", MIN_ISR, "3", BROKER)))
    await bench.answered(results)
    await quiet(bench)
    assert errors(results[0]) == []
    assert eligible(bench) == []
