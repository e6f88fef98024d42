"""What the configs of a topic make of its logs."""

from __future__ import annotations

import pytest

from kraftlog.broker.log_configs import partition_log_config
from kraftlog.storage.config import NO_LIMIT, PartitionLogConfig
from statemachine.words.config_definitions import BROKER_CONFIGS, TOPIC_CONFIGS, check_config
from statemachine.words.config_kinds import Flag, Kind, OneOf, SomeOf, Whole
from statemachine.words.resources import ResourceType

DEFAULTS = {name: definition.default for name, definition in TOPIC_CONFIGS.items()}


def test_without_configs_and_with_their_defaults_a_log_is_the_same() -> None:
    assert partition_log_config(DEFAULTS) == partition_log_config({}) == PartitionLogConfig()


@pytest.mark.parametrize("value", ["TRUE", "True", "true"])
def test_a_flag_counts_in_any_case_as_it_is_taken_in_any(value: str) -> None:
    check_config(ResourceType.TOPIC, "preallocate", value)
    assert partition_log_config({"preallocate": value}).preallocates
    assert partition_log_config({"flush.before.ack": value}).flush_before_ack
    assert partition_log_config({"validate.records": value}).validates_records


def test_records_are_validated_unless_it_is_turned_off_for_sure() -> None:
    assert partition_log_config({"validate.records": "perhaps"}).validates_records
    assert not partition_log_config({"validate.records": "False"}).validates_records


@pytest.mark.parametrize(
    ("value", "is_deleted", "is_compacted"),
    [
        ("delete", True, False),
        ("compact", False, True),
        ("compact,delete", True, True),
        (" delete , compact ", True, True),
        ("", False, False),
    ],
)
def test_a_policy_counts_with_the_blanks_that_it_is_taken_with(
    value: str, is_deleted: bool, is_compacted: bool
) -> None:
    check_config(ResourceType.TOPIC, "cleanup.policy", value)
    config = partition_log_config({"cleanup.policy": value})
    assert (config.is_deleted, config.is_compacted) == (is_deleted, is_compacted)


def extremes(kind: Kind) -> list[str]:
    """The values at the bounds of what a controller takes."""
    if isinstance(kind, Whole):
        return [str(kind.least), str(kind.most), f"+{kind.most}"]
    if isinstance(kind, OneOf | SomeOf):
        return list(kind.words)
    return ["true", "FALSE"] if isinstance(kind, Flag) else []


@pytest.mark.parametrize("name", sorted(TOPIC_CONFIGS))
def test_a_log_takes_every_value_that_a_controller_takes_for_a_topic_or_for_brokers(name: str) -> None:
    definition = TOPIC_CONFIGS[name]
    kinds = [definition.kind]
    if definition.broker_config is not None:
        kinds.append(BROKER_CONFIGS[definition.broker_config].kind)
    for value in [value for kind in kinds for value in extremes(kind)]:
        assert partition_log_config({**DEFAULTS, name: value}).flush_ms <= NO_LIMIT
