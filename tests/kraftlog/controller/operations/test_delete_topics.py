"""DeleteTopics (CT-22): what is written, and every error."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftpb.v1 import admin_pb2
from statemachine.query import metadata_queries
from statemachine.query.descriptions import Counts
from tests.statemachine.builders import an_id, creatable, create, delete
from tests.statemachine.conftest import Bench, errors


async def test_topics_are_deleted_by_name_and_by_id(bench: Bench) -> None:
    await bench.with_brokers(1)
    created = await bench.done(create(creatable("a", configs={"retention.ms": "1"}), "b", "c"))
    ids = {topic.name: topic.topic_id for topic in created.create_topics.topics}
    result = await bench.done(delete("a", ids=[ids["b"]]))
    assert [(topic.name, topic.topic_id) for topic in result.delete_topics.topics] == [
        ("a", ids["a"]),
        ("b", ids["b"]),
    ]
    assert metadata_queries.counts(bench.store.reader) == Counts(result.end_offset, 1, 1, 1, 0)


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        (admin_pb2.TopicReference(name="missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (admin_pb2.TopicReference(topic_id=an_id(77)), ErrorCode.UNKNOWN_TOPIC_ID),
        (admin_pb2.TopicReference(), ErrorCode.INVALID_REQUEST),
        (admin_pb2.TopicReference(name="there", topic_id=an_id(77)), ErrorCode.INVALID_REQUEST),
        (admin_pb2.TopicReference(topic_id=b"short"), ErrorCode.INVALID_REQUEST),
        (admin_pb2.TopicReference(topic_id=bytes(16)), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_each_error_has_kafkas_name_and_writes_nothing(
    bench: Bench, reference: admin_pb2.TopicReference, error: ErrorCode
) -> None:
    await bench.with_brokers(1)
    await bench.done(create("there"))
    end = bench.log.log_end_offset
    operation = admin_pb2.Operation(delete_topics=admin_pb2.DeleteTopicsRequest(topics=[reference]))
    result = await bench.run(operation)
    assert errors(result) == [error]
    assert result.delete_topics.topics[0].error_message
    assert bench.log.log_end_offset == end


async def test_a_topic_that_is_in_the_request_twice_is_an_invalid_request_for_both(bench: Bench) -> None:
    await bench.with_brokers(1)
    created = await bench.done(create("a", "b"))
    topic_id = created.create_topics.topics[0].topic_id
    result = await bench.run(delete("a", "b", ids=[topic_id]))
    assert [topic.error_code for topic in result.delete_topics.topics] == [
        ErrorCode.INVALID_REQUEST,
        0,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [topic.name for topic in metadata_queries.list_topics(bench.store.reader)] == ["a"]


async def test_what_does_not_exist_and_is_in_the_request_twice_is_an_invalid_request(bench: Bench) -> None:
    await bench.with_brokers(1)
    unknown = bytes([9] * 16)
    result = await bench.run(delete("a", "a", "b", ids=[unknown, unknown]))
    invalid, not_there = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(result) == [invalid, invalid, not_there, invalid, invalid]
    assert "topic 'a' is in the request more than once" in result.delete_topics.topics[0].error_message


async def test_ct12_more_topics_than_a_batch_holds_are_refused_whole(bench: Bench) -> None:
    result = await bench.run(delete(*(f"t{number}" for number in range(10_001))))
    assert result.error_code == ErrorCode.RECORD_LIST_TOO_LARGE
