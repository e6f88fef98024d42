"""What the controller relies on of a log: the same for the one in memory and for a real node."""

from __future__ import annotations

import asyncio

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch
from kraftpb.v1.metadata_pb2 import MetadataBatch
from raft.shell.appends import OnSettled
from statemachine.query import metadata_queries
from tests.statemachine.builders import alter, alteration, config, create, delete, no_op
from tests.statemachine.conftest import Bench, errors
from tests.statemachine.machines import wait_applied
from tests.statemachine.waiting import turns, until

BODY = MetadataBatch(records=[no_op(), no_op()]).SerializeToString()


def epoch(bench: Bench) -> Epoch:
    return Epoch(bench.log.leader_and_epoch.epoch)


def noting(settled: list[tuple[str, ApiError | None]], name: str) -> OnSettled:
    """An `on_settled` that notes that the append of that name was settled, and how."""
    return lambda error: settled.append((name, error))


async def test_li20_offsets_are_known_at_once_and_nothing_is_committed_before_it_is_scheduled(
    any_bench: Bench,
) -> None:
    start = any_bench.log.next_append_offset
    settled: list[tuple[str, ApiError | None]] = []
    for name in ("first", "second"):
        base_offset = any_bench.log.prepare_append(epoch(any_bench), BODY, 2, noting(settled, name))
        assert base_offset == (start if name == "first" else start + 2)
    assert any_bench.log.next_append_offset == start + 4
    await turns()
    assert settled == []
    any_bench.log.schedule_appends()
    await until(lambda: len(settled) == 2)
    await wait_applied(any_bench.machine, start + 4, 20_000)
    assert settled == [("first", None), ("second", None)]  # each once, in the order of the log


async def test_what_is_appended_together_is_applied_in_order(any_bench: Bench) -> None:
    for value in ("1", "2", "3"):
        body = MetadataBatch(records=[config("", "x", value, 4)]).SerializeToString()
        base_offset = any_bench.log.prepare_append(epoch(any_bench), body, 1, lambda error: None)
    any_bench.log.schedule_appends()
    await wait_applied(any_bench.machine, base_offset + 1, 20_000)
    assert [found.value for found in metadata_queries.describe_configs(any_bench.store.reader, 4, "")] == ["3"]


async def test_li21_an_epoch_that_is_over_is_refused_and_changes_nothing(any_bench: Bench) -> None:
    offset = any_bench.log.next_append_offset
    settled: list[tuple[str, ApiError | None]] = []
    with pytest.raises(ApiError) as refusal:
        any_bench.log.prepare_append(Epoch(epoch(any_bench) - 1), BODY, 2, noting(settled, "refused"))
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert any_bench.log.next_append_offset == offset
    any_bench.log.resign(epoch(any_bench))
    await turns()
    assert settled == []


async def test_li26_what_is_prepared_fails_when_leadership_ends_and_the_epoch_is_over(any_bench: Bench) -> None:
    before = epoch(any_bench)
    settled: list[tuple[str, ApiError | None]] = []
    any_bench.log.prepare_append(before, BODY, 2, noting(settled, "first"))
    any_bench.log.prepare_append(before, BODY, 2, noting(settled, "second"))
    any_bench.log.resign(before)
    await turns()
    assert [(name, error and error.code) for name, error in settled] == [
        ("first", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("second", ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]
    with pytest.raises(ApiError) as refusal:
        any_bench.log.prepare_append(before, BODY, 2, noting(settled, "third"))
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
