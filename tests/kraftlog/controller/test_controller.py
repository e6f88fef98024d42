"""The controller: when it answers, what it decides on, and what happens to operations when leadership is lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode, InvariantViolation
from kraftbase.ids import id_to_text
from kraftbase.runtime import awaited
from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.controller import controller
from kraftlog.controller.decisions import Decision
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from kraftpb.v1.metadata_pb2 import MetadataRecord, RemoveTopicRecord
from raft.core.types import LeaderAndEpoch
from raft.shell.appends import OnSettled
from statemachine.query import metadata_queries
from tests.statemachine.builders import BROKER, alive, alter, alteration, assigned, creatable, create, delete, register
from tests.statemachine.conftest import Bench, errors, memory_bench
from tests.statemachine.machines import wait_applied
from tests.statemachine.waiting import turns, until


def topics(bench: Bench) -> list[str]:
    return [topic.name for topic in metadata_queries.list_topics(bench.store.reader)]


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass
class Answered:
    """An answer, the topics that existed when it came, and those that a read at that moment sees."""

    result: OperationResult
    topics_then: list[str]
    topics_read: asyncio.Task[list[str]]


async def answered(bench: Bench, operation: Operation) -> Answered:
    """The answer to `operation`, which comes when it is committed."""
    answers: list[Answered] = []

    async def read() -> list[str]:
        await wait_applied(bench.machine, Offset(0), 0)
        return topics(bench)

    def on_result(result: OperationResult) -> None:
        answers.append(Answered(result, topics(bench), asyncio.create_task(read())))

    bench.controller.submit([operation], on_result)
    await turns()
    assert answers == []
    bench.log.commit()
    await until(lambda: bool(answers))
    return answers[0]


async def test_ct10_an_operation_is_answered_when_it_is_committed_and_later_reads_see_it(held: Bench) -> None:
    """CT-10."""
    answer = await answered(held, create("a"))
    assert errors(answer.result) == []
    assert answer.result.end_offset == held.log.log_end_offset
    assert answer.topics_then == []
    assert await answer.topics_read == ["a"]


async def test_an_operation_that_takes_long_to_apply_is_answered_when_it_is(held: Bench) -> None:
    answer = await answered(held, create(creatable("a", partitions=2_000)))
    assert errors(answer.result) == []
    assert answer.topics_then == await answer.topics_read == ["a"]


async def test_operations_that_come_together_are_answered_in_order_with_their_own_offsets(held: Bench) -> None:
    operations = [create("a"), create("b"), alter(alteration("a", "retention.ms", "1"))]
    for number, operation in enumerate(operations):
        operation.correlation_id = 70 + number
    results = await held.submit(*operations)
    held.log.commit()
    await held.answered(results, 3)
    assert [result.correlation_id for result in results] == [70, 71, 72]
    assert [later.end_offset - earlier.end_offset for earlier, later in pairwise(results)] == [2, 1]


async def test_ct11_an_answer_that_rests_on_what_is_not_committed_waits_for_it(held: Bench) -> None:
    """CT-11: the second creation and the deletion wrote nothing, and depend on the first creation."""
    results = await held.submit(create("a"), create("a"), delete("missing"))
    await turns()
    assert results == []
    held.log.commit()
    await held.answered(results, 3)
    assert [errors(result) for result in results] == [
        [],
        [ErrorCode.TOPIC_ALREADY_EXISTS],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert results[1].end_offset == -1


async def test_ct11_an_answer_that_rests_on_what_is_committed_comes_at_once(held: Bench) -> None:
    results = await held.submit(delete("missing"))
    assert [errors(result) for result in results] == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
    assert [(result.end_offset, result.state_end_offset) for result in results] == [(-1, held.log.log_end_offset)]


async def test_ct11_an_answer_says_where_what_it_rests_on_ends_also_if_it_wrote_nothing(held: Bench) -> None:
    results = await held.submit(create("a"), create("a"), create("b"), delete("missing"))
    held.log.commit()
    await held.answered(results, 4)
    first, exists, second, missing = results
    assert (first.state_end_offset, second.state_end_offset) == (first.end_offset, second.end_offset)
    assert (exists.end_offset, exists.state_end_offset) == (-1, first.end_offset)
    assert (missing.end_offset, missing.state_end_offset) == (-1, second.end_offset)


@pytest.mark.parametrize(
    "operation",
    [
        admin_pb2.Operation(),
        admin_pb2.Operation(timeout_ms=-1, create_topics=create("a").create_topics),
        admin_pb2.Operation(timeout_ms=600_001, create_topics=create("a").create_topics),
    ],
)
async def test_an_operation_that_cannot_be_is_an_invalid_request(held: Bench, operation: admin_pb2.Operation) -> None:
    results = await held.submit(operation)
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST]


async def test_an_operation_that_is_not_committed_in_time_has_an_unknown_outcome(held: Bench) -> None:
    operation = create("late")
    operation.timeout_ms = 1
    results = await held.submit(operation, create("patient"))
    await held.answered(results)
    assert results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert results[0].end_offset == held.log.log_end_offset - 2
    assert "check before trying again" in results[0].error_message
    held.log.commit()
    await held.answered(results, 2)
    assert topics(held) == ["late", "patient"]
    await turns()
    assert len(results) == 2


async def test_an_answer_without_records_that_cannot_be_given_in_time_says_that_nothing_was_written(
    held: Bench,
) -> None:
    operation = create("a")
    operation.timeout_ms = 1
    results = await held.submit(create("a"), operation)
    await held.answered(results)
    assert (results[0].error_code, results[0].end_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    held.log.commit()


async def test_ct20_more_operations_than_may_wait_are_throttled(held: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.controller.controller.OPERATIONS_WAITING_MAX", 2)
    results = await held.submit(create("a"), create("b"), create("c"))
    assert [(result.error_code, result.end_offset) for result in results] == [(ErrorCode.THROTTLING_QUOTA_EXCEEDED, -1)]
    held.log.commit()
    await held.answered(results, 3)
    await held.submit(create("c"))
    held.log.commit()
    await until(lambda: topics(held) == ["a", "b", "c"])


async def test_an_append_that_is_refused_leaves_no_trace(held: Bench) -> None:
    held.log.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    results = await held.submit(create("a"))
    assert [(result.error_code, result.end_offset) for result in results] == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    results = await held.submit(create("a"))
    held.log.commit()
    await held.answered(results)
    assert errors(results[0]) == []


async def test_a_bug_in_an_operation_fails_that_operation_only(held: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("kraftlog.controller.dispatch.delete_topics", broken)
    results = await held.submit(delete("a"), create("a"))
    assert [result.error_code for result in results] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    held.log.commit()
    await held.answered(results, 2)


async def test_many_operations_leave_the_loop_its_turns(held: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.controller.submission.SLICE_MS", 0)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    await held.submit(*(create(f"t{number}") for number in range(20)))
    ticking.cancel()
    assert ticks >= 20
    held.log.commit()


# --- what decisions depend on -----------------------------------------------------------------------------------------


async def test_a_topic_that_comes_and_goes_before_any_commit(held: Bench) -> None:
    results = await held.submit(
        create("a"),
        alter(alteration("a", "retention.ms", "5")),
        delete("a"),
        alter(alteration("a", "retention.ms", "5")),
        create("a"),
        alter(alteration("a", "retention.ms", "5")),
        alter(alteration("a", "retention.ms", "5")),
    )
    held.log.commit()
    await held.answered(results, 7)
    assert [errors(result) for result in results] == [[], [], [], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [], [], []]
    assert [result.end_offset >= 0 for result in results] == [True, True, True, False, True, True, False]
    described = metadata_queries.describe_topic(held.store.reader, name="a")
    assert described is not None
    assert described.topic_id == id_to_text(results[4].create_topics.topics[0].topic_id)
    assert [(config.name, config.value) for config in described.configs] == [("retention.ms", "5")]


async def test_what_is_set_again_before_the_first_commit_stays_in_the_overlay(held: Bench) -> None:
    results = await held.submit(create("a"))
    results += await held.submit(delete("a"))
    held.log.commit(1)  # the creation alone
    await until(lambda: topics(held) == ["a"])
    results = await held.submit(create("a"))
    held.log.commit()
    await held.answered(results)
    assert errors(results[0]) == []


async def test_committed_configs_of_a_topic_do_not_show_in_its_uncommitted_successor(held: Bench) -> None:
    held.log.auto_commit = True
    await held.done(create("a"))
    await held.done(alter(alteration("a", "retention.ms", "5")))
    held.log.auto_commit = False
    results = await held.submit(delete("a"), create("a"), alter(alteration("a", "retention.ms", "5")))
    held.log.commit()
    await held.answered(results, 3)
    assert results[2].end_offset >= 0  # the new topic did not have it


async def test_an_uncommitted_name_collides_and_a_name_that_is_going_does_not(held: Bench) -> None:
    held.log.auto_commit = True
    await held.done(create("old.one"))
    held.log.auto_commit = False
    results = await held.submit(
        create("new.one"), create("new_one"), create("old_one"), delete("old.one"), create("old_one")
    )
    held.log.commit()
    await held.answered(results, 5)
    collision = [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert [errors(result) for result in results] == [[], collision, collision, [], []]


async def test_a_topic_can_be_placed_on_a_broker_that_is_not_committed_yet(held: Bench) -> None:
    results = await held.submit(
        create(assigned("a", {0: [9]})),
        register(9),
        alive(9, held.log.next_append_offset),
        create(assigned("b", {0: [9]})),
        alter(alteration("9", "log.retention.ms", "5", BROKER)),
    )
    held.log.commit()
    await held.answered(results, 5)
    assert [errors(result) for result in results] == [[ErrorCode.INVALID_REPLICA_ASSIGNMENT], [], [], [], []]


# --- leadership -------------------------------------------------------------------------------------------------------


async def test_ct13_a_controller_that_is_not_active_names_the_leader(database: Path) -> None:
    async with memory_bench(database) as bench:
        assert not bench.controller.is_active
        result = await bench.run(create("a"))
        assert (result.error_code, result.end_offset) == (ErrorCode.NOT_CONTROLLER, -1)
        assert result.current_leader.leader_id == -1
        bench.log.leader_and_epoch = LeaderAndEpoch(NodeId(2), Epoch(4))
        bench.log.leader_endpoint = Endpoint("leader.example", 9093)
        result = await bench.run(create("a"))
        leader = result.current_leader
        assert (leader.leader_id, leader.leader_epoch) == (2, 4)
        assert (leader.leader_endpoint.host, leader.leader_endpoint.port) == ("leader.example", 9093)


async def test_li05_a_controller_is_active_only_after_it_has_applied_what_was_before_its_epoch(
    database: Path,
) -> None:
    async with memory_bench(database) as bench:
        bench.log.lead()
        end_offset = bench.log.log_end_offset
        assert end_offset > 0 and not bench.controller.is_active
        await bench.lead()
        assert bench.store.applied_end_offset >= end_offset


async def test_ct15_who_waits_when_leadership_is_lost_is_told_that_the_outcome_is_unknown(held: Bench) -> None:
    results = await held.submit(create("a"), create("a"))
    held.log.lose_leadership()
    await held.answered(results, 2)
    assert [result.error_code for result in results] == [ErrorCode.NOT_CONTROLLER] * 2
    assert results[0].end_offset > 0
    assert "may or may not" in results[0].error_message
    assert results[1].end_offset == -1
    assert results[0].current_leader.leader_id == 2
    await until(lambda: not held.controller.is_active)


async def test_ct15_losing_leadership_drops_what_was_not_committed(held: Bench) -> None:
    """CT-15."""
    lost = await held.submit(create("a"), register(9))
    held.log.lose_leadership()
    held.log.lead()
    held.log.auto_commit = True
    await until(lambda: len(lost) == 2)
    await held.lead()
    await held.done(create("a"))
    assert errors(await held.run(alter(alteration("9", "log.retention.ms", "5", BROKER)))) == [
        ErrorCode.BROKER_ID_NOT_REGISTERED
    ]


async def test_what_the_next_leader_committed_after_all_is_there_when_this_one_leads_again(held: Bench) -> None:
    results = await held.submit(create("a"))
    held.log.lose_leadership(keep=True)
    await held.answered(results)
    assert results[0].error_code == ErrorCode.NOT_CONTROLLER
    held.log.lead()
    held.log.auto_commit = True
    await held.lead()
    assert errors(await held.run(create("a"))) == [ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_what_was_committed_before_leadership_was_lost_is_acknowledged(held: Bench) -> None:
    results = await held.submit(create("a"))
    held.log.commit()
    held.controller.leader_changed(LeaderAndEpoch(NodeId(2), Epoch(9)))  # before anything is applied
    assert results == []
    await held.answered(results)
    assert errors(results[0]) == []


async def test_ct13_an_append_refused_for_want_of_leadership_ends_the_controllers_activity(held: Bench) -> None:
    waiting = await held.submit(create("a"))
    held.log.refusal = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "node 2 leads")
    results = await held.submit(create("b"))
    assert [(result.error_code, result.end_offset) for result in results] == [(ErrorCode.NOT_CONTROLLER, -1)]
    assert [result.error_code for result in waiting] == [ErrorCode.NOT_CONTROLLER]
    assert not held.controller.is_active


async def test_a_controller_that_nobody_has_told_yet_does_not_answer_from_what_it_knew(held: Bench) -> None:
    waiting = await held.submit(create("a"))
    held.log.leader_and_epoch = LeaderAndEpoch(NodeId(2), Epoch(8))
    results = await held.submit(delete("missing"))
    assert [(result.error_code, result.end_offset) for result in results] == [(ErrorCode.NOT_CONTROLLER, -1)]
    assert results[0].current_leader.leader_id == 2
    assert [result.error_code for result in waiting] == [ErrorCode.NOT_CONTROLLER]
    assert not held.controller.is_active


async def test_ct18_an_append_at_an_unexpected_offset_ends_the_process(
    held: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = held.log.prepare_append

    def skip_one(epoch: Epoch, body: bytes, record_count: int, on_settled: OnSettled) -> Offset:
        prepare(epoch, body, record_count, lambda error: None)
        return Offset(prepare(epoch, body, record_count, on_settled))

    monkeypatch.setattr(held.log, "prepare_append", skip_one)
    with pytest.raises(InvariantViolation, match="does not follow the log"):
        await held.submit(create("a"))
    (fault,) = held.faults  # whatever happens to the exception
    assert "an append gets the offset it was given" in str(fault)
    held.faults.clear()
    assert not held.controller.is_active
    assert held.log.leader_and_epoch.leader_id is None  # it resigned


async def test_what_cannot_be_applied_is_not_appended_and_ends_no_process(
    held: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of a decision: the records would have stopped every node, now and at each of its starts."""
    poison = MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=b"\1" * 16))
    end_offset = held.log.log_end_offset
    with monkeypatch.context() as patch:
        patch.setattr(controller, "decide", lambda *_: Decision([poison, poison]))
        results = await held.submit(create("a"))
    assert [(result.error_code, result.end_offset) for result in results] == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1)]
    assert "wrote nothing" in results[0].error_message
    assert held.faults == []
    assert held.log.leader_and_epoch.leader_id is None, "it resigned: its overlay holds a part of them"
    assert held.log.log_end_offset == end_offset


async def test_an_append_that_the_log_fails_on_is_answered_and_nothing_is_decided_on_it(
    held: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("epoch 9 is above the present one, 8")

    with monkeypatch.context() as patch:
        patch.setattr(held.log, "prepare_append", broken)
        results = await held.submit(create("a"))
    assert [(result.error_code, result.end_offset) for result in results] == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1)]
    results = await held.submit(create("a"))
    held.log.commit()
    await held.answered(results)
    assert errors(results[0]) == []


async def test_a_shutdown_answers_who_waits(held: Bench) -> None:
    results = await held.submit(create("a"))
    await awaited(held.machine.begin_shutdown)
    assert [result.error_code for result in results] == [ErrorCode.NOT_CONTROLLER]
    assert [result.error_code for result in await held.submit(create("b"))] == [ErrorCode.NOT_CONTROLLER]
