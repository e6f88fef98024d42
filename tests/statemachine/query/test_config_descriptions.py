"""The configs of a topic or broker, and where each value is set."""

from __future__ import annotations

import pytest

from kraftpb.v1.admin_pb2 import DescribedConfig
from statemachine.query.config_descriptions import describe_configs
from statemachine.words.config_definitions import BROKER_CONFIGS, TOPIC_CONFIGS
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType
from tests.statemachine.builders import BROKER, broker, config, topic
from tests.statemachine.states import Metadata, metadata

Described = dict[str, tuple[str, DescribedConfig.Source.ValueType]]


def described(state: Metadata, resource_type: ResourceType, name: str, include_defaults: bool = True) -> Described:
    found = describe_configs(state.connection, resource_type, name, include_defaults)
    assert [of.name for of in found] == sorted({of.name for of in found})
    assert all(of.HasField("value") for of in found)
    return {of.name: (of.value, of.source) for of in found}


def of_topic(state: Metadata) -> Described:
    return described(state, ResourceType.TOPIC, "t")


def test_where_nothing_is_set_every_config_has_its_default() -> None:
    state = metadata(topic("t", 1), broker(1))
    expected = {name: (of.default, DescribedConfig.DEFAULT) for name, of in TOPIC_CONFIGS.items()}
    assert of_topic(state) == expected
    expected = {name: (of.default, DescribedConfig.DEFAULT) for name, of in BROKER_CONFIGS.items()}
    assert described(state, ResourceType.BROKER, "1") == expected
    assert described(state, ResourceType.BROKER, CLUSTER_DEFAULT) == expected


def test_a_topics_own_value_comes_before_the_clusters() -> None:
    state = metadata(topic("t", 1), config("", "log.retention.ms", "7", BROKER), config("t", "retention.ms", "5"))
    assert of_topic(state)["retention.ms"] == ("5", DescribedConfig.TOPIC)


@pytest.mark.parametrize(
    ("name", "broker_config", "value"),
    [
        ("retention.ms", "log.retention.ms", "7"),
        ("retention.bytes", "log.retention.bytes", "7"),
        ("segment.bytes", "log.segment.bytes", "2097152"),
        ("segment.ms", "log.roll.ms", "7"),
        ("segment.index.bytes", "log.index.size.max.bytes", "7"),
        ("cleanup.policy", "log.cleanup.policy", "compact"),
        ("max.message.bytes", "message.max.bytes", "7"),
        ("flush.messages", "log.flush.interval.messages", "7"),
        ("flush.before.ack", "log.flush.before.ack", "false"),
        ("local.retention.ms", "log.local.retention.ms", "7"),
        ("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", "0.1"),
        ("min.insync.replicas", "min.insync.replicas", "2"),
        ("unclean.leader.election.enable", "unclean.leader.election.enable", "true"),
        ("compression.type", "compression.type", "zstd"),
    ],
)
def test_a_topics_config_falls_back_to_the_clusters_under_kafkas_name_for_it(
    name: str, broker_config: str, value: str
) -> None:
    before = metadata(topic("t", 1))
    after = metadata(topic("t", 1), config("", broker_config, value, BROKER))
    assert of_topic(after) == {**of_topic(before), name: (value, DescribedConfig.CLUSTER_DEFAULT)}


def test_every_fallback_is_used() -> None:
    for name, definition in TOPIC_CONFIGS.items():
        if definition.broker_config is not None:
            state = metadata(topic("t", 1), config("", definition.broker_config, "any", BROKER))
            assert of_topic(state)[name] == ("any", DescribedConfig.CLUSTER_DEFAULT)


def test_what_one_broker_has_set_does_not_count_for_topics_or_other_brokers() -> None:
    state = metadata(topic("t", 1), broker(1), broker(2), config("1", "log.retention.ms", "7", BROKER))
    assert of_topic(state)["retention.ms"] == ("604800000", DescribedConfig.DEFAULT)
    assert described(state, ResourceType.BROKER, "2")["log.retention.ms"] == ("604800000", DescribedConfig.DEFAULT)


def test_a_brokers_config_is_its_own_then_the_clusters() -> None:
    state = metadata(
        broker(1),
        config("1", "num.io.threads", "5", BROKER),
        config("", "num.io.threads", "6", BROKER),
        config("", "num.partitions", "7", BROKER),
    )
    of_broker = described(state, ResourceType.BROKER, "1")
    assert of_broker["num.io.threads"] == ("5", DescribedConfig.BROKER)
    assert of_broker["num.partitions"] == ("7", DescribedConfig.CLUSTER_DEFAULT)
    of_cluster = described(state, ResourceType.BROKER, CLUSTER_DEFAULT)
    assert of_cluster["num.io.threads"] == ("6", DescribedConfig.CLUSTER_DEFAULT)
    assert of_cluster["num.network.threads"] == ("3", DescribedConfig.DEFAULT)


def test_without_defaults_only_what_is_set_for_the_resource_itself_is_told() -> None:
    state = metadata(
        topic("t", 1),
        config("t", "retention.ms", "5"),
        config("", "log.segment.bytes", "2097152", BROKER),
        config("1", "num.io.threads", "5", BROKER),
    )
    assert described(state, ResourceType.TOPIC, "t", False) == {"retention.ms": ("5", DescribedConfig.TOPIC)}
    assert described(state, ResourceType.BROKER, "1", False) == {"num.io.threads": ("5", DescribedConfig.BROKER)}
    of_cluster = {"log.segment.bytes": ("2097152", DescribedConfig.CLUSTER_DEFAULT)}
    assert described(state, ResourceType.BROKER, CLUSTER_DEFAULT, False) == of_cluster


def test_one_that_an_earlier_version_knew_is_told_while_it_is_set() -> None:
    state = metadata(topic("t", 1), config("t", "segment.colour", "red"))
    assert of_topic(state)["segment.colour"] == ("red", DescribedConfig.TOPIC)
    assert of_topic(state).keys() == TOPIC_CONFIGS.keys() | {"segment.colour"}


def test_an_empty_value_that_is_set_is_one() -> None:
    name = "leader.replication.throttled.replicas"
    state = metadata(topic("t", 1), config("t", name, ""))
    assert of_topic(state)[name] == ("", DescribedConfig.TOPIC)
