"""Kafka's own client library administrates a cluster through a running broker's listener."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.kraftlog.broker.administration.world import AdministrationWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def done(futures: Mapping[Any, Future[Any]]) -> list[Any]:
    """The results; raises what the client does."""
    return [await asyncio.wrap_future(future) for future in futures.values()]


async def test_topics_configs_and_acls(world: AdministrationWorld) -> None:
    port = world.broker.ports["PLAINTEXT"]
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    await done(admin.create_topics([NewTopic("theirs", 2, 1, config={"retention.ms": "5"})]))
    await world.settle()
    resource = ConfigResource(ResourceType.TOPIC, "theirs")
    (configs,) = await done(admin.describe_configs([resource]))
    assert (configs["retention.ms"].value, configs["retention.bytes"].value) == ("5", "-1")
    entry = ConfigEntry("retention.ms", "6", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "theirs", incremental_configs=[entry])
    await done(admin.incremental_alter_configs([resource]))
    await done(admin.create_partitions([NewPartitions("theirs", 3)]))
    await world.settle()
    (configs,) = await done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "theirs")]))
    assert configs["retention.ms"].value == "6"
    metadata = await asyncio.to_thread(admin.list_topics, "theirs", 30)
    assert len(metadata.topics["theirs"].partitions) == 3
    pattern = (ResourceType.TOPIC, "theirs", ResourcePatternType.LITERAL)
    allowed = (AclOperation.READ, AclPermissionType.ALLOW)
    acl = AclBinding(*pattern, "User:alice", "*", *allowed)
    await done(admin.create_acls([acl]))
    await world.settle()
    mine = AclBindingFilter(*pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)
    assert await asyncio.wrap_future(admin.describe_acls(mine)) == [acl]
    assert await done(admin.delete_acls([mine])) == [[acl]]
    await done(admin.delete_topics(["theirs"]))
    await world.settle()
    assert world.broker.cluster.topic_named("theirs") is None
