"""CreateTopics (CT-21): what is written, and every error."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import MetadataBatch
from raft.storage.batch import batch_body
from statemachine.query import metadata_queries
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from tests.statemachine.builders import (
    BROKER,
    alive,
    alter,
    alteration,
    an_id,
    assigned,
    creatable,
    create,
    delete,
    register,
)
from tests.statemachine.conftest import Bench, errors


def kinds_of_last_batch(bench: Bench) -> list[str | None]:
    records = MetadataBatch.FromString(batch_body(bench.log.batches[-1])).records
    return [record.WhichOneof("record") for record in records]


async def test_a_topic_has_its_records_in_kafkas_order_and_one_batch(bench: Bench) -> None:
    await bench.with_brokers(1, 2, 3)
    configs = {"retention.ms": "1", "segment.ms": "2"}
    result = await bench.done(create(creatable("clicks", 4, 2, configs=configs)))
    assert kinds_of_last_batch(bench) == ["topic", "config", "config", *["partition"] * 4]
    created = result.create_topics.topics[0]
    assert (created.num_partitions, created.replication_factor) == (4, 2)
    described = metadata_queries.describe_topic(bench.store.reader, name="clicks")
    assert described is not None
    assert [partition.partition_id for partition in described.partitions] == [0, 1, 2, 3]
    assert {config.name: config.value for config in described.configs} == configs


async def test_ct03_a_new_partition_starts_at_epoch_0_led_by_its_first_replica(bench: Bench) -> None:
    """CT-03, with all replicas active."""
    await bench.with_brokers(1, 2, 3)
    await bench.done(create(assigned("clicks", {0: [3, 1], 1: [2, 3]})))
    described = metadata_queries.describe_topic(bench.store.reader, name="clicks")
    assert described is not None
    for partition, replicas in zip(described.partitions, [(3, 1), (2, 3)], strict=True):
        assert partition.replicas == partition.isr == replicas
        assert partition.leader == replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch, partition.leader_recovery_state) == (0, 0, 0)


async def test_a_replicas_directory_is_known_if_its_broker_has_only_one(bench: Bench) -> None:
    for broker_id, log_dirs in ((1, [901]), (2, [902, 903])):
        registered = await bench.done(register(broker_id, log_dirs=log_dirs))
        await bench.done(alive(broker_id, registered.register_broker.broker_epoch))
    await bench.done(create(assigned("clicks", {0: [1, 2]})))
    described = metadata_queries.describe_topic(bench.store.reader, name="clicks")
    assert described is not None
    assert described.partitions[0].directories == ("AAAAAAAAAAAAAAAAAAAHbQ", "AAAAAAAAAAAAAAAAAAAAAQ")


async def test_ct32_fenced_brokers_are_used_last_and_are_not_in_the_isr(bench: Bench) -> None:
    await bench.with_brokers(1)
    await bench.done(register(2))  # and no heartbeat
    await bench.done(create(creatable("clicks", 1, 2)))
    described = metadata_queries.describe_topic(bench.store.reader, name="clicks")
    assert described is not None
    assert described.partitions[0].replicas == (1, 2)
    assert described.partitions[0].isr == (1,)
    refused = await bench.run(create(assigned("only-fenced", {0: [2]})))
    assert errors(refused) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


async def test_minus_one_means_the_clusters_default(bench: Bench) -> None:
    await bench.with_brokers(1, 2, 3)
    result = await bench.done(create(creatable("small", -1, -1)))
    assert (result.create_topics.topics[0].num_partitions, result.create_topics.topics[0].replication_factor) == (1, 1)
    await bench.done(
        alter(alteration("", "num.partitions", "5", BROKER), alteration("", "default.replication.factor", "3", BROKER))
    )
    result = await bench.done(create(creatable("large", -1, -1)))
    assert (result.create_topics.topics[0].num_partitions, result.create_topics.topics[0].replication_factor) == (5, 3)


async def test_validate_only_gives_the_same_answer_and_writes_nothing(bench: Bench) -> None:
    await bench.with_brokers(1)
    end = bench.log.log_end_offset
    result = await bench.run(create("good", creatable("bad", 0), validate_only=True))
    assert errors(result) == [ErrorCode.INVALID_PARTITIONS]
    assert result.create_topics.topics[0].num_partitions == 1
    assert result.end_offset == -1
    assert bench.log.log_end_offset == end
    assert errors(await bench.run(create("good"))) == []


async def test_a_topic_that_cannot_be_created_keeps_none_of_the_others_from_it(bench: Bench) -> None:
    await bench.with_brokers(1)
    result = await bench.run(create("a", creatable("b", replication_factor=9), "c"))
    assert [topic.error_code for topic in result.create_topics.topics] == [0, ErrorCode.INVALID_REPLICATION_FACTOR, 0]
    assert [topic.name for topic in metadata_queries.list_topics(bench.store.reader)] == ["a", "c"]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (creatable(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("no spaces"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("there.is"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("there_is"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (creatable("t", 0), ErrorCode.INVALID_PARTITIONS),
        (creatable("t", -2), ErrorCode.INVALID_PARTITIONS),
        (creatable("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (creatable("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (creatable("t", configs={"no.such.config": "1"}), ErrorCode.INVALID_CONFIG),
        (
            creatable("t", configs={"remote.storage.enable": "true", "cleanup.policy": "compact"}),
            ErrorCode.INVALID_CONFIG,
        ),
        (assigned("t", {1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", {0: [1], 2: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", {-1: [1], 0: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", {0: [1, 9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", {0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", {0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", {0: [1, 2], 1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable("t", 1, -1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
        (creatable("t", -1, 1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
        (creatable("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_each_error_has_kafkas_name_and_writes_nothing(
    bench: Bench, topic: admin_pb2.CreatableTopic, error: ErrorCode
) -> None:
    await bench.with_brokers(1, 2, 3)
    await bench.done(create("there_is"))
    end = bench.log.log_end_offset
    result = await bench.run(create(topic))
    assert errors(result) == [error]
    assert result.create_topics.topics[0].name == topic.name
    assert result.create_topics.topics[0].error_message
    assert result.end_offset == -1
    assert bench.log.log_end_offset == end


async def test_a_partition_assigned_twice_or_a_config_given_twice_is_refused(bench: Bench) -> None:
    await bench.with_brokers(1)
    twice = admin_pb2.PartitionAssignment(partition_id=0, broker_ids=[1])
    topic = admin_pb2.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[twice, twice])
    assert errors(await bench.run(create(topic))) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    topic = creatable("t")
    topic.configs.extend([admin_pb2.ConfigEntry(name="retention.ms", value="1")] * 2)
    assert errors(await bench.run(create(topic))) == [ErrorCode.INVALID_CONFIG]


async def test_a_name_that_is_in_the_request_twice_is_an_invalid_request_for_both(bench: Bench) -> None:
    await bench.with_brokers(1)
    result = await bench.run(create("twice", "once", "twice"))
    assert [topic.error_code for topic in result.create_topics.topics] == [
        ErrorCode.INVALID_REQUEST,
        0,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [topic.name for topic in metadata_queries.list_topics(bench.store.reader)] == ["once"]


async def test_names_in_one_request_collide_too(bench: Bench) -> None:
    await bench.with_brokers(1)
    result = await bench.run(create("a.b", "a_b"))
    assert [topic.error_code for topic in result.create_topics.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


async def test_a_name_is_free_again_after_the_topic_that_it_collided_with_is_gone(bench: Bench) -> None:
    await bench.with_brokers(1)
    await bench.done(create("a.b"))
    await bench.done(delete("a.b"))
    await bench.done(create("a_b"))


async def test_without_brokers_there_is_no_topic(bench: Bench) -> None:
    assert errors(await bench.run(create("t"))) == [ErrorCode.INVALID_REPLICATION_FACTOR]


async def test_ct12_an_operation_of_more_records_than_a_batch_holds_is_refused_whole(bench: Bench) -> None:
    await bench.with_brokers(1)
    end = bench.log.log_end_offset
    for request in (
        create("small", creatable("large", RECORDS_PER_BATCH_MAX)),
        create(creatable("huge", 2**31 - 1)),
        create(*(f"t{number}" for number in range(RECORDS_PER_BATCH_MAX // 2 + 1))),
    ):
        result = await bench.run(request)
        assert result.error_code == ErrorCode.RECORD_LIST_TOO_LARGE
        assert "divide it" in result.error_message
    assert bench.log.log_end_offset == end
    result = await bench.done(create(creatable("fits", RECORDS_PER_BATCH_MAX - 1)))
    assert result.end_offset - end == RECORDS_PER_BATCH_MAX


async def test_ct12_more_topics_than_fit_are_refused_before_any_is_looked_at(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked_at(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("statemachine.words.repeats.repeats", looked_at)
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.CreatableTopic()] * 100_000)
    result = await bench.run(admin_pb2.Operation(create_topics=request))
    assert result.error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert not result.create_topics.topics


async def test_more_replicas_than_brokers_are_refused_before_any_is_looked_at(bench: Bench) -> None:
    await bench.with_brokers(1)
    result = await bench.run(create(assigned("t", {0: [1] * 100_000})))
    assert errors(result) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert "100000 replicas" in result.create_topics.topics[0].error_message


async def test_topic_ids_are_random_and_never_given_twice(bench: Bench) -> None:
    await bench.with_brokers(1)
    result = await bench.done(create(*(f"t{number}" for number in range(50))))
    ids = {topic.topic_id for topic in result.create_topics.topics}
    assert len(ids) == 50
    assert an_id(1) not in ids
    assert all(len(topic_id) == 16 and topic_id[6] >> 4 == 4 for topic_id in ids)
