"""The configs of topics and brokers as clients see them: values, their sources, and overridden values.

The value in effect is the first one that is set, in this order: for the topic, for this broker, for all brokers, in the
broker's file, the default (KIP-226). It is shown as Kafka parses it, such as `true` for `TRUE` (DB-112). Synonyms show
values that are set for brokers as they were given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kraftlog.broker.config_documentation import BROKER_DOCUMENTATION, TOPIC_DOCUMENTATION
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.settings import STATIC_CONFIGS, BrokerSettings
from statemachine.query.descriptions import BrokerListener
from statemachine.tables.cluster_tables import CONFIGS
from statemachine.words.config_definitions import BROKER_CONFIGS, TOPIC_CONFIGS
from statemachine.words.config_kinds import (
    INT_MAX,
    INT_MIN,
    Flag,
    Fraction,
    HostLimits,
    Kind,
    LevelOrDefault,
    Number,
    OneOf,
    Text,
    Whole,
    shown,
)
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType


class ConfigSource(IntEnum):
    """Kafka's numbers for the source of a value (DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    FILE = 4
    DEFAULT = 5


class ConfigType(IntEnum):
    """Kafka's numbers for the types of values (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Synonym(NamedTuple):
    """A value that is set somewhere, with the config's name there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigInEffect:
    """A config of a topic or a broker, with its value."""

    name: str
    value: str | None
    """None if the value is sensitive, or is not set and has no default."""
    source: ConfigSource
    type: ConfigType
    synonyms: Sequence[Synonym] = ()
    """All values that are set, the one in effect first."""
    is_sensitive: bool = False
    is_read_only: bool = False
    documentation: str | None = None


