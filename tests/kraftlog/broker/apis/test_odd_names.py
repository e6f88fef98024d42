"""Names that no topic can have are answered (DB-115, DB-116)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return BrokerWorld(tmp_path, [registration(1), topic("clicks"), replicas()])


@pytest.mark.parametrize("version", [4, 12])
def test_db115_no_topic_has_an_empty_name(world: BrokerWorld, version: int) -> None:
    world.read((0, 0), name="", version=version)
    assert [part.error_code for part in world.fetched()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_db116_a_name_that_was_no_utf8_is_answered(world: BrokerWorld) -> None:
    body = MetadataRequest(topics=(MetadataRequestTopic(name="a\ufffdb"),), allow_auto_topic_creation=False)
    (found,) = world.answer_to(world.metadata.handle, body, 8, MetadataResponse).topics
    assert (found.name, found.error_code) == ("a\ufffdb", ErrorCode.INVALID_TOPIC_EXCEPTION)
