"""Every offered version of every API has answers that can be written, to what succeeds and to what fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.runtime import awaited
from kraftlog.broker.dispatch import KEYS, Dispatch
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_quorum,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)
from kraftlog.kafka.notation import Message, Versions
from tests.kraftlog.broker.administration.world import ME, AdministrationWorld, channel_to

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMEOUT_MS = 30_000
ACL = {"resource_type_filter": 2, "operation": 1, "permission_type": 1}


def _topics(version: int) -> Message:
    topics = tuple(
        create_topics.CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=(create_topics.CreatableTopicConfig(name="retention.ms", value="5"),),
        )
        for name in (f"every-{version}", "no/name")
    )
    return create_topics.CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def _deletions(version: int) -> Message:
    names = (f"every-{version}", "missing")
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=TIMEOUT_MS)
    states = (*(delete_topics.DeleteTopicState(name=name) for name in names), delete_topics.DeleteTopicState())
    return delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)


def _growth(_: int) -> Message:
    topics = (create_partitions.CreatePartitionsTopic(name="missing", count=2, assignments=None),)
    return create_partitions.CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def _described_configs(version: int) -> Message:
    resources = tuple(
        describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((4, str(ME)), (2, "missing"))
    )
    return describe_configs.DescribeConfigsRequest(
        resources=resources, include_synonyms=True, include_documentation=version >= 3
    )


def _altered_configs(_: int) -> Message:
    configs = (incremental_alter_configs.AlterableConfig(name="num.io.threads", config_operation=0, value="4"),)
    resources = tuple(
        incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name=name, configs=configs)
        for name in (str(ME), "no broker")
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources)


def _replaced_configs(_: int) -> Message:
    configs = (alter_configs.AlterableConfig(name="num.io.threads", value="4"),)
    resources = tuple(
        alter_configs.AlterConfigsResource(resource_type=4, resource_name=name, configs=configs)
        for name in (str(ME), "no broker")
    )
    return alter_configs.AlterConfigsRequest(resources=resources)


def _elections(_: int) -> Message:
    partitions = (elect_leaders.TopicPartitions(topic="missing", partitions=(0,)),)
    return elect_leaders.ElectLeadersRequest(topic_partitions=partitions, timeout_ms=TIMEOUT_MS)


def _reassignments(version: int) -> Message:
    partitions = (alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=(ME,)),)
    topics = (alter_partition_reassignments.ReassignableTopic(name="missing", partitions=partitions),)
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, allow_replication_factor_change=version == 0, topics=topics
    )


def _altered_quotas(_: int) -> Message:
    entries = tuple(
        alter_client_quotas.EntryData(
            entity=(alter_client_quotas.EntityData(entity_type=of, entity_name=None),),
            ops=(alter_client_quotas.OpData(key="producer_byte_rate", value=5_000.0),),
        )
        for of in ("user", "planet")
    )
    return alter_client_quotas.AlterClientQuotasRequest(entries=entries)


def _described_quotas(version: int) -> Message:
    """One that is wrong in version 0."""
    component = describe_client_quotas.ComponentData(entity_type="user", match_type=1 + version, match=None)
    wrong = describe_client_quotas.ComponentData(entity_type="user", match_type=0, match=None)
    return describe_client_quotas.DescribeClientQuotasRequest(components=(component, wrong)[version == 0 :][:1])


def _created_acls(_: int) -> Message:
    creations = tuple(
        create_acls.AclCreation(
            resource_type=2,
            resource_name=name,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        )
        for name in ("every", "")
    )
    return create_acls.CreateAclsRequest(creations=creations)


def _deleted_acls(_: int) -> Message:
    filters = tuple(
        delete_acls.DeleteAclsFilter(
            resource_name_filter=None, pattern_type_filter=pattern, principal_filter=None, host_filter=None, **ACL
        )
        for pattern in (3, 0)
    )
    return delete_acls.DeleteAclsRequest(filters=filters)


def _described_acls(version: int) -> Message:
    return describe_acls.DescribeAclsRequest(
        resource_name_filter=None,
        pattern_type_filter=1 if version > 1 else 0,
        principal_filter=None,
        host_filter=None,
        **ACL,
    )


def _features(version: int) -> Message:
    updates = (update_features.FeatureUpdateKey(feature="metadata.version", max_version_level=30),)
    return update_features.UpdateFeaturesRequest(
        timeout_ms=TIMEOUT_MS, feature_updates=updates, validate_only=version > 0
    )


def _quorum(_: int) -> Message:
    partitions = (describe_quorum.PartitionData(partition_index=0),)
    topics = (describe_quorum.TopicData(topic_name="__cluster_metadata", partitions=partitions),)
    return describe_quorum.DescribeQuorumRequest(topics=topics)


BODIES: dict[str, Callable[[int], Message]] = {
    "CreateTopics": _topics,
    "DeleteTopics": _deletions,
    "CreatePartitions": _growth,
    "DescribeConfigs": _described_configs,
    "IncrementalAlterConfigs": _altered_configs,
    "AlterConfigs": _replaced_configs,
    "ElectLeaders": _elections,
    "AlterPartitionReassignments": _reassignments,
    "ListPartitionReassignments": lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(),
    "DescribeClientQuotas": _described_quotas,
    "AlterClientQuotas": _altered_quotas,
    "DescribeAcls": _described_acls,
    "CreateAcls": _created_acls,
    "DeleteAcls": _deleted_acls,
    "UpdateFeatures": _features,
    "UnregisterBroker": lambda _: unregister_broker.UnregisterBrokerRequest(broker_id=77),
    "DescribeQuorum": _quorum,
}
READ_HERE = ("DescribeConfigs", "ListPartitionReassignments", "DescribeClientQuotas", "DescribeAcls")

CASES = [(name, version) for name in BODIES for version in range(
    api_of(KEYS[name]).versions.lowest, api_of(KEYS[name]).versions.highest + 1)]  # fmt: skip


def codes_in(value: Any) -> set[int]:
    """Every error code in a message."""
    if isinstance(value, tuple):
        return set().union(*map(codes_in, value))
    names = getattr(type(value), "__annotations__", {})
    found = {getattr(value, name) for name in names if name == "error_code"}
    return found.union(*(codes_in(getattr(value, name)) for name in names if name != "error_code"))


async def test_every_handler_is_tried(world: AdministrationWorld) -> None:
    assert set(BODIES) == set(world.handlers)


@pytest.mark.parametrize(("name", "version"), CASES)
async def test_an_answer_of_the_controller_can_be_written(world: AdministrationWorld, name: str, version: int) -> None:
    response = await world.answer(BODIES[name](version), version, api_of(KEYS[name]).response)
    await world.settle()
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes_in(response)


@pytest.mark.parametrize(("name", "version"), [case for case in CASES if case[0] not in READ_HERE])
async def test_an_answer_without_a_controller_can_be_written(
    world: AdministrationWorld, name: str, version: int
) -> None:
    closed = channel_to(world.client, list(world.cluster.endpoints.values()))
    await awaited(closed.close)
    response = await world.asking(closed).answer(BODIES[name](version), version, api_of(KEYS[name]).response)
    expected = {ErrorCode.REQUEST_TIMED_OUT}
    if name in ("AlterConfigs", "IncrementalAlterConfigs"):
        expected |= {ErrorCode.INVALID_REQUEST}  # of what the broker refuses itself
    assert codes_in(response) - {0} == expected


async def test_the_versions_are_stock_kafkas(world: AdministrationWorld) -> None:
    """Kafka 4.3's brokers offer these."""
    offered = Dispatch(world.handlers, world.broker.cluster).offered
    assert {name: offered[KEYS[name]] for name in world.handlers} == {
        "CreateTopics": Versions(2, 7),
        "DeleteTopics": Versions(1, 6),
        "CreatePartitions": Versions(0, 3),
        "DescribeConfigs": Versions(1, 4),
        "IncrementalAlterConfigs": Versions(0, 1),
        "AlterConfigs": Versions(0, 2),
        "ElectLeaders": Versions(0, 2),
        "AlterPartitionReassignments": Versions(0, 1),
        "ListPartitionReassignments": Versions(0, 0),
        "DescribeClientQuotas": Versions(0, 1),
        "AlterClientQuotas": Versions(0, 1),
        "DescribeAcls": Versions(1, 3),
        "CreateAcls": Versions(1, 3),
        "DeleteAcls": Versions(1, 3),
        "UpdateFeatures": Versions(0, 2),
        "UnregisterBroker": Versions(0, 0),
        "DescribeQuorum": Versions(0, 2),
    }
