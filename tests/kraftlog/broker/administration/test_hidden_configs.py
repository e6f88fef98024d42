"""Configs that are in the metadata of a cluster that was Kafka's, and are not known here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraftlog.broker.apis.configs import DescribeConfigsApi
from kraftlog.broker.metadata.configs_in_effect import ConfigsInEffect, ConfigSource, ConfigType
from kraftlog.broker.settings import BrokerSettings
from kraftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kraftpb.v1.metadata_pb2 import ConfigRecord, MetadataRecord
from statemachine.query.descriptions import BrokerListener
from tests.kraftlog.broker.broker_world import ME, BrokerWorld

BROKER = 4


def password(resource_name: str) -> MetadataRecord:
    record = ConfigRecord(
        resource_type=BROKER, resource_name=resource_name, name="ssl.key.password", value="secret"
    )  # fmt: skip
    return MetadataRecord(config=record)


@pytest.mark.parametrize(
    ("asked", "sources"),
    [("", [ConfigSource.ALL_BROKERS]), (str(ME), [ConfigSource.BROKER, ConfigSource.ALL_BROKERS])],
)
def test_what_may_be_a_password_is_never_shown(tmp_path: Path, asked: str, sources: list[ConfigSource]) -> None:
    world = BrokerWorld(tmp_path, [password(""), password(str(ME))])
    settings = BrokerSettings(
        broker_id=ME, directory=tmp_path, listeners=(BrokerListener("PLAINTEXT", "127.0.0.1", 0),)
    )  # fmt: skip
    api = DescribeConfigsApi(replace(world.services, configs=ConfigsInEffect(settings, world.cluster)))
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name=asked, configuration_keys=None)
    body = DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
    (result,) = world.answer_to(api.handle, body, 4, DescribeConfigsResponse).results
    (hidden,) = [config for config in result.configs if config.name == "ssl.key.password"]
    assert (hidden.value, hidden.is_sensitive, hidden.config_type) == (None, True, ConfigType.UNKNOWN)
    assert [(of.value, of.source) for of in hidden.synonyms] == [(None, source) for source in sources]
