"""What CreateTopics, CreatePartitions and DeleteTopics refuse (CT-21 to CT-23, CT-12, CT-20, CT-32)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftbase.ids import id_to_text
from kraftlog.controller.operations.topics import PolicyViolation, TopicToCreate
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import ConfigEntry, Operation, PartitionAssignment, TopicReference
from tests.kraftlog.controller.errors.cases import Case, provokes, refused
from tests.kraftlog.controller.errors.world import QUIET, World, changed, running_world
from tests.statemachine.builders import an_id, assigned, creatable, create, delete

pytestmark = pytest.mark.asyncio(loop_scope="module")


def no_secrets(topic: TopicToCreate) -> None:
    if topic.name.startswith("secret"):
        raise PolicyViolation(f"{topic.num_partitions} partitions of it would be too many")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Brokers 1 to 3 alive, 4 and 5 fenced, a topic, another that is being reassigned, and a policy."""
    config = changed(QUIET, create_topic_policy=no_secrets)
    async with running_world(tmp_path_factory.mktemp("topics"), config) as world:
        await world.with_brokers(1, 2, 3, fenced=(4, 5))
        await world.done(create("there_is"))
        await world.settle()
        yield world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def closed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """All brokers are fenced, and delete.topic.enable is false."""
    async with running_world(tmp_path_factory.mktemp("closed"), changed(QUIET, delete_topic_enable=False)) as world:
        await world.with_brokers(1)
        await world.done(create("there_is"))
        await world.fence(1)
        await world.settle()
        yield world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def throttled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A client named "busy" has created more partitions than it may in an hour."""
    config = changed(QUIET, controller_mutation_rate=0.001, controller_mutation_burst=1)
    async with running_world(tmp_path_factory.mktemp("throttled"), config) as world:
        await world.with_brokers(1)
        await world.done(by("busy", create(creatable("there_is", 5))))
        await world.settle()
        yield world


def reassigning(topic: str, *replicas: int) -> Operation:
    asked = admin_pb2.PartitionReassignment(topic=topic)
    asked.replicas.ids.extend(replicas)
    request = admin_pb2.AlterPartitionReassignmentsRequest(partitions=[asked])
    return Operation(alter_partition_reassignments=request)


def growing(topic: str, count: int, *assignments: Sequence[int], repeated: int = 1) -> Operation:
    """CreatePartitions: this many partitions in all, the new ones on these brokers."""
    grown = admin_pb2.PartitionsOfTopic(name=topic, count=count)
    for broker_ids in assignments:
        grown.assignments.add(ids=broker_ids)
    return Operation(create_partitions=admin_pb2.CreatePartitionsRequest(topics=[grown] * repeated))


def deleting(*references: TopicReference) -> Operation:
    return Operation(delete_topics=admin_pb2.DeleteTopicsRequest(topics=references))


def by(client_id: str, operation: Operation) -> Operation:
    operation.client_id = client_id
    return operation


def with_twice(config: ConfigEntry) -> Operation:
    topic = creatable("t")
    topic.configs.extend([config, config])
    return create(topic)


def assigned_twice(partition_id: int) -> Operation:
    topic = creatable("t", -1, -1)
    topic.assignments.extend([PartitionAssignment(partition_id=partition_id, broker_ids=[1])] * 2)
    return create(topic)


LONG_NAME = "x" * 250

NAMES = [
    Case("CreateTopics: exists", ErrorCode.TOPIC_ALREADY_EXISTS, create("there_is"), "'there_is'"),
    *[
        Case(f"CreateTopics: name {what}", ErrorCode.INVALID_TOPIC_EXCEPTION, create(name), *words)
        for what, name, *words in (
            ("empty", "", "needs a name"),
            ("of dots", ".", "'.'"),
            ("of dots", "..", "'..'"),
            ("too long", LONG_NAME, "'xxx", "250 characters", "249"),
            ("illegal", "no/slash", "'no/slash'"),
            ("illegal", "é", "'é'"),
            ("collides", "there.is", "'there.is'", "'there_is'"),
        )
    ],
    Case("CreateTopics: name of the metadata", ErrorCode.INVALID_REQUEST, create("__cluster_metadata"), "__cluster"),
    Case("CreateTopics: repeated", ErrorCode.INVALID_REQUEST, create("t", "t"), "'t'", "more than once"),
]

COUNTS = [
    *[
        Case(f"CreateTopics: {what}", error, create(topic), "topic 't'", *words)
        for what, error, topic, *words in (
            ("replication factor", ErrorCode.INVALID_REPLICATION_FACTOR, creatable("t", 1, 0), "factor is 0"),
            ("replication factor", ErrorCode.INVALID_REPLICATION_FACTOR, creatable("t", 1, -2), "factor is -2"),
            ("more replicas than brokers", ErrorCode.INVALID_REPLICATION_FACTOR, creatable("t", 1, 6), "6", "5 are"),
            ("partitions", ErrorCode.INVALID_PARTITIONS, creatable("t", 0), "partitions is 0"),
            ("partitions", ErrorCode.INVALID_PARTITIONS, creatable("t", -2), "partitions is -2"),
        )
    ],
    Case("CT-12: too many records", ErrorCode.RECORD_LIST_TOO_LARGE, create(creatable("t", 10_000)), "10001", "10000"),
]

ASSIGNMENTS = [
    *[
        Case(
            f"CreateTopics: assignment {what}",
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            create(assigned("t", given)),
            "topic 't'",
            *words,
        )
        for what, given, *words in (
            ("not from 0 without a gap", {1: [1]}, "partition 0", "partition 1"),
            ("not from 0 without a gap", {0: [1], 2: [1]}, "partition 1", "partition 2"),
            ("to an unknown broker", {0: [1], 1: [9]}, "partition 1", "broker 9"),
            ("to a broker twice", {0: [2, 2]}, "partition 0", "broker 2"),
            ("empty", {0: [1], 1: []}, "partition 1", "no replicas"),
            ("of different sizes", {0: [1, 2], 1: [1]}, "partition 1", "1 replicas"),
            ("to fenced brokers", {0: [1], 1: [4, 5]}, "partition 1", "fenced"),
            ("to more brokers than there are", {0: [1, 2, 3, 4, 5, 6]}, "partition 0", "6 replicas", "5 brokers"),
        )
    ],
    *[
        Case(
            "CreateTopics: assignment and counts",
            ErrorCode.INVALID_REQUEST,
            create(creatable("t", *counts, assignments={0: [1]})),
            "topic 't'",
            *words,
        )
        for counts, *words in (((1, -1), "partitions, 1,"), ((-1, 3), "factor, 3,"))
    ],
    Case(
        "CreateTopics: assignment of a partition twice",
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        assigned_twice(0),
        "topic 't'",
        "partition 0",
    ),
]

BEYOND_THE_DEFAULT = {"remote.storage.enable": "true", "local.retention.ms": "2592000000"}

CONFIGS_AND_POLICY = [
    *[
        Case(f"CreateTopics: config {what}", ErrorCode.INVALID_CONFIG, operation, "topic 't'", *words)
        for what, operation, *words in (
            ("bad", create(creatable("t", configs={"retention.ms": "soon"})), "retention.ms", "'soon'"),
            ("bad", create(creatable("t", configs={"no.such": "1"})), "'no.such'"),
            ("bad", create(creatable("t", configs=BEYOND_THE_DEFAULT)), "retention.ms=604800000 (the default)"),
            ("bad", with_twice(ConfigEntry(name="retention.ms", value="1")), "'retention.ms'"),
            ("null", create(creatable("t", configs={"retention.ms": None})), "retention.ms"),
        )
    ],
    Case(
        "CreateTopics: policy",
        ErrorCode.POLICY_VIOLATION,
        create(creatable("secret", 7)),
        "topic 'secret'",
        "7 partitions of it would be too many",
    ),
]

CREATIONS = [*NAMES, *COUNTS, *ASSIGNMENTS, *CONFIGS_AND_POLICY]

DELETIONS = [
    Case("DeleteTopics: unknown name", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, delete("none"), "'none'"),
    Case("DeleteTopics: unknown id", ErrorCode.UNKNOWN_TOPIC_ID, delete(ids=[an_id(5)]), id_to_text(an_id(5))),
    *[
        Case("DeleteTopics: neither name nor id, or both", ErrorCode.INVALID_REQUEST, deleting(reference), *words)
        for reference, *words in (
            (TopicReference(name="there_is", topic_id=an_id(5)), "'there_is'", "not both"),
            (TopicReference(), "neither name nor id"),
            (TopicReference(topic_id=b"short"), b"short".hex()),
        )
    ],
    Case("DeleteTopics: repeated", ErrorCode.INVALID_REQUEST, delete("there_is", "there_is"), "'there_is'"),
]

GROWTH = [
    *[
        Case("CreatePartitions: count", ErrorCode.INVALID_PARTITIONS, growing("there_is", count), "'there_is'", *words)
        for count, *words in (
            (1, "1 partitions", "1 is not an increase"),
            (0, "0 is not an increase"),
            (-1, "-1 is not an increase"),
            (10_000, "10000", "9999"),
        )
    ],
    *[
        Case(
            f"CreatePartitions: assignment {what}",
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            growing("there_is", 3, *given),
            "topic 'there_is'",
            *words,
        )
        for what, given, *words in (
            ("length", [[1]], "2 partitions are added", "1 are assigned"),
            ("length", [[1], [2], [3]], "2 partitions are added", "3 are assigned"),
            ("replication factor", [[1], [1, 2]], "partition 2", "2 replicas", "factor of 1"),
            ("brokers", [[1], [9]], "partition 2", "broker 9"),
            ("brokers", [[1], [1, 1]], "partition 2", "broker 1"),
            ("brokers", [[], [1]], "partition 1", "no replicas"),
            ("brokers", [[1], [4]], "partition 2", "fenced"),
        )
    ],
    Case("CreatePartitions: unknown topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, growing("none", 2), "'none'"),
    Case("CreatePartitions: repeated", ErrorCode.INVALID_REQUEST, growing("there_is", 2, repeated=2), "'there_is'"),
]


@refused([*CREATIONS, *DELETIONS, *GROWTH])
async def test_what_a_topic_may_not_be_is_refused(world: World, case: Case) -> None:
    await world.refuses(case)


def only_validate(operation: Operation) -> None:
    kind = operation.WhichOneof("operation") or ""
    getattr(operation, kind).validate_only = True


@refused([*CREATIONS, *GROWTH])
async def test_who_only_asks_gets_the_same_answer(world: World, case: Case) -> None:
    await world.refuses(case, spoil=only_validate)


@refused(
    [
        Case(
            "DeleteTopics: disabled",
            ErrorCode.TOPIC_DELETION_DISABLED,
            delete("there_is", "none"),
            "'there_is'",
            "'none'",
            "delete.topic.enable",
        ),
        Case(
            "CT-32: all brokers are fenced",
            ErrorCode.INVALID_REPLICATION_FACTOR,
            create("t"),
            "topic 't'",
            "all brokers are fenced",
        ),
        Case(
            "CT-32: all brokers are fenced",
            ErrorCode.INVALID_REPLICATION_FACTOR,
            growing("there_is", 2),
            "topic 'there_is'",
            "all brokers are fenced",
        ),
    ]
)
async def test_what_a_cluster_does_not_do_now_is_refused(closed: World, case: Case) -> None:
    await closed.refuses(case)


THROTTLED = [
    Case("CT-20: CreateTopics", ErrorCode.THROTTLING_QUOTA_EXCEEDED, create(creatable("t", 3)), "topic 't'", "other 3"),
    Case(
        "CT-20: CreatePartitions",
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        growing("there_is", 7),
        "topic 'there_is'",
        "other 2",
    ),
    Case(
        "CT-20: DeleteTopics",
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        delete("there_is"),
        "topic 'there_is'",
        "try again in",
    ),
]


@refused(THROTTLED)
async def test_ct20_who_has_created_too_many_partitions_waits(throttled: World, case: Case) -> None:
    await throttled.refuses(case, spoil=lambda operation: by("busy", operation))


async def test_ct20_other_clients_do_not_wait_with_it(throttled: World) -> None:
    await throttled.done(by("idle", create("of-another")))


@provokes("CT-20: client id too long", ErrorCode.INVALID_REQUEST)
async def test_a_client_id_that_is_too_long_to_be_remembered_is_refused(throttled: World) -> None:
    operation = by("x" * 1_001, create("t"))
    await throttled.refuses(Case("CT-20: client id too long", ErrorCode.INVALID_REQUEST, operation, "1001", "'xxx"))
