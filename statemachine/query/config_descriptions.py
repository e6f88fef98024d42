"""Every config of a topic or broker with the value that applies to it, and where that value is set.

A topic's config that is not set falls back to the cluster's default of the brokers' config that Kafka names for it
(retention.ms to log.retention.ms), then to Kafka's default. Values of single brokers do not count there: a topic
is on many, and they may differ.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from kraftpb.v1.admin_pb2 import DescribedConfig
from statemachine.tables.cluster_tables import CONFIGS
from statemachine.words.config_definitions import CONFIG_DEFINITIONS, Definition
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType


def describe_configs(
    connection: sqlite3.Connection, resource_type: ResourceType, resource_name: str, include_defaults: bool = False
) -> list[DescribedConfig]:
    """The configs of one resource by name: those that are set for it; with `include_defaults`, all that it can have.

    Whether the resource exists is not checked.
    """
    own = _set_for(connection, resource_type, resource_name)
    own_source = _own_source(resource_type, resource_name)
    # Configs of an earlier version are returned, too: they can still be removed.
    described = {name: DescribedConfig(name=name, value=value, source=own_source) for name, value in own.items()}
    if include_defaults:
        cluster = _set_for(connection, ResourceType.BROKER, CLUSTER_DEFAULT)
        for name, definition in CONFIG_DEFINITIONS[resource_type].items():
            if name not in own:
                fallback = name if resource_type is ResourceType.BROKER else definition.broker_config
                described[name] = _not_set(name, definition, fallback, cluster)
    return [described[name] for name in sorted(described)]


def _set_for(connection: sqlite3.Connection, resource_type: ResourceType, resource_name: str) -> dict[str, str]:
    found = CONFIGS.find(connection, (resource_type.value, resource_name))
    return {config.name: config.value for _, config in found}


def _own_source(resource_type: ResourceType, resource_name: str) -> DescribedConfig.Source.ValueType:
    """The source of a value that is set for the resource itself."""
    if resource_type is ResourceType.TOPIC:
        return DescribedConfig.TOPIC
    return DescribedConfig.CLUSTER_DEFAULT if resource_name == CLUSTER_DEFAULT else DescribedConfig.BROKER


def _not_set(name: str, definition: Definition, fallback: str | None, cluster: Mapping[str, str]) -> DescribedConfig:
    """A config that is not set for the resource: the cluster's value in its place, under the name `fallback`."""
    if fallback is not None and fallback in cluster:
        return DescribedConfig(name=name, value=cluster[fallback], source=DescribedConfig.CLUSTER_DEFAULT)
    return DescribedConfig(name=name, value=definition.default, source=DescribedConfig.DEFAULT)
