"""What the controller relies on of a log: the same for the one in memory and for a real node."""

from __future__ import annotations

import asyncio

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftpb.v1.metadata_pb2 import MetadataBatch
from raft.core.types import Epoch
from statemachine.query import metadata_queries
from tests.statemachine.builders import alter, alteration, config, create, delete, no_op
from tests.statemachine.conftest import Bench, errors
from tests.statemachine.waiting import turns

BODY = MetadataBatch(records=[no_op(), no_op()]).SerializeToString()


def epoch(bench: Bench) -> Epoch:
    return Epoch(bench.log.leader_and_epoch.epoch)


async def test_li20_offsets_are_known_at_once_and_nothing_is_committed_before_it_is_scheduled(
    any_bench: Bench,
) -> None:
    start = any_bench.log.next_append_offset
    first = any_bench.log.prepare_append(epoch(any_bench), BODY, 2)
    second = any_bench.log.prepare_append(epoch(any_bench), BODY, 2)
    assert (first.base_offset, first.end_offset) == (start, start + 2)
    assert (second.base_offset, second.end_offset) == (start + 2, start + 4)
    assert any_bench.log.next_append_offset == start + 4
    await turns()
    assert not first.committed.done()
    any_bench.log.schedule_appends()
    await asyncio.wait_for(asyncio.gather(first.committed, second.committed), 100)
    await any_bench.machine.wait_applied(second.end_offset, 20_000)


async def test_what_is_appended_together_is_applied_in_order(any_bench: Bench) -> None:
    for value in ("1", "2", "3"):
        body = MetadataBatch(records=[config("", "x", value, 4)]).SerializeToString()
        prepared = any_bench.log.prepare_append(epoch(any_bench), body, 1)
    any_bench.log.schedule_appends()
    await any_bench.machine.wait_applied(prepared.end_offset, 20_000)
    assert [found.value for found in metadata_queries.describe_configs(any_bench.store.reader, 4, "")] == ["3"]


async def test_li21_an_epoch_that_is_over_is_refused_and_changes_nothing(any_bench: Bench) -> None:
    offset = any_bench.log.next_append_offset
    with pytest.raises(ApiError) as refusal:
        any_bench.log.prepare_append(Epoch(epoch(any_bench) - 1), BODY, 2)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert any_bench.log.next_append_offset == offset


async def test_li26_what_is_prepared_fails_when_leadership_ends_and_the_epoch_is_over(any_bench: Bench) -> None:
    before = epoch(any_bench)
    prepared = any_bench.log.prepare_append(before, BODY, 2)
    any_bench.log.resign(before)
    with pytest.raises(ApiError) as refusal:
        await asyncio.wait_for(prepared.committed, 100)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError) as refusal:
        any_bench.log.prepare_append(before, BODY, 2)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_resignation_reaches_the_controller(any_bench: Bench) -> None:
    any_bench.log.resign(epoch(any_bench))
    result = await any_bench.run(create("a"))
    assert result.error_code == ErrorCode.NOT_CONTROLLER
    assert result.end_offset == -1


async def test_the_controller_works_over_it(any_bench: Bench) -> None:
    await any_bench.with_brokers(1, 2)
    results = await asyncio.gather(
        any_bench.run(create("a", "b")),
        any_bench.run(create("b")),
        any_bench.run(alter(alteration("a", "retention.ms", "5"))),
        any_bench.run(delete("b")),
    )
    assert [errors(result) for result in results] == [[], [ErrorCode.TOPIC_ALREADY_EXISTS], [], []]
    assert max(result.end_offset for result in results) == any_bench.store.applied_end_offset
    (topic,) = metadata_queries.describe_all_topics(any_bench.store.reader)
    assert (topic.name, [config.value for config in topic.configs]) == ("a", ["5"])
    brokers = metadata_queries.list_brokers(any_bench.store.reader)
    assert [broker.broker_id for broker in brokers] == [1, 2]
    assert brokers[0].broker_epoch < brokers[1].broker_epoch
