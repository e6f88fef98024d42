"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.broker.metadata.configs_in_effect import ConfigSource
from kraftlog.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kraftlog.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kraftlog.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kraftlog.kafka.notation import ZERO_UUID
from tests.kraftlog.broker.administration.world import ME, OTHER, AdministrationWorld
from tests.statemachine.builders import an_id

pytestmark = pytest.mark.asyncio(loop_scope="module")


def topic(
    name: str, partitions: int = 1, replicas: int = 1, *assigned: tuple[int, ...], **configs: str | None
) -> CreatableTopic:
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(assigned)
        ),
        configs=tuple(
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ),
    )  # fmt: skip


async def created(
    world: AdministrationWorld, *topics: CreatableTopic, version: int = 7, validate_only: bool = False,
    timeout_ms: int = 30_000,
) -> list[CreatableTopicResult]:  # fmt: skip
    body = CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)
    response = await world.answer(body, version, CreateTopicsResponse)
    await world.settle()
    return list(response.topics)


async def deleted(
    world: AdministrationWorld, *topics: DeleteTopicState, version: int = 6, timeout_ms: int = 30_000
) -> list[DeletableTopicResult]:
    named = {"topics": topics} if version >= 6 else {"topic_names": tuple(state.name for state in topics)}
    body = DeleteTopicsRequest(timeout_ms=timeout_ms, **named)
    response = await world.answer(body, version, DeleteTopicsResponse)
    await world.settle()
    return list(response.responses)


async def grown(
    world: AdministrationWorld, *topics: tuple[str, int, tuple[tuple[int, ...], ...] | None], version: int = 3,
    validate_only: bool = False,
) -> list[tuple[str, int]]:  # fmt: skip
    given = tuple(
        CreatePartitionsTopic(
            name=name, count=count,
            assignments=(
                None if assigned is None else tuple(CreatePartitionsAssignment(broker_ids=ids) for ids in assigned)
            ),
        )
        for name, count, assigned in topics
    )  # fmt: skip
    body = CreatePartitionsRequest(topics=given, timeout_ms=30_000, validate_only=validate_only)
    response = await world.answer(body, version, CreatePartitionsResponse)
    await world.settle()
    return [(result.name, result.error_code) for result in response.results]


# --- CreateTopics -----------------------------------------------------------------------------------------------------


async def test_a_topic_is_created_and_shown_with_its_configs(world: AdministrationWorld) -> None:
    (made,) = await created(world, topic("made", 3, 2, retention_bytes="1000"))
    assert (made.error_code, made.error_message) == (ErrorCode.NONE, None)
    assert (made.num_partitions, made.replication_factor) == (3, 2)
    view = world.broker.cluster.topic_named("made")
    assert view is not None
    assert (len(view.partitions), view.topic_id) == (3, made.topic_id)
    shown = {config.name: (config.value, config.config_source) for config in made.configs or ()}
    assert shown["retention.bytes"] == ("1000", ConfigSource.TOPIC)
    assert shown["retention.ms"] == ("70000", ConfigSource.FILE), "as this broker's file has it"
    assert shown["max.message.bytes"] == ("1048588", ConfigSource.DEFAULT)


async def test_the_clusters_defaults_and_an_assignment_of_its_own(world: AdministrationWorld) -> None:
    results = await created(world, topic("default", -1, -1), topic("assigned", -1, -1, (2, 1), (1, 2)))
    assert [(made.name, made.num_partitions, made.replication_factor) for made in results] == [
        ("default", 1, 1),
        ("assigned", 2, 2),
    ]
    view = world.broker.cluster.topic_named("assigned")
    assert view is not None
    assert [list(partition.replicas) for partition in view.partitions] == [[OTHER, ME], [ME, OTHER]]


async def test_each_topic_has_its_own_error(world: AdministrationWorld) -> None:
    await created(world, topic("there"))
    results = await created(
        world,
        topic("there"),
        topic("twice"),
        topic("twice", 2),
        topic("no/name"),
        topic("few", 0),
        topic("many", 1, 3),
        topic("counted", 1, 1, (1,)),
        topic("nowhere", -1, -1, (7,)),
        topic("odd", retention_ms="soon"),
        topic("empty", retention_ms=None),
        topic("__cluster_metadata"),
        topic("fine"),
    )
    assert {result.name: result.error_code for result in results} == {
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "twice": ErrorCode.INVALID_REQUEST,
        "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "few": ErrorCode.INVALID_PARTITIONS,
        "many": ErrorCode.INVALID_REPLICATION_FACTOR,
        "counted": ErrorCode.INVALID_REQUEST,
        "nowhere": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "odd": ErrorCode.INVALID_CONFIG,
        "empty": ErrorCode.INVALID_CONFIG,
        "__cluster_metadata": ErrorCode.INVALID_REQUEST,
        "fine": ErrorCode.NONE,
    }
    assert len(results) == 11, "a name that is given twice is answered once"
    refused = results[0]
    assert (refused.num_partitions, refused.replication_factor, refused.topic_id) == (-1, -1, ZERO_UUID)
    assert all(result.error_message for result in results[:-1])


