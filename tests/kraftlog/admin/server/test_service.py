"""The admin service over a real connection: one stream for many operations, reads that wait, bad input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from kraftbase.errors import ErrorCode
from kraftlog.admin.client.operation_stream import NotSent
from kraftlog.admin.server.operation_stream_server import OperationStreamServer
from kraftpb.v1 import admin_pb2
from raft.rpc.errors import ERROR_KEY
from raft.rpc.limits import ServiceLimits
from statemachine.store.query_process import QueryProcess, StatementRun
from tests.kraftlog.admin.server.served import Served, execute, numbered, read
from tests.statemachine.builders import (
    BROKER,
    TOPIC,
    alter,
    alteration,
    an_id,
    creatable,
    create,
    delete,
)
from tests.statemachine.conftest import Bench, errors
from tests.statemachine.store.test_sql import ENDLESS
from tests.statemachine.waiting import turns, until

# --- operations -------------------------------------------------------------------------------------------------------


async def test_operations_sent_together_are_answered_together(held: Bench) -> None:
    async def batches() -> AsyncIterator[admin_pb2.OperationBatch]:
        yield numbered(create("a"), create("b"), admin_pb2.Operation(), create("a"))

    stream = OperationStreamServer(held.controller)
    await stream.read(batches())
    assert [(one.correlation_id, errors(one)) for one in await stream.take()] == [(2, [ErrorCode.INVALID_REQUEST])]
    held.log.commit()
    await until(lambda: held.machine.applied_end_offset == held.log.log_end_offset)
    assert [(one.correlation_id, errors(one)) for one in await stream.take()] == [
        (0, []), (1, []), (3, [ErrorCode.TOPIC_ALREADY_EXISTS])
    ]  # fmt: skip


async def test_a_stream_ends_only_after_everything_is_answered(served: Served) -> None:
    served.bench.log.auto_commit = False
    call = served.stub.Execute()
    await call.write(numbered(create("a")))
    await call.done_writing()
    reading = asyncio.ensure_future(read(call))
    await until(lambda: served.bench.log.next_append_offset > served.bench.store.applied_end_offset)
    assert not reading.done()
    served.bench.log.commit()
    assert errors((await reading).results[0]) == []
    assert await call.read() is grpc.aio.EOF


async def test_a_client_that_goes_away_leaves_its_operations_to_be_carried_out(served: Served) -> None:
    served.bench.log.auto_commit = False
    call = served.stub.Execute()
    await call.write(numbered(create("a")))
    await until(lambda: served.bench.log.next_append_offset > served.bench.store.applied_end_offset)
    call.cancel()
    served.bench.log.auto_commit = True
    served.bench.log.commit()
    listed = await served.stub.ListTopics(
        admin_pb2.ListTopicsRequest(
            consistency=admin_pb2.ReadConsistency(
                min_applied_end_offset=served.bench.log.log_end_offset, wait_ms=20_000
            )
        )
    )
    assert [topic.name for topic in listed.topics] == ["a"]
    assert errors(await served.bench.run(create("b"))) == []


async def test_streams_too_many_are_refused_until_another_one_ends(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.admission, "limits", ServiceLimits(operation_streams_max=2))
    kept = [served.stub.Execute() for _ in range(2)]
    for call in kept:
        await call.write(numbered(admin_pb2.Operation()))
        await read(call)
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await served.stub.Execute().read()
    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (ERROR_KEY, str(int(ErrorCode.THROTTLING_QUOTA_EXCEEDED))) in tuple(refusal.value.trailing_metadata() or ())

    for _ in range(20):  # the refusal arrives before, while or after the client sends its operation
        with pytest.raises(NotSent, match=r"limit service\.operation\.streams\.max = 2") as told:
            await execute(served, create("a"))
        assert told.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED

    await kept[0].done_writing()
    assert await kept[0].read() is grpc.aio.EOF
    assert errors(await execute(served, create("a"))) == []
    kept[1].cancel()


async def test_who_does_not_take_answers_is_not_listened_to(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.admin.server.operation_stream_server.UNREAD_RESULTS_MAX", 10)
    listened_to = 0

    async def batches() -> AsyncIterator[admin_pb2.OperationBatch]:
        nonlocal listened_to
        for _ in range(100):
            listened_to += 1
            yield numbered(admin_pb2.Operation(), admin_pb2.Operation())

    stream = OperationStreamServer(bench.controller)
    reading = asyncio.create_task(stream.read(batches()))
    await turns(500)
    assert listened_to == 7  # the seventh came when more than ten answers were waiting
    taken = 0
    while results := await stream.take():
        taken += len(results)
    await reading
    assert taken == 200


async def test_many_small_messages_make_as_many_answers(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.admin.server.operation_stream_server.UNREAD_RESULTS_MAX", 10)
    monkeypatch.setattr("kraftlog.admin.server.operation_stream_server.OPERATIONS_AT_A_TIME", 10)
    monkeypatch.setattr("kraftlog.admin.server.operation_stream_server.RESULT_BYTES_SOFT_MAX", 1)
    call = served.stub.Execute()
    await call.write(numbered(*(admin_pb2.Operation() for _ in range(200))))
    await call.done_writing()
    answered = [result async for message in call for result in message.results]
    assert len(answered) == 200
    assert {result.error_code for result in answered} == {int(ErrorCode.INVALID_REQUEST)}


async def test_bytes_that_are_no_message_end_that_call_only(served: Served) -> None:
    send: Any = served.channel.stream_stream("/kraftpb.v1.AdminService/Execute")
    garbage = send()
    await garbage.write(b"\xff\xff\xff")
    assert await garbage.code() is not grpc.StatusCode.OK
    call = served.stub.Execute()
    await call.write(numbered(create("still-works")))
    assert errors((await read(call)).results[0]) == []


# --- reads ------------------------------------------------------------------------------------------------------------


async def test_reads_tell_what_is_applied_and_how_far_that_is(served: Served) -> None:
    await served.bench.done(create(creatable("b", 2, 2, configs={"retention.ms": "5"}), "a"))
    listed = await served.stub.ListTopics(admin_pb2.ListTopicsRequest())
    assert [(topic.name, topic.num_partitions, topic.replication_factor) for topic in listed.topics] == [
        ("a", 1, 1),
        ("b", 2, 2),
    ]
    assert listed.applied_end_offset == served.bench.store.applied_end_offset
    brokers = await served.stub.ListBrokers(admin_pb2.ListBrokersRequest())
    assert [broker.broker_id for broker in brokers.brokers] == [1, 2]
    configs = await served.stub.DescribeConfigs(
        admin_pb2.DescribeConfigsRequest(resource_type=TOPIC, resource_name="b")
    )
    assert [(config.name, config.value) for config in configs.configs] == [("retention.ms", "5")]
    described = await served.stub.DescribeTopics(admin_pb2.DescribeTopicsRequest())
    assert [topic.name for topic in described.topics] == ["a", "b"]
    assert [len(topic.partitions) for topic in described.topics] == [1, 2]


async def test_topics_are_described_in_the_order_asked_and_errors_stand_in_their_place(served: Served) -> None:
    created = await served.bench.done(create("a"))
    topic_id = created.create_topics.topics[0].topic_id
    Reference = admin_pb2.TopicReference
    asked = [
        (Reference(name="missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Reference(topic_id=topic_id), 0),
        (Reference(topic_id=an_id(5)), ErrorCode.UNKNOWN_TOPIC_ID),
        (Reference(name="a"), 0),
        (Reference(), ErrorCode.INVALID_REQUEST),
        (Reference(name="a", topic_id=topic_id), ErrorCode.INVALID_REQUEST),
        (Reference(topic_id=b"short"), ErrorCode.INVALID_REQUEST),
    ]
    request = admin_pb2.DescribeTopicsRequest(topics=[reference for reference, _ in asked])
    described = await served.stub.DescribeTopics(request)
    assert [topic.error_code for topic in described.topics] == [error for _, error in asked]
    assert [topic.name for topic in described.topics if not topic.error_code] == ["a", "a"]


@pytest.mark.parametrize(
    ("resource_type", "resource_name", "error"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "9", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (BROKER, "01", ErrorCode.INVALID_REQUEST),
        (0, "", ErrorCode.INVALID_REQUEST),
        (BROKER, "", ErrorCode.NONE),
        (BROKER, "1", ErrorCode.NONE),
    ],
)
async def test_configs_of_what_is_not_there_are_an_error(
    served: Served, resource_type: int, resource_name: str, error: ErrorCode
) -> None:
    request = admin_pb2.DescribeConfigsRequest(resource_type=resource_type, resource_name=resource_name)
    response = await served.stub.DescribeConfigs(request)
    assert response.error_code == error
    assert bool(response.error_message) == bool(error)


async def test_a_read_waits_for_the_offset_that_it_names(served: Served) -> None:
    served.bench.log.auto_commit = False
    results = await served.bench.submit(create("a"))
    end_offset = served.bench.log.log_end_offset
    consistency = admin_pb2.ReadConsistency(min_applied_end_offset=end_offset, wait_ms=20_000)
    reading = asyncio.ensure_future(served.stub.ListTopics(admin_pb2.ListTopicsRequest(consistency=consistency)))
    assert await served.stub.ListTopics(admin_pb2.ListTopicsRequest()) == admin_pb2.ListTopicsResponse(
        applied_end_offset=served.bench.store.applied_end_offset
    )
    served.bench.log.commit()
    assert [topic.name for topic in (await reading).topics] == ["a"]
    assert len(results) == 1


@pytest.mark.parametrize(
    ("wait_ms", "error"),
    [(0, ErrorCode.REQUEST_TIMED_OUT), (1, ErrorCode.REQUEST_TIMED_OUT), (-1, ErrorCode.INVALID_REQUEST)],
)
async def test_a_read_that_cannot_wait_is_told_so(served: Served, wait_ms: int, error: ErrorCode) -> None:
    consistency = admin_pb2.ReadConsistency(min_applied_end_offset=10**9, wait_ms=wait_ms)
    response = await served.stub.ListBrokers(admin_pb2.ListBrokersRequest(consistency=consistency))
    assert response.error_code == error
    assert response.applied_end_offset == served.bench.store.applied_end_offset


async def test_an_answer_that_fits_no_message_is_an_error_that_says_what_to_do(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.bench.done(create("a"))
    monkeypatch.setattr("statemachine.query.answer_sizes.ANSWER_BYTES_MAX", 10)
    response = await served.stub.ListTopics(admin_pb2.ListTopicsRequest())
    assert (response.error_code, len(response.topics)) == (ErrorCode.RECORD_LIST_TOO_LARGE, 0)
    assert "ask in SQL" in response.error_message
    assert response.applied_end_offset == served.bench.store.applied_end_offset


async def test_too_many_reads_at_a_time_are_throttled(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statemachine.store.query_lane.QUERIES_MAX", 0)
    response = await served.stub.ListTopics(admin_pb2.ListTopicsRequest())
    assert response.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_a_query_whose_caller_has_gone_holds_up_nobody(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.admin.server.service.STATEMENT_SECONDS_MAX", 3_600.0)
    monkeypatch.setattr(served.bench.store, "_read_seconds_max", 3_600.0)
    began = asyncio.Event()
    loop, run = asyncio.get_running_loop(), QueryProcess.run

    def told(process: QueryProcess, statement: StatementRun) -> list[admin_pb2.QueryResponse]:
        loop.call_soon_threadsafe(began.set)
        return run(process, statement)

    monkeypatch.setattr(QueryProcess, "run", told)
    endless = served.stub.Query(admin_pb2.QueryRequest(sql=f"{ENDLESS} count(*) FROM n"))
    reading = asyncio.ensure_future(endless.read())
    await began.wait()
    endless.cancel()
    pieces = [piece async for piece in served.stub.Query(admin_pb2.QueryRequest(sql="SELECT 1"))]
    assert [len(piece.rows) for piece in pieces] == [1]
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_writes_and_reads_go_on_side_by_side(served: Served) -> None:
    call = served.stub.Execute()
    for number in range(30):
        await call.write(numbered(create(f"t{number}"), alter(alteration("", "num.partitions", "2", BROKER))))
        await served.stub.ListTopics(admin_pb2.ListTopicsRequest())
    await call.done_writing()
    answered = [result async for message in call for result in message.results]
    assert len(answered) == 60
    assert [errors(result) for result in answered] == [[]] * 60
    assert len((await served.stub.ListTopics(admin_pb2.ListTopicsRequest())).topics) == 30


async def test_a_bug_in_the_controller_breaks_the_stream_and_leaves_nobody_waiting(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(served.bench.controller, "submit", broken)
        call = served.stub.Execute()
        await call.write(numbered(create("a")))
        assert await call.code() is grpc.StatusCode.UNKNOWN
    call = served.stub.Execute()
    await call.write(numbered(create("b")))
    assert errors((await read(call)).results[0]) == []


async def test_an_answer_that_comes_after_the_stream_broke_does_not_keep_it_open(
    held: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async def batches() -> AsyncIterator[admin_pb2.OperationBatch]:
        yield numbered(create("a"))
        monkeypatch.setattr(held.controller, "submit", broken)
        yield numbered(create("b"))

    stream = OperationStreamServer(held.controller)
    with pytest.raises(ZeroDivisionError):
        await stream.read(batches())
    held.log.commit()
    await until(lambda: held.machine.applied_end_offset == held.log.log_end_offset)
    assert [errors(result) for result in await stream.take()] == [[]]
    async with asyncio.timeout(100):
        assert await stream.take() == []


# --- giant requests ---------------------------------------------------------------------------------------------------


async def test_a_giant_name_is_refused_with_a_short_answer_and_breaks_nothing(served: Served) -> None:
    giant = "x" * 30_000
    config = admin_pb2.ConfigEntry(name=giant, value="1")
    operations = [
        create(giant),
        delete(giant),
        alter(alteration(giant, "retention.ms", "1")),
        create(admin_pb2.CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[config])),
        alter(alteration("", giant, "1", BROKER), alteration("", giant, "1", BROKER)),
    ]
    call = served.stub.Execute()
    for operation in operations:
        await call.write(numbered(operation))
        (result,) = (await read(call)).results
        assert errors(result)
        assert result.ByteSize() < 1_000
    described = await served.stub.DescribeTopics(
        admin_pb2.DescribeTopicsRequest(topics=[admin_pb2.TopicReference(name=giant)])
    )
    assert (described.error_code, len(described.topics)) == (ErrorCode.INVALID_REQUEST, 0)


async def test_a_result_that_fits_no_message_says_what_became_of_the_operation(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlog.admin.server.operation_stream_server.RESULT_BYTES_MAX", 10)
    call = served.stub.Execute()
    await call.write(numbered(create("a")))
    (done,) = (await read(call)).results
    await call.write(numbered(create("a")))
    (refused,) = (await read(call)).results
    assert done.error_code == refused.error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert "was carried out" in done.error_message and done.end_offset == served.bench.log.log_end_offset
    assert "nothing was written" in refused.error_message and refused.end_offset == -1


async def test_a_topic_that_is_asked_for_many_times_is_described_once(served: Served) -> None:
    await served.bench.done(create("a", "b"))
    references = [admin_pb2.TopicReference(name=name) for name in ("b", "a", "b")] * 1_000
    described = await served.stub.DescribeTopics(admin_pb2.DescribeTopicsRequest(topics=references))
    assert [topic.name for topic in described.topics] == ["b", "a"]


async def test_more_topics_than_one_read_may_take_are_refused(served: Served) -> None:
    references = [admin_pb2.TopicReference(name=f"t{number}") for number in range(2_001)]
    described = await served.stub.DescribeTopics(admin_pb2.DescribeTopicsRequest(topics=references))
    assert (described.error_code, len(described.topics)) == (ErrorCode.INVALID_REQUEST, 0)
    assert "at most 2000" in described.error_message
