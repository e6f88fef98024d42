"""Which configs of a topic or a broker go together: its own, the default of all brokers, and Kafka's defaults.

The rules are those of Kafka's LogConfig (topics) and of its DynamicLogConfig and KafkaConfig (brokers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from statemachine.metadata.state import MetadataState
from statemachine.words.config_definitions import (
    BROKER_CONFIGS,
    CLEANUP_POLICY,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    REMOTE_COPY_DISABLE,
    REMOTE_DELETE_ON_DISABLE,
    REMOTE_STORAGE_ENABLE,
    TOPIC_CONFIGS,
    invalid_config,
)
from statemachine.words.config_kinds import split_elements
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType

_UNLIMITED: Final = -1
_AS_RETENTION: Final = -2
"""For a local retention: the same as the whole retention (TS-50)."""

_TOPIC_DEFAULTS: Final = {name: definition.default for name, definition in TOPIC_CONFIGS.items()}
_BROKER_DEFAULTS: Final = {name: definition.default for name, definition in BROKER_CONFIGS.items()}
_TOPICS_NAME_OF: Final = {of.broker_config: name for name, of in TOPIC_CONFIGS.items() if of.broker_config is not None}
"""Topics' name of a brokers' config; no two topics' configs inherit from the same."""


class InheritedConfigs:
    """The values that apply where a topic or broker has none, in one state. Read when first needed, and once."""

    def __init__(self, state: MetadataState) -> None:
        self._state = state

    @cached_property
    def of_cluster(self) -> Mapping[str, str]:
        """What is set for all brokers."""
        return self._state.configs(ResourceType.BROKER, CLUSTER_DEFAULT)

    @cached_property
    def of_topics(self) -> Mapping[str, str]:
        """For every config of a topic: the value set for all brokers under their name of it, else Kafka's default."""
        set_for_all = {
            _TOPICS_NAME_OF[name]: value for name, value in self.of_cluster.items() if name in _TOPICS_NAME_OF
        }
        return {**_TOPIC_DEFAULTS, **set_for_all}

    def of_broker(self, resource_name: str) -> Mapping[str, str]:
        """For every config of a broker: the value set for all, else Kafka's default; for all only the latter."""
        return _BROKER_DEFAULTS if resource_name == CLUSTER_DEFAULT else {**_BROKER_DEFAULTS, **self.of_cluster}


def check_topic_configs(
    configs: Mapping[str, str], before: Mapping[str, str], inherited: Mapping[str, str], *, tiering_enabled: bool
) -> None:
    """Raise ApiError(INVALID_CONFIG) unless a topic that has the valid `configs` `before` can have `configs`.

    `inherited` has the values that apply where the topic has none. Unless `tiering_enabled`, no topic becomes tiered; a
    tiered topic may stay so, and its other configs may change (TS-81).
    """
    values = _Values(configs, inherited)
    was_tiered = _is_on(before.get(REMOTE_STORAGE_ENABLE, ""))
    if values.is_on(REMOTE_STORAGE_ENABLE):
        if not (tiering_enabled or was_tiered):
            raise invalid_config(
                f"{values.shown(REMOTE_STORAGE_ENABLE)}: tiered storage is disabled in this cluster"
                " (remote.log.storage.system.enable=false), so no topic can become tiered; leave the config out"
            )
        _check_tiered(values)
    elif was_tiered and not values.is_on(REMOTE_DELETE_ON_DISABLE):
        # Brokers would forget what is in remote storage, and it would stay there without an owner (KIP-950).
        raise invalid_config(
            f"{values.shown(REMOTE_STORAGE_ENABLE)} would leave the data in remote storage without an owner; set"
            f" {REMOTE_DELETE_ON_DISABLE}=true with it to have that deleted, or keep {REMOTE_STORAGE_ENABLE}=true and"
            f" set {REMOTE_COPY_DISABLE}=true to keep it for reading"
        )
    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    if values.number(least) > values.number(most):
        raise invalid_config(f"{values.shown(least)} is above {values.shown(most)}; lower it or raise the other")


def check_broker_configs(configs: Mapping[str, str], inherited: Mapping[str, str]) -> None:
    """Raise ApiError(INVALID_CONFIG) unless the valid `configs` go together in one broker, or in all.

    `inherited` has the values that apply where `configs` has none.
    """
    values = _Values(configs, inherited)
    _check_local_retention(values, "log.local.retention.ms", "log.retention.ms")
    _check_local_retention(values, "log.local.retention.bytes", "log.retention.bytes")
    if values.number(MAX_CONNECTIONS_PER_IP) == 0 and not values[MAX_CONNECTIONS_PER_IP_OVERRIDES]:
        raise invalid_config(
            f"{values.shown(MAX_CONNECTIONS_PER_IP)} allows no connection; name hosts that may connect in"
            f" {MAX_CONNECTIONS_PER_IP_OVERRIDES}, or raise it"
        )


@dataclass(frozen=True, slots=True)
class _Values:
    """The values that apply: the set ones, and the inherited ones where none is set."""

    own: Mapping[str, str]
    inherited: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.own[name] if name in self.own else self.inherited[name]

    def number(self, name: str) -> int:
        return int(self[name])

    def is_on(self, name: str) -> bool:
        return _is_on(self[name])

    def shown(self, name: str) -> str:
        """A config as messages name it; one that is not set is marked as the default."""
        return f"{name}={self[name]}" + ("" if name in self.own else " (the default)")


def _is_on(flag: str) -> bool:
    return flag.lower() == "true"


def _check_tiered(values: _Values) -> None:
    if "compact" in split_elements(values[CLEANUP_POLICY]):
        raise invalid_config(
            f"{values.shown(REMOTE_STORAGE_ENABLE)} and {values.shown(CLEANUP_POLICY)} exclude each other; drop one, or"
            f" set {CLEANUP_POLICY}=delete"
        )
    for unit in ("ms", "bytes"):
        local, total = f"local.retention.{unit}", f"retention.{unit}"
        _check_local_retention(values, local, total)
        if values.is_on(REMOTE_COPY_DISABLE) and values.number(local) not in (_AS_RETENTION, values.number(total)):
            # Records deleted locally would be nowhere, since nothing is copied any longer.
            raise invalid_config(
                f"with {values.shown(REMOTE_COPY_DISABLE)} {values.shown(local)} must be as {values.shown(total)}; set"
                f" it to that or to {_AS_RETENTION}"
            )


def _check_local_retention(values: _Values, local: str, total: str) -> None:
    whole, part = values.number(total), values.number(local)
    if whole != _UNLIMITED and (part == _UNLIMITED or part > whole):
        raise invalid_config(
            f"{values.shown(local)} is more than {values.shown(total)}, of which it must be a part; lower it or raise"
            " the other"
        )
