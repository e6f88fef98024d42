"""A controller that takes over finishes what several brokers left behind, in one pass over all partitions (CT-31)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kraftlog.controller.broker_control import RESUMED_TOGETHER_MAX, leader_and_isr_updates, resume_unfinished
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.tables.topic_tables import counting_on
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
from tests.kraftlog.controller.test_overlapping_removals import another_leads_in_between
from tests.statemachine.builders import an_id, broker, partition, register, topic
from tests.statemachine.conftest import Bench
from tests.statemachine.states import Metadata, metadata


def looks_at_all(asked: Sequence[str]) -> int:
    """How many statements searched partitions by their brokers."""
    return sum("json_each" in sql for sql in asked)


async def test_ct31_what_several_brokers_left_behind_is_finished_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_topic(bench, {0: [1, 2, 3], 1: [2, 1, 3], 2: [3, 2, 1], 3: [1, 3, 2], 4: [3, 1, 2]})
    asked: list[str] = []
    with pages_held(monkeypatch):
        for broker_id in (1, 2):
            await bench.submit(fence(broker_id))
        await another_leads_in_between(bench)
        assert [partition.leader for partition in partitions(bench)] == [1, 2, 3, 1, 3]
        since = bench.log.next_append_offset
        bench.store.reader.set_trace_callback(asked.append)
    await quiet(bench)
    assert [(partition.leader, list(partition.isr)) for partition in partitions(bench)] == [(3, [3])] * 5
    assert len(appended_records(bench, since=since)) == 10  # each of them leaves each partition
    assert looks_at_all(asked) == 1
    for broker_id in (1, 2):  # nothing keeps them from returning
        await bench.done(beat(bench, broker_id))
        assert not brokers(bench)[broker_id].fenced


async def test_ct31_brokers_that_left_nothing_behind_cost_one_look_and_no_record(bench: Bench) -> None:
    await with_topic(bench, {0: [1, 2, 3], 1: [3, 2, 1]})
    for broker_id in (1, 2):
        await bench.done(fence(broker_id))
    before = partitions(bench)
    asked: list[str] = []
    bench.store.reader.set_trace_callback(asked.append)
    await another_leads_in_between(bench)
    await quiet(bench)
    assert (looks_at_all(asked), partitions(bench)) == (1, before)


async def test_ct56_only_those_that_may_have_lost_data_are_not_eligible_any_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_topic(bench, {0: [1, 2, 3]}, min_isr=3)
    for broker_id in (1, 2):
        await bench.done(fence(broker_id))
    assert list(partitions(bench)[0].eligible_leader_replicas) == [1, 2]
    with pages_held(monkeypatch):
        await bench.submit(register(1, incarnation=77))
        await another_leads_in_between(bench)
        assert list(partitions(bench)[0].eligible_leader_replicas) == [1, 2]
    await quiet(bench)
    assert list(partitions(bench)[0].eligible_leader_replicas) == [2]


def with_brokers(fenced: int) -> Metadata:
    """Broker 0 is alive, the others are fenced and still in every ISR."""
    members = range(fenced + 1)
    records = [broker(broker_id, fenced=broker_id > 0) for broker_id in members]
    return metadata(*records, topic("clicks", 1), *(partition(1, number, [*members[1:], 0]) for number in range(3)))


def all_taken(state: Metadata, bench: Bench) -> list[MetadataRecord]:
    """Every record of what is left behind, each page appended."""
    appended = []
    for decision in resume_unfinished(state, bench.controller._context):
        while decision.pages is not None and (records := decision.pages.next_page()) is not None:
            if records:
                state.append(records)
                decision.pages.appended()
            appended += records
    return appended


@pytest.mark.parametrize("fenced", [1, 3, RESUMED_TOGETHER_MAX, RESUMED_TOGETHER_MAX + 2])
async def test_ct31_together_they_leave_as_they_would_one_by_one(bench: Bench, fenced: int) -> None:
    together, single = with_brokers(fenced), with_brokers(fenced)
    all_taken(together, bench)
    for broker_id in range(1, fenced + 1):
        pages = leader_and_isr_updates(single, broker_id)
        while (records := pages.next_page()) is not None:
            if records:
                single.append(records)
                pages.appended()
    assert together.partitions(an_id(1)) == single.partitions(an_id(1))
    assert [list(of.isr) for of in together.partitions(an_id(1))] == [[0]] * 3


async def test_ct31_last_members_of_an_isr_stay_in_it_as_they_would_one_by_one(bench: Bench) -> None:
    state = metadata(broker(1, fenced=True), broker(2, fenced=True), topic("clicks", 1), partition(1))
    all_taken(state, bench)
    (left,) = state.partitions(an_id(1))
    assert (left.leader, list(left.isr)) == (-1, [2])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (PartitionRecord(isr=[1, 5]), True),
        (PartitionRecord(isr=[5], eligible_leader_replicas=[2]), True),
        (PartitionRecord(isr=[5], eligible_leader_replicas=[1]), False),
        (PartitionRecord(isr=[12, 21]), False),
    ],
)
def test_sql_and_python_find_the_same_partitions(given: PartitionRecord, expected: bool) -> None:
    given.topic_id = an_id(1)
    given.replicas.extend([1, 2])
    condition = counting_on([1, 2], [2])
    assert condition.holds(given) == expected
    for state in (
        metadata(topic("clicks", 1), MetadataRecord(partition=given)),
        metadata(topic("clicks", 1)).append([MetadataRecord(partition=given)]),
    ):
        assert len(state.partitions_where(condition, None, 10).found) == expected
