"""Which configs go together in one topic or broker, with what it inherits."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kraftbase.errors import ApiError, ErrorCode
from statemachine.metadata.config_combinations import InheritedConfigs, check_broker_configs, check_topic_configs
from statemachine.words.config_definitions import BROKER_CONFIGS, TOPIC_CONFIGS
from tests.statemachine.builders import BROKER, config
from tests.statemachine.states import Metadata, metadata

TIERED = {"remote.storage.enable": "true"}
THIRTY_DAYS, SEVEN_DAYS = "2592000000", "604800000"


def cluster(**configs: str) -> Metadata:
    """Something is set for all brokers; `_` stands for `.` in names."""
    return metadata(*(config("", name.replace("_", "."), value, BROKER) for name, value in configs.items()))


def check(configs: Mapping[str, str], before: Mapping[str, str] | None = None, **defaults: str) -> None:
    """Whether a topic can have these."""
    check_topic_configs(configs, before or {}, InheritedConfigs(cluster(**defaults)).of_topics, tiering_enabled=True)


def refusal(configs: Mapping[str, str], before: Mapping[str, str] | None = None, **defaults: str) -> str:
    with pytest.raises(ApiError) as refused:
        check(configs, before, **defaults)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    return str(refused.value)


def broker_refusal(configs: Mapping[str, str], name: str = "1", **defaults: str) -> str:
    with pytest.raises(ApiError) as refused:
        check_broker_configs(configs, InheritedConfigs(cluster(**defaults)).of_broker(name))
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    return str(refused.value)


def test_kafkas_defaults_go_together() -> None:
    check({name: definition.default for name, definition in TOPIC_CONFIGS.items()})
    check_broker_configs({name: of.default for name, of in BROKER_CONFIGS.items()}, {})
    check({})


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": "5", "local.retention.ms": "9"},  # counts only with remote storage
        TIERED,
        TIERED | {"retention.ms": "9", "local.retention.ms": "9"},
        TIERED | {"retention.ms": "-1", "local.retention.ms": "-1"},
        TIERED | {"retention.bytes": "5", "local.retention.bytes": "-2"},
        TIERED | {"cleanup.policy": ""},
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
    ],
)
def test_configs_that_go_together_are_taken(configs: dict[str, str]) -> None:
    """A local retention of -2 is the whole one (TS-50)."""
    check(configs)


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        (TIERED | {"cleanup.policy": "compact,delete"}, "cleanup.policy=compact,delete exclude"),
        (
            TIERED | {"retention.ms": "5", "local.retention.ms": "6"},
            "local.retention.ms=6 is more than retention.ms=5,",
        ),
        (TIERED | {"local.retention.ms": "604800001"}, "retention.ms=604800000 (the default)"),
        (TIERED | {"retention.bytes": "5", "local.retention.bytes": "-1"}, "local.retention.bytes=-1 is more"),
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, "min.compaction.lag.ms=6 is above"),
    ],
)
def test_configs_that_contradict_each_other_are_an_invalid_config(configs: dict[str, str], words: str) -> None:
    """A local retention of -1 is unlimited, so more than any other (TS-50)."""
    assert words in refusal(configs)


# --- the end of remote storage (KIP-950) ------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [{}, {"remote.storage.enable": "false"}, {"remote.storage.enable": "FALSE"}])
def test_a_topic_stops_to_be_tiered_only_with_a_word_about_what_is_in_remote_storage(after: dict[str, str]) -> None:
    message = refusal(after, TIERED)
    assert "remote.log.delete.on.disable=true" in message and "remote.log.copy.disable=true" in message
    assert refusal(after, {"remote.storage.enable": "TRUE"})
    check(after | {"remote.log.delete.on.disable": "true"}, TIERED)


def test_one_that_is_not_tiered_needs_no_such_word() -> None:
    check({}, {"remote.storage.enable": "false"})
    check({"remote.storage.enable": "false"}, {"remote.log.delete.on.disable": "true"})
    check({}, {"remote.log.delete.on.disable": "true"})
    check(TIERED, TIERED)


@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_what_is_not_copied_any_more_is_kept_locally_as_long_as_at_all(unit: str) -> None:
    local, total = f"local.retention.{unit}", f"retention.{unit}"
    uncopied = TIERED | {"remote.log.copy.disable": "true"}
    for configs in (uncopied, uncopied | {local: "-2", total: "6"}, uncopied | {local: "6", total: "6"}):
        check(configs)
    assert f"{local}=5 must be as {total}=6; set it to that or to -2" in refusal(uncopied | {local: "5", total: "6"})
    assert f"{local}=5 must be as {total}=-1" in refusal(uncopied | {local: "5", total: "-1"})
    check({"remote.log.copy.disable": "true", local: "5", total: "6"})  # counts only with remote storage


# --- inherited values ------------------------------------------------------------------------------------------------


def test_a_topic_inherits_the_clusters_value_under_the_brokers_name_else_kafkas_default() -> None:
    inherited = InheritedConfigs(cluster(log_retention_ms="7", num_partitions="3")).of_topics
    assert inherited == {name: of.default for name, of in TOPIC_CONFIGS.items()} | {"retention.ms": "7"}


def test_each_brokers_config_is_inherited_by_the_topics_config_that_names_it_and_by_no_other() -> None:
    kafkas = {name: of.default for name, of in TOPIC_CONFIGS.items()}
    for name, definition in TOPIC_CONFIGS.items():
        if definition.broker_config is not None:
            state = metadata(config("", definition.broker_config, "7", BROKER))
            assert InheritedConfigs(state).of_topics == kafkas | {name: "7"}


def test_a_topic_must_go_with_what_the_cluster_sets_for_all() -> None:
    local = TIERED | {"local.retention.ms": THIRTY_DAYS}
    assert refusal(local)
    check(local, log_retention_ms="-1")
    assert "retention.ms=5 (the default)" in refusal(TIERED | {"local.retention.ms": "6"}, log_retention_ms="5")
    check(TIERED | {"local.retention.ms": "6", "retention.ms": "6"}, log_retention_ms="5")
    assert "cleanup.policy=compact (the default)" in refusal(TIERED, log_cleanup_policy="compact")
    check(TIERED | {"cleanup.policy": "delete"}, log_cleanup_policy="compact")
    check(TIERED, log_cleanup_policy="")
    assert refusal({"min.compaction.lag.ms": "6"}, log_cleaner_max_compaction_lag_ms="5")


def test_what_a_broker_inherits_is_the_default_of_all_and_what_that_inherits_is_kafkas() -> None:
    inherited = InheritedConfigs(cluster(log_retention_ms="7"))
    kafkas = {name: of.default for name, of in BROKER_CONFIGS.items()}
    assert inherited.of_broker("1") == kafkas | {"log.retention.ms": "7"}
    assert inherited.of_broker("") == kafkas


@pytest.mark.parametrize("unit", ["ms", "bytes"])
@pytest.mark.parametrize("name", ["", "1"])
def test_what_brokers_keep_locally_is_part_of_what_they_keep(unit: str, name: str) -> None:
    local, total = f"log.local.retention.{unit}", f"log.retention.{unit}"
    assert f"{local}=6 is more than {total}=5" in broker_refusal({local: "6", total: "5"}, name)
    assert f"{local}=-1 is more than {total}=5" in broker_refusal({local: "-1", total: "5"}, name)
    inherited = InheritedConfigs(cluster()).of_broker(name)
    for values in ("6", "6"), ("6", "-1"), ("-1", "-1"), ("-2", "5"):
        check_broker_configs(dict(zip((local, total), values, strict=True)), inherited)


def test_a_broker_must_go_with_the_default_of_all() -> None:
    local = {"log.local.retention.ms": THIRTY_DAYS}
    assert f"log.retention.ms={SEVEN_DAYS} (the default)" in broker_refusal(local)
    check_broker_configs(local, InheritedConfigs(cluster(log_retention_ms="-1")).of_broker("1"))
    # For the default of all brokers, the altered default is not inherited.
    assert broker_refusal(local, "", log_retention_ms="-1")


def test_no_connections_but_for_some_hosts() -> None:
    nobody = {"max.connections.per.ip": "0"}
    assert "max.connections.per.ip.overrides" in broker_refusal(nobody)
    inherited = InheritedConfigs(cluster()).of_broker("1")
    check_broker_configs(nobody | {"max.connections.per.ip.overrides": "localhost:5"}, inherited)
