"""Refusals in the words of Kafka and of the client's version, and what configs mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.admin.client.client import NewTopic
from kraftlog.broker.config_documentation import BROKER_DOCUMENTATION, TOPIC_DOCUMENTATION
from kraftlog.broker.settings import STATIC_CONFIGS
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.kafka.messages import alter_client_quotas
from kraftlog.kafka.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, OpData
from kraftlog.kafka.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from kraftlog.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kraftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kraftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kraftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from statemachine.words.config_definitions import BROKER_CONFIGS, TOPIC_CONFIGS
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from tests.kraftlog.broker.administration.world import AdministrationWorld, administration_world

TIMEOUT_MS = 30_000
TOPIC, BROKER = 2, 4
in_module = pytest.mark.asyncio(loop_scope="module")


# --- what configs mean ------------------------------------------------------------------------------------------------


def test_every_config_is_documented() -> None:
    assert TOPIC_DOCUMENTATION.keys() == TOPIC_CONFIGS.keys()
    identity = {"advertised.listeners", "broker.id", "broker.rack", "listeners", "log.dirs", "node.id"}
    assert BROKER_DOCUMENTATION.keys() == {*BROKER_CONFIGS, *STATIC_CONFIGS, *identity}


async def documentation(
    world: AdministrationWorld, kind: int, name: str, version: int, *, is_asked_for: bool
) -> set[bool]:
    """Whether configs of a resource come with what they mean: all, none, or some."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    body = DescribeConfigsRequest(resources=(resource,), include_documentation=is_asked_for)
    (result,) = (await world.answer(body, version, DescribeConfigsResponse)).results
    assert result.error_code == ErrorCode.NONE
    return {bool(config.documentation) for config in result.configs}


@in_module
async def test_who_asks_is_told_what_every_config_means(world: AdministrationWorld) -> None:
    await world.client.create_topics([NewTopic("documented")])
    await world.settle()
    for kind, name in ((TOPIC, "documented"), (BROKER, "1")):
        for version in (3, 4):
            assert await documentation(world, kind, name, version, is_asked_for=True) == {True}
            assert await documentation(world, kind, name, version, is_asked_for=False) == {False}
        assert await documentation(world, kind, name, 2, is_asked_for=False) == {False}


# --- refusals ---------------------------------------------------------------------------------------------------------


@in_module
async def test_ct12_more_than_a_batch_holds_is_against_the_policy(world: AdministrationWorld) -> None:
    wide = CreatableTopic(name="wide", num_partitions=RECORDS_PER_BATCH_MAX + 1, replication_factor=1)
    created = await world.answer(CreateTopicsRequest(topics=(wide,), timeout_ms=TIMEOUT_MS), 7, CreateTopicsResponse)
    assert [topic.error_code for topic in created.topics] == [ErrorCode.POLICY_VIOLATION]
    entry = AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    many = RECORDS_PER_BATCH_MAX + 1
    allowed = await world.answer(CreateAclsRequest(creations=(entry,) * many), 3, CreateAclsResponse)
    assert [result.error_code for result in allowed.results] == [ErrorCode.POLICY_VIOLATION] * many


@in_module
async def test_an_entity_is_the_same_whichever_of_its_parts_comes_first(world: AdministrationWorld) -> None:
    parts = [("user", "twice"), ("client-id", "twice")]
    entries = tuple(
        alter_client_quotas.EntryData(
            entity=tuple(alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
            ops=(OpData(key=key, value=1.0, remove=False),),
        )
        for entity, key in ((parts, "producer_byte_rate"), (parts[::-1], "no_such_rate"))
    )
    response = await world.answer(AlterClientQuotasRequest(entries=entries), 1, AlterClientQuotasResponse)
    assert [entry.error_code for entry in response.entries] == [ErrorCode.INVALID_REQUEST]


async def test_ct20_a_client_over_its_quota_is_told_so_if_its_version_knows_it(tmp_path: Path) -> None:
    slow = ControllerConfig(
        broker_session_timeout_ms=3_600_000, controller_mutation_rate=0.000_1, controller_mutation_burst=1
    )
    async with administration_world(tmp_path, slow) as world:
        await world.client.create_topics([NewTopic("first", num_partitions=3)])
        told = {}
        topic = CreatableTopic(name="second", num_partitions=1, replication_factor=1)
        for version in (5, 6):
            creation = CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS)
            told["create", version] = (await world.answer(creation, version, CreateTopicsResponse)).topics[0].error_code
        for version in (4, 5, 6):
            deletion = DeleteTopicsRequest(topic_names=("first",), timeout_ms=TIMEOUT_MS)
            if version == 6:
                deletion = DeleteTopicsRequest(topics=(DeleteTopicState(name="first"),), timeout_ms=TIMEOUT_MS)
            deleted = await world.answer(deletion, version, DeleteTopicsResponse)
            told["delete", version] = deleted.responses[0].error_code
        for version in (2, 3):
            grown = CreatePartitionsTopic(name="first", count=4, assignments=None)
            growth = CreatePartitionsRequest(topics=(grown,), timeout_ms=TIMEOUT_MS)
            told["grow", version] = (
                (await world.answer(growth, version, CreatePartitionsResponse)).results[0].error_code
            )
        late, throttled = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert told == {
            ("create", 5): late, ("create", 6): throttled, ("delete", 4): late, ("delete", 5): throttled,
            ("delete", 6): throttled, ("grow", 2): late, ("grow", 3): throttled,
        }  # fmt: skip
        assert all(world.throttles)
