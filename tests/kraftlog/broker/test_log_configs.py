"""A log's settings from the configs of its topic, and of the broker where the topic has none."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kraftlog.broker.log.config import PartitionLogConfig
from kraftlog.broker.log_configs import partition_log_config
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from raft.core.types import Offset
from statemachine.replay.deltas import Change, MetadataDelta
from statemachine.words.config_definitions import TOPIC_CONFIGS
from tests.statemachine.builders import BROKER, config, topic
from tests.statemachine.states import Metadata, metadata


def test_the_defaults_of_the_definitions_are_those_of_the_log() -> None:
    assert partition_log_config({name: of.default for name, of in TOPIC_CONFIGS.items()}) == PartitionLogConfig()
    assert partition_log_config({}) == PartitionLogConfig()


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("flush.before.ack", "false", "flush_before_ack", False),
        ("flush.before.ack", "FALSE", "flush_before_ack", False),
        ("flush.before.ack", "True", "flush_before_ack", True),
        ("flush.before.ack", "never", "flush_before_ack", True),
        ("flush.messages", "1", "flush_messages", 1),
        ("flush.ms", "+5", "flush_ms", 5),
        ("message.timestamp.type", "LogAppendTime", "has_log_append_time", True),
        ("preallocate", "TRUE", "preallocates", True),
        ("preallocate", "False", "preallocates", False),
        ("segment.bytes", "1048576", "segment_bytes", 1_048_576),
    ],
)
def test_values_are_read_as_they_may_be_written(name: str, value: str, field: str, expected: object) -> None:
    """`never` is none that a controller takes; one that is taken over from a Kafka may have it."""
    changed = partition_log_config({name: value})
    assert getattr(changed, field) == expected
    default = PartitionLogConfig()
    others = [one.name for one in fields(default) if one.name != field]
    assert all(getattr(changed, other) == getattr(default, other) for other in others)


@pytest.mark.parametrize(
    ("policy", "is_deleted", "is_compacted"),
    [("delete", True, False), (" compact , delete", True, True), ("compact", False, True), ("", False, False)],
)
def test_a_cleanup_policy_may_have_blanks(policy: str, is_deleted: bool, is_compacted: bool) -> None:
    found = partition_log_config({"cleanup.policy": policy})
    assert (found.is_deleted, found.is_compacted) == (is_deleted, is_compacted)


def flushes_first(configs: TopicConfigs, state: Metadata) -> bool:
    configs.on_snapshot(Offset(state.end_offset), state.connection)
    return configs.log_config("t").flush_before_ack


def test_a_topic_follows_its_broker_then_all_brokers_then_the_brokers_file() -> None:
    configs = TopicConfigs(1, {"log.flush.before.ack": "false"})
    state = metadata(topic("t", 1))
    assert not flushes_first(configs, state)
    assert flushes_first(configs, state.commit(config("", "log.flush.before.ack", "true", BROKER)))
    assert not flushes_first(configs, state.commit(config("1", "log.flush.before.ack", "false", BROKER)))
    assert not flushes_first(configs, state.commit(config("2", "log.flush.before.ack", "true", BROKER)))
    assert flushes_first(configs, state.commit(config("t", "flush.before.ack", "true")))


def test_a_change_is_seen_when_it_is_published() -> None:
    configs, state = TopicConfigs(1, {}), metadata(topic("t", 1))
    assert flushes_first(configs, state)
    changed = config("t", "flush.before.ack", "false")
    state.commit(changed)
    assert configs.log_config("t").flush_before_ack, "what was looked up is kept until then"
    configs.on_delta(MetadataDelta(end_offset=Offset(state.end_offset), configs=(Change(None, changed.config),)))
    assert not configs.log_config("t").flush_before_ack
