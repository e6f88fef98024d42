"""UpdateFeatures, UnregisterBroker and DescribeQuorum."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from kraftlog.kafka.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from kraftlog.kafka.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from statemachine.words.features import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION
from tests.kraftlog.broker.administration.world import AdministrationWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")

UPGRADE, SAFE_DOWNGRADE = 1, 2


async def updated(
    world: AdministrationWorld, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> tuple[int, list[str]]:
    """The error, and the features that the answer names."""
    given = tuple(
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        if version
        else FeatureUpdateKey(feature=name, max_version_level=level, allow_downgrade=kind == SAFE_DOWNGRADE)
        for name, level, kind in updates
    )
    body = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=given, validate_only=validate_only)
    response = await world.answer(body, version, UpdateFeaturesResponse)
    await world.settle()
    assert bool(response.error_message) == bool(response.error_code)
    return response.error_code, [result.feature for result in response.results]


@pytest.mark.parametrize("version", range(3))
async def test_a_feature_is_turned_off_and_on(world: AdministrationWorld, version: int) -> None:
    name = ELIGIBLE_LEADER_REPLICAS
    named = [name] if version < 2 else []
    for level, kind in ((0, SAFE_DOWNGRADE), (1, UPGRADE)):
        if version:
            assert await updated(world, (name, level, kind), version=version, validate_only=True) == (0, named)
            assert world.broker.cluster.features.get(name, 0) == 1 - level
        assert await updated(world, (name, level, kind), version=version) == (0, named)
        assert world.broker.cluster.features.get(name, 0) == level


@pytest.mark.parametrize("version", range(3))
async def test_all_features_are_updated_or_none(world: AdministrationWorld, version: int) -> None:
    before = dict(world.broker.cluster.features)
    for refused in ((METADATA_VERSION, 99, UPGRADE), ("no.such", 1, UPGRADE), (METADATA_VERSION, 20, UPGRADE)):
        code = await updated(world, (ELIGIBLE_LEADER_REPLICAS, 0, SAFE_DOWNGRADE), refused, version=version)
        assert code == (ErrorCode.INVALID_UPDATE_VERSION, [])
    twice = (ELIGIBLE_LEADER_REPLICAS, 0, SAFE_DOWNGRADE)
    assert await updated(world, twice, twice, version=version) == (ErrorCode.INVALID_REQUEST, [])
    assert world.broker.cluster.features == before


async def test_a_broker_is_unregistered_once(world: AdministrationWorld) -> None:
    await world.client.register_broker(5, [("PLAINTEXT", "localhost", 9_995)])
    for code in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED):
        response = await world.answer(UnregisterBrokerRequest(broker_id=5), 0, UnregisterBrokerResponse)
        assert (response.error_code, bool(response.error_message)) == (code, bool(code))
        await world.settle()
        assert 5 not in world.broker.cluster.brokers


@pytest.mark.parametrize("version", range(3))
async def test_the_quorum_is_described(world: AdministrationWorld, version: int) -> None:
    topic = TopicData(topic_name="__cluster_metadata", partitions=(PartitionData(partition_index=0),))
    response = await world.answer(DescribeQuorumRequest(topics=(topic,)), version, DescribeQuorumResponse)
    assert response.error_code == ErrorCode.NONE
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, 1)
    assert partition.high_watermark > 0
    (voter,) = partition.current_voters
    assert voter.replica_id == 1
    assert voter.log_end_offset >= partition.high_watermark
    if version >= 2:
        endpoint = world.cluster.endpoints[1]
        (node,) = response.nodes
        assert [(at.host, at.port) for at in node.listeners] == [(endpoint.host, endpoint.port)]


@pytest.mark.parametrize("version", range(3))
async def test_no_other_partition_has_a_quorum(world: AdministrationWorld, version: int) -> None:
    for name, indexes in (("clicks", (0,)), ("__cluster_metadata", (1,)), ("__cluster_metadata", (0, 1))):
        partitions = tuple(PartitionData(partition_index=index) for index in indexes)
        body = DescribeQuorumRequest(topics=(TopicData(topic_name=name, partitions=partitions),))
        response = await world.answer(body, version, DescribeQuorumResponse)
        assert {part.error_code for part in response.topics[0].partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
