"""Which configs there are, which values they take, and how these are shown (CT-70, CT-71, DB-112)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode
from statemachine.words.config_definitions import (
    BROKER_CONFIGS,
    CONFIG_DEFINITIONS,
    TOPIC_CONFIGS,
    VALUE_LENGTH_MAX,
    check_config,
    is_own_config,
    may_be_stored_unknown,
)
from statemachine.words.config_kinds import join_elements, shown, split_elements
from statemachine.words.resources import ResourceType
from tests.effort import examples


def refused(resource_type: ResourceType, name: str, value: str | None) -> str:
    with pytest.raises(ApiError) as refusal:
        check_config(resource_type, name, value)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    return str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", "9223372036854775807"),
        ("retention.bytes", "+5"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact, delete"),
        ("cleanup.policy", ""),
        ("cleanup.policy", " "),
        ("min.insync.replicas", "2"),
        ("segment.bytes", "1048576"),
        ("compression.type", "zstd"),
        ("compression.gzip.level", "-1"),
        ("compression.zstd.level", "-131072"),
        ("max.message.bytes", "0"),
        ("remote.storage.enable", "TRUE"),
        ("local.retention.ms", "-2"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("min.cleanable.dirty.ratio", "1e-3"),
        ("message.timestamp.type", "LogAppendTime"),
        ("flush.before.ack", "False"),
        ("retention.ms", " 5\t"),
        ("compression.type", " gzip "),
        ("remote.storage.enable", " TRUE"),
        ("min.cleanable.dirty.ratio", " .5 "),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
        ("leader.replication.throttled.replicas", ""),
    ],
)
def test_values_within_kafkas_ranges_are_taken(name: str, value: str) -> None:
    check_config(ResourceType.TOPIC, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "soon"),
        ("retention.ms", ""),
        ("retention.ms", "\u00a05"),
        ("retention.ms", "5 6"),
        ("retention.ms", "1_000"),
        ("retention.ms", "\u0665"),
        ("cleanup.policy", ","),
        ("cleanup.policy", "delete,"),
        ("cleanup.policy", "compact,compact"),
        ("cleanup.policy", "burn"),
        ("min.insync.replicas", "0"),
        ("segment.bytes", "1048575"),
        ("segment.bytes", "2147483648"),
        ("compression.type", "rar"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("remote.storage.enable", "yes"),
        ("flush.before.ack", "1"),
        ("log.flush.before.ack", "true"),
        ("local.retention.ms", "-3"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "half"),
        ("message.timestamp.type", "Whenever"),
        ("leader.replication.throttled.replicas", "0:1;1:2"),
        ("retention.ms", "1" * (VALUE_LENGTH_MAX + 1)),
        ("retention.ms", None),
    ],
)
def test_values_outside_them_are_an_invalid_config_that_says_what_is_possible(name: str, value: str | None) -> None:
    assert name in refused(ResourceType.TOPIC, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.cleanup.policy", ""),
        ("log.flush.before.ack", "false"),
        ("log.cleaner.dedupe.buffer.size", "-9223372036854775808"),
        ("log.cleaner.io.buffer.load.factor", "1.5"),
        ("log.cleaner.io.buffer.size", "0"),
        ("log.cleaner.io.max.bytes.per.second", "1e308"),
        ("log.cleaner.io.max.bytes.per.second", "-.5"),
        ("max.connections.per.ip.overrides", ""),
        ("max.connections.per.ip.overrides", "localhost:0"),
        ("max.connections.per.ip.overrides", "host-1.example:5, 10.0.0.1:6,2001:db8::1:7"),
        ("metric.reporters", ""),
        ("metric.reporters", "Reporter, org.example.Outer$Reporter"),
        ("producer.id.expiration.ms", "1"),
        ("remote.fetch.max.wait.ms", "1"),
        ("remote.list.offsets.request.timeout.ms", "9223372036854775807"),
        ("transaction.partition.verification.enable", "False"),
    ],
)
def test_values_of_brokers_within_kafkas_ranges_are_taken(name: str, value: str) -> None:
    check_config(ResourceType.BROKER, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.cleaner.backoff.ms", "-1"),
        ("log.flush.before.ack", "never"),
        ("flush.before.ack", "true"),
        ("log.cleaner.dedupe.buffer.size", "1.5"),
        ("log.cleaner.io.buffer.load.factor", "much"),
        ("log.cleaner.io.buffer.load.factor", "nan"),
        ("log.cleaner.io.buffer.size", "-1"),
        ("log.cleaner.io.max.bytes.per.second", "1e999"),
        ("log.cleaner.io.max.bytes.per.second", ""),
        ("max.connections.per.ip.overrides", "localhost"),
        ("max.connections.per.ip.overrides", "localhost:many"),
        ("max.connections.per.ip.overrides", "local host:5"),
        ("max.connections.per.ip.overrides", "localhost:5,"),
        ("max.connections.per.ip.overrides", "localhost:2147483648"),
        ("metric.reporters", "org.example."),
        ("metric.reporters", "org.example.Reporter,org.example.Reporter"),
        ("metric.reporters", "a b"),
        ("producer.id.expiration.ms", "0"),
        ("remote.fetch.max.wait.ms", "2147483648"),
        ("remote.list.offsets.request.timeout.ms", "0"),
        ("transaction.partition.verification.enable", "1"),
    ],
)
def test_values_of_brokers_outside_them_are_an_invalid_config(name: str, value: str) -> None:
    assert name in refused(ResourceType.BROKER, name, value)


@pytest.mark.parametrize(
    ("name", "value", "shown_as"),
    [
        ("remote.storage.enable", " TRUE", "true"),
        ("retention.ms", "007", "7"),
        ("retention.ms", " +7 ", "7"),
        ("retention.ms", "-01", "-1"),
        ("cleanup.policy", " delete , compact ", "delete,compact"),
        ("cleanup.policy", " ", ""),
        ("compression.type", " gzip ", "gzip"),
        ("compression.gzip.level", "09", "9"),
        ("min.cleanable.dirty.ratio", ".50", "0.5"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", "0", "0.0"),
        ("min.cleanable.dirty.ratio", "0.00012", "1.2E-4"),
        ("leader.replication.throttled.replicas", " 0:1 , 1:2 ", "0:1,1:2"),
        ("retention.ms", "soon", "soon"),
    ],
)
def test_db112_a_value_is_shown_as_kafka_parses_it(name: str, value: str, shown_as: str) -> None:
    assert shown(TOPIC_CONFIGS[name].kind, value) == shown_as


@pytest.mark.parametrize(
    ("value", "shown_as"),
    [("10000000", "1.0E7"), ("9999999", "9999999.0"), ("1.5e10", "1.5E10"), ("1.7976931348623157E308",) * 2],
)
def test_db112_numbers_are_shown_as_java_writes_them(value: str, shown_as: str) -> None:
    assert shown(BROKER_CONFIGS["log.cleaner.io.max.bytes.per.second"].kind, value) == shown_as


@pytest.mark.parametrize(("name", "is_stored"), [
    ("retention.ms", True), ("my.plug-in.password", True), ("log.dirs", False), ("ssl.keystore.password", False),
    ("listener.name.internal.ssl.keystore.password", False), ("num.io.threads", False), ("", False),
])  # fmt: skip
def test_ct70_a_broker_may_have_configs_that_no_kafka_knows(name: str, is_stored: bool) -> None:
    assert may_be_stored_unknown(ResourceType.BROKER, name) is is_stored
    assert not may_be_stored_unknown(ResourceType.TOPIC, name)


def test_unknown_configs_are_an_invalid_config() -> None:
    assert "no config of a topic" in refused(ResourceType.TOPIC, "retention.hours", "1")
    assert "no config of a broker" in refused(ResourceType.BROKER, "retention.ms", "1")
    assert "no config of a broker" in refused(ResourceType.BROKER, "", "1")
    check_config(ResourceType.BROKER, "log.retention.ms", "1")


def test_every_definition_takes_some_value_and_refuses_another() -> None:
    possible = ("1", "2", "true", "delete", "producer", "CreateTime", "*", "1048576", "host:1", "org.example.Reporter")
    for name, definition in [*TOPIC_CONFIGS.items(), *BROKER_CONFIGS.items()]:
        assert any(definition.kind.problem(value) is None for value in possible), name
        assert definition.kind.problem("?!") is not None, name


def test_every_default_is_a_value_that_could_be_set() -> None:
    for resource_type, definitions in CONFIG_DEFINITIONS.items():
        for name, definition in definitions.items():
            check_config(resource_type, name, definition.default)


def test_a_topics_config_falls_back_to_a_brokers_config_with_the_same_default_and_the_same_values() -> None:
    for name, definition in TOPIC_CONFIGS.items():
        if definition.broker_config is not None:
            assert BROKER_CONFIGS[definition.broker_config].default == definition.default, name
            assert BROKER_CONFIGS[definition.broker_config].kind == definition.kind, name


def test_the_configs_of_topics_that_brokers_have_no_default_for() -> None:
    assert {name for name, definition in TOPIC_CONFIGS.items() if definition.broker_config is None} == {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("cleanup.policy", "delete"),
        ("delete.retention.ms", "86400000"),
        ("flush.messages", "9223372036854775807"),
        ("leader.replication.throttled.replicas", ""),
        ("local.retention.ms", "-2"),
        ("max.message.bytes", "1048588"),
        ("min.insync.replicas", "1"),
        ("retention.bytes", "-1"),
        ("retention.ms", "604800000"),
        ("segment.bytes", "1073741824"),
        ("unclean.leader.election.enable", "false"),
    ],
)
def test_defaults_are_kafkas(name: str, default: str) -> None:
    assert TOPIC_CONFIGS[name].default == default


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("log.cleaner.backoff.ms", "15000"),
        ("log.cleaner.dedupe.buffer.size", "134217728"),
        ("log.cleaner.io.buffer.load.factor", "0.9"),
        ("log.cleaner.io.buffer.size", "524288"),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308"),
        ("max.connections.per.ip.overrides", ""),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"),
        ("producer.id.expiration.ms", "86400000"),
        ("remote.fetch.max.wait.ms", "500"),
        ("remote.list.offsets.request.timeout.ms", "30000"),
        ("transaction.partition.verification.enable", "true"),
    ],
)
def test_defaults_of_brokers_are_kafkas(name: str, default: str) -> None:
    assert BROKER_CONFIGS[name].default == default


def test_own_configs_are_told_from_kafkas() -> None:
    assert {
        (resource_type, name)
        for resource_type, definitions in CONFIG_DEFINITIONS.items()
        for name in definitions
        if is_own_config(resource_type, name)
    } == {
        (ResourceType.TOPIC, "flush.before.ack"),
        (ResourceType.TOPIC, "validate.records"),
        (ResourceType.BROKER, "log.flush.before.ack"),
        (ResourceType.BROKER, "log.validate.records"),
    }
    assert not is_own_config(ResourceType.BROKER, "flush.before.ack")
    assert not is_own_config(ResourceType.TOPIC, "flush.colour")
    assert not is_own_config(77, "flush.before.ack")


def test_lists_are_known_as_lists() -> None:
    found = {name for name, definition in [*TOPIC_CONFIGS.items(), *BROKER_CONFIGS.items()] if definition.is_list}
    assert found == {
        "cleanup.policy",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "log.cleanup.policy",
        "metric.reporters",
    }


@settings(max_examples=examples(100))
@given(st.text(alphabet="ab ,:*", max_size=20))
def test_splitting_and_joining_a_list_keeps_its_elements(value: str) -> None:
    parts = split_elements(value)
    assert split_elements(join_elements(parts)) == parts
    assert all(part and part == part.strip() for part in parts)
