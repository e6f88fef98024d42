"""The load runs for ever on metadata that does not grow; paces itself; distinguishes answers."""

from __future__ import annotations

from random import Random

from kraftbase.errors import ErrorCode
from kraftlog.chaos.soak.load import PASSING_TOPICS, SteadyLoad, create_topic, error_message
from kraftpb.v1 import admin_pb2


def test_no_more_than_so_many_passing_topics_are_there_at_a_time() -> None:
    load = SteadyLoad([], 500.0, Random(1))
    there: set[str] = set()
    kinds: dict[str | None, int] = {}
    for _ in range(10 * PASSING_TOPICS):
        operation = load._operation()
        kind = operation.WhichOneof("operation")
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind == "create_topics":
            (topic,) = operation.create_topics.topics
            assert topic.name not in there
            there.add(topic.name)
        elif kind == "delete_topics":
            (reference,) = operation.delete_topics.topics
            there.remove(reference.name)
        assert len(there) <= PASSING_TOPICS
    assert kinds["alter_configs"] == 5 * PASSING_TOPICS
    assert kinds["delete_topics"] > PASSING_TOPICS


def test_an_error_of_a_part_is_an_error() -> None:
    assert error_message(admin_pb2.OperationResult()) is None
    whole = admin_pb2.OperationResult(error_code=ErrorCode.NOT_CONTROLLER, error_message="elsewhere")
    assert error_message(whole) == "elsewhere"
    part = admin_pb2.OperationResult()
    part.create_topics.topics.add(name="one")
    part.create_topics.topics.add(name="two", error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="there is one")
    assert error_message(part) == "there is one"


def test_a_topic_has_as_many_partitions_as_are_asked_for() -> None:
    (topic,) = create_topic("wide", 50).create_topics.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("wide", 50, 1)
