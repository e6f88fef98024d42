"""ApiVersions: what a broker offers, told to clients of every age."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.broker.apis.api_versions import ApiVersionsApi
from kraftlog.broker.dispatch import Dispatch
from kraftlog.kafka.apis import OWN_NAMES
from kraftlog.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.kafka.notation import Versions
from kraftpb.v1.metadata_pb2 import FeatureLevelRecord, MetadataRecord
from statemachine.words.features import METADATA_VERSION, SUPPORTED
from tests.kraftlog.broker.broker_world import BrokerWorld

LEVEL = MetadataRecord(feature_level=FeatureLevelRecord(name=METADATA_VERSION, level=25))


def test_versions_that_kafka_does_not_offer_by_default_are_not_offered(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    dispatch = Dispatch({"InitProducerId": world.produce.handle, "Produce": world.produce.handle}, world.cluster)
    assert {key: str(versions) for key, versions in dispatch.offered.items()} == {22: "0-5", 0: "3-13", 18: "0-4"}


def answered(
    world: BrokerWorld, version: int, name: str = "librdkafka", software: str = "2.16.0"
) -> ApiVersionsResponse:
    api = ApiVersionsApi({18: Versions(0, 4), 0: Versions(3, 13)}, world.cluster)
    body = ApiVersionsRequest()
    if version >= 3:
        body = ApiVersionsRequest(client_software_name=name, client_software_version=software)
    return world.answer_to(api.handle, body, version, ApiVersionsResponse)


@pytest.mark.parametrize("version", range(5))
def test_features_are_told_to_those_who_can_read_them(tmp_path: Path, version: int) -> None:
    world = BrokerWorld(tmp_path, [LEVEL])
    response = answered(world, version)
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(0, 3, 13), (18, 0, 4)]
    least = {3: 1, 4: 0}.get(version)
    told = [of.name for of in SUPPORTED if least is not None and of.min_level >= least]
    assert [key.name for key in response.supported_features] == told
    finalized = [(key.name, key.min_version_level, key.max_version_level) for key in response.finalized_features]
    assert finalized == ([(METADATA_VERSION, 25, 25)] if version >= 3 else [])
    assert response.finalized_features_epoch == (1 if version >= 3 else -1)


@pytest.mark.parametrize(
    ("version", "name", "is_told"), [(3, "kraftlog", True), (4, "librdkafka", False), (2, "", False)]
)
def test_only_our_own_client_is_told_of_an_api_that_no_kafka_has(
    tmp_path: Path, version: int, name: str, is_told: bool
) -> None:
    own = min(OWN_NAMES)
    world = BrokerWorld(tmp_path)
    dispatch = Dispatch({OWN_NAMES[own]: world.produce.handle}, world.cluster)
    assert own in dispatch.offered  # it is answered, whoever asks
    body = ApiVersionsRequest()
    if name:
        body = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    response = world.answer_to(dispatch.handle, body, version, ApiVersionsResponse)
    assert [of.api_key for of in response.api_keys] == ([18, own] if is_told else [18])


@pytest.mark.parametrize(
    ("name", "software"), [("", "1"), ("no good", "1"), ("-a", "1"), ("a", ""), ("a", "1."), ("a\n", "1")]
)
def test_software_without_a_proper_name_is_refused(tmp_path: Path, name: str, software: str) -> None:
    assert answered(BrokerWorld(tmp_path), 3, name, software).error_code == ErrorCode.INVALID_REQUEST