class ConfigsInEffect:
    """The configs in effect on this broker, from its file and its copy of the metadata."""

    def __init__(self, settings: BrokerSettings, cluster: ClusterView) -> None:
        self._settings = settings
        self._cluster = cluster

    def of_topic(self, own: Mapping[str, str]) -> list[ConfigInEffect]:
        """Return all configs of a topic that has the configs `own` set."""
        layers = self._layers()
        configs = []
        for name, definition in sorted(TOPIC_CONFIGS.items()):
            synonyms = [Synonym(name, shown(definition.kind, own[name]), ConfigSource.TOPIC)] if name in own else []
            if definition.broker_config is not None:
                synonyms += _found(layers, definition.broker_config)
                default = BROKER_CONFIGS[definition.broker_config].default
                synonyms.append(Synonym(definition.broker_config, default, ConfigSource.DEFAULT))
            value, source = definition.default, ConfigSource.DEFAULT
            if synonyms:
                value, source = shown(definition.kind, synonyms[0].value or ""), synonyms[0].source
            configs.append(
                ConfigInEffect(
                    name, value, source, type_of(definition.kind), synonyms, documentation=TOPIC_DOCUMENTATION.get(name)
                )
            )
        return configs

    def of_this_broker(self) -> list[ConfigInEffect]:
        """Return all configs of this broker, by name. Configs that cannot be changed while it runs are read only."""
        layers = self._layers()
        configs = []
        for name, definition in BROKER_CONFIGS.items():
            synonyms = [*_found(layers, name), Synonym(name, definition.default, ConfigSource.DEFAULT)]
            value = shown(definition.kind, synonyms[0].value or "")
            configs.append(_of_broker(name, value, synonyms[0].source, type_of(definition.kind), synonyms))
        configs += [_hidden(layers, name) for name in {name for _, values in layers for name in values}
                    if name not in BROKER_CONFIGS]  # fmt: skip
        configs += self._static()
        return sorted(configs, key=lambda config: config.name)

    def of_all_brokers(self) -> list[ConfigInEffect]:
        """Return the configs that are set for all brokers, by name."""
        layers = [(ConfigSource.ALL_BROKERS, self.stored(ResourceType.BROKER, CLUSTER_DEFAULT))]
        configs = []
        for name, value in sorted(layers[0][1].items()):
            if name in BROKER_CONFIGS:
                synonyms = _found(layers, name)
                kind = type_of(BROKER_CONFIGS[name].kind)
                configs.append(_of_broker(name, value, ConfigSource.ALL_BROKERS, kind, synonyms))
            else:
                configs.append(_hidden(layers, name))
        return configs

    def stored(self, resource_type: ResourceType, name: str) -> dict[str, str]:
        """Return the configs that the metadata has for a resource."""
        found = CONFIGS.find(self._cluster.metadata, (int(resource_type), name))
        return {record.name: record.value for _, record in found}

    def _layers(self) -> list[tuple[ConfigSource, Mapping[str, str]]]:
        return [
            (ConfigSource.BROKER, self.stored(ResourceType.BROKER, str(self._settings.broker_id))),
            (ConfigSource.ALL_BROKERS, self.stored(ResourceType.BROKER, CLUSTER_DEFAULT)),
            (ConfigSource.FILE, self._settings.broker_configs),
        ]

    def _static(self) -> Iterator[ConfigInEffect]:
        """Yield the configs that are fixed from the broker's start to its end."""
        settings = self._settings
        for name, static in STATIC_CONFIGS.items():
            synonyms = _found([(ConfigSource.FILE, settings.configs)], name)
            synonyms.append(Synonym(name, static.default, ConfigSource.DEFAULT))
            yield ConfigInEffect(
                name, shown(static.kind, synonyms[0].value or ""), synonyms[0].source, type_of(static.kind), synonyms,
                is_read_only=True, documentation=static.meaning,
            )  # fmt: skip
        given: dict[str, tuple[str | None, ConfigType]] = {
            "advertised.listeners": (self._advertised(), ConfigType.LIST),
            "broker.id": (str(settings.broker_id), ConfigType.INT),
            "broker.rack": (settings.rack, ConfigType.STRING),
            "listeners": (_listed(settings.listeners), ConfigType.LIST),
            "log.dirs": (",".join(settings.log_paths), ConfigType.LIST),
            "node.id": (str(settings.broker_id), ConfigType.INT),
        }
        for name, (value, kind) in given.items():
            source = ConfigSource.DEFAULT if value is None else ConfigSource.FILE
            yield ConfigInEffect(
                name, value, source, kind, [Synonym(name, value, source)], is_read_only=True,
                documentation=BROKER_DOCUMENTATION.get(name),
            )  # fmt: skip

    def _advertised(self) -> str | None:
        """Return the advertised listeners as registered, with the bound ports; before that, as given."""
        registered = self._cluster.brokers.get(self._settings.broker_id)
        if registered is None:
            return _listed(self._settings.advertised) or None
        return ",".join(f"{end_point.name}://{end_point.host}:{end_point.port}" for end_point in registered.end_points)


def _of_broker(
    name: str, value: str | None, source: ConfigSource, of_type: ConfigType, synonyms: Sequence[Synonym]
) -> ConfigInEffect:
    return ConfigInEffect(name, value, source, of_type, synonyms, documentation=BROKER_DOCUMENTATION.get(name))


def type_of(kind: Kind) -> ConfigType:
    """Return Kafka's type for a kind of values."""
    match kind:
        case Flag():
            return ConfigType.BOOLEAN
        case Whole():
            return ConfigType.INT if kind.least >= INT_MIN and kind.most <= INT_MAX else ConfigType.LONG
        case LevelOrDefault():
            return ConfigType.INT
        case Fraction() | Number():
            return ConfigType.DOUBLE
        case OneOf() | Text() | HostLimits():
            return ConfigType.STRING
    return ConfigType.LIST


def _found(layers: Sequence[tuple[ConfigSource, Mapping[str, str]]], name: str) -> list[Synonym]:
    return [Synonym(name, values[name], source) for source, values in layers if name in values]


def _hidden(layers: Sequence[tuple[ConfigSource, Mapping[str, str]]], name: str) -> ConfigInEffect:
    """Return an unknown config, such as one of a later version, without its value: it may be a password."""
    synonyms = [synonym._replace(value=None) for synonym in _found(layers, name)]
    return ConfigInEffect(name, None, synonyms[0].source, ConfigType.UNKNOWN, synonyms, is_sensitive=True)


def _listed(listeners: Sequence[BrokerListener]) -> str:
    return ",".join(f"{listener.name}://{listener.host}:{listener.port}" for listener in listeners)