@pytest.mark.parametrize("version", range(2, 8))
async def test_every_version_creates_or_only_validates(world: AdministrationWorld, version: int) -> None:
    name = f"in-version-{version}"
    (checked,) = await created(world, topic(name), version=version, validate_only=True)
    assert checked.error_code == ErrorCode.NONE
    assert world.broker.cluster.topic_named(name) is None
    first, refused = await created(world, topic(name, -1, -1), topic("no/name"), version=version)
    assert (first.error_code, refused.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert first.num_partitions == (1 if version >= 5 else -1)
    assert bool(first.configs) == (version >= 5)
    assert (first.topic_id != ZERO_UUID) == (version >= 7)


async def test_without_time_nothing_is_done(world: AdministrationWorld) -> None:
    (late,) = await created(world, topic("late"), timeout_ms=0)
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert world.broker.cluster.topic_named("late") is None


# --- DeleteTopics -----------------------------------------------------------------------------------------------------


async def test_topics_are_deleted_by_name_or_id(world: AdministrationWorld) -> None:
    by_name, by_id, both = await created(world, topic("by-name"), topic("by-id"), topic("both"))
    unknown = an_id(900)
    results = await deleted(
        world,
        DeleteTopicState(name="by-name"),
        DeleteTopicState(name=None, topic_id=by_id.topic_id),
        DeleteTopicState(name="both", topic_id=both.topic_id),
        DeleteTopicState(name=None),
        DeleteTopicState(name="missing"),
        DeleteTopicState(name=None, topic_id=unknown),
        DeleteTopicState(name="twice"),
        DeleteTopicState(name="twice"),
    )
    assert [(result.name, result.topic_id, result.error_code) for result in results] == [
        ("by-name", by_name.topic_id, ErrorCode.NONE),
        ("by-id", by_id.topic_id, ErrorCode.NONE),
        ("both", both.topic_id, ErrorCode.INVALID_REQUEST),
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
        ("missing", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
        ("twice", ZERO_UUID, ErrorCode.INVALID_REQUEST),
    ]
    view = world.broker.cluster
    assert [view.topic_named(name) is None for name in ("by-name", "by-id", "both")] == [True, True, False]


@pytest.mark.parametrize("version", range(1, 7))
async def test_every_version_deletes(world: AdministrationWorld, version: int) -> None:
    name = f"deleted-in-{version}"
    await created(world, topic(name))
    results = await deleted(world, DeleteTopicState(name=name), DeleteTopicState(name="missing"), version=version)
    assert [(result.name, result.error_code) for result in results] == [
        (name, ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert world.broker.cluster.topic_named(name) is None


@pytest.mark.parametrize("version", [1, 6])
async def test_a_deletion_without_time_is_not_done(world: AdministrationWorld, version: int) -> None:
    await created(world, topic("kept"))
    (result,) = await deleted(world, DeleteTopicState(name="kept"), version=version, timeout_ms=0)
    assert (result.name, result.error_code) == ("kept", ErrorCode.REQUEST_TIMED_OUT)
    assert world.broker.cluster.topic_named("kept") is not None


# --- CreatePartitions -------------------------------------------------------------------------------------------------


async def test_each_topic_grows_or_has_its_own_error(world: AdministrationWorld) -> None:
    names = ("grows", "placed", "stays", "none-assigned", "too-few")
    await created(world, *map(topic, names))
    results = await grown(
        world,
        ("grows", 3, ((OTHER,), (ME,))),
        ("placed", 2, None),
        ("stays", 1, None),
        ("none-assigned", 2, ()),
        ("too-few", 3, ((ME,),)),
        ("missing", 2, None),
        ("twice", 2, None),
        ("twice", 3, None),
    )
    assert results == [
        ("grows", ErrorCode.NONE),
        ("placed", ErrorCode.NONE),
        ("stays", ErrorCode.INVALID_PARTITIONS),
        ("none-assigned", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("too-few", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    view = world.broker.cluster.topic_named("grows")
    assert view is not None
    assert [list(partition.replicas) for partition in view.partitions[1:]] == [[OTHER], [ME]]


@pytest.mark.parametrize("version", range(4))
async def test_every_version_grows_or_only_validates(world: AdministrationWorld, version: int) -> None:
    name = f"grows-in-{version}"
    await created(world, topic(name))
    for validate_only, count in ((True, 1), (False, 2)):
        results = await grown(
            world, (name, 2, None), ("missing", 2, None), version=version, validate_only=validate_only
        )
        assert [code for _, code in results] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        view = world.broker.cluster.topic_named(name)
        assert view is not None
        assert len(view.partitions) == count
