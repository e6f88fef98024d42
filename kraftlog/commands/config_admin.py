"""What the commands that alter configs, also those of topics, do: arguments to changes, and the outcome of each.

The controller accepts a change that leaves a config as it was, and writes nothing. The command reports that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ConfigurationError
from kraftlog.admin.client.client import AdminClient
from kraftlog.commands.admin import RESOURCE_TYPES
from kraftlog.commands.clients import committed_end_offset, connected_client
from statemachine.query.cluster_descriptions import ConfigChange, ConfigChangeKind

_FURTHER_CONFIG: Final = re.compile(r",\s*([a-z][a-z.]*)=")
"""No value of a config of topics or brokers contains this."""

_ALTERED: Final[Mapping[ConfigChangeKind, str]] = {
    ConfigChangeKind.SET: "set",
    ConfigChangeKind.APPEND: "appended to",
    ConfigChangeKind.SUBTRACT: "subtracted from",
    ConfigChangeKind.DELETE: "unset",
}


def check_one_each(configs: dict[str, str]) -> dict[str, str]:
    """The same configs; raises ConfigurationError if one argument holds several, as in kafka-configs."""
    for key, value in configs.items():
        further = _FURTHER_CONFIG.search(value)
        if further is not None:
            raise ConfigurationError(
                f"the value of {key} continues with {further[1]}=; give each config in an option of its own"
            )
    return configs


def config_changes(
    entity_type: str, entity_name: str, values: Mapping[ConfigChangeKind, Mapping[str, str]]
) -> list[ConfigChange]:
    """The changes by kind, each key in one of them. Raises ConfigurationError."""
    kinds: dict[str, ConfigChangeKind] = {}
    changes = []
    for kind, of_kind in values.items():
        for key, value in of_kind.items():
            if key in kinds:
                raise ConfigurationError(f"{key} is both {_ALTERED[kinds[key]]} and {_ALTERED[kind]}; keep one of them")
            kinds[key] = kind
            changes.append(ConfigChange(RESOURCE_TYPES[entity_type], entity_name, key, kind, value))
    return changes


def topic_config_changes(name: str, added: Mapping[str, str], deleted: Iterable[str]) -> list[ConfigChange]:
    """The changes of one topic. Raises ConfigurationError."""
    removed = dict.fromkeys(deleted, "")
    return config_changes("topics", name, {ConfigChangeKind.SET: added, ConfigChangeKind.DELETE: removed})


@dataclass(frozen=True, slots=True)
class ConfigOutcome:
    """The outcome of a change."""

    name: str
    before: str | None
    """None: it was not set."""
    is_altered: bool

    def row(self) -> dict[str, Any]:
        """The outcome for programs."""
        return {"Name": self.name, "Before": self.before, "Altered": self.is_altered}

    def unaltered(self, entity: str) -> str:
        """A sentence with the value that the config already had."""
        found = "was not set" if self.before is None else f"was already {self.before or 'empty'}"
        return f"{self.name} of {entity} {found}; nothing was changed."


async def change_configs(endpoints: Sequence[Endpoint], changes: Sequence[ConfigChange]) -> list[ConfigOutcome]:
    """Make the changes of one resource, all or none. Raises ApiError."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        before = await _values(client, changes, offset)
        await client.alter_configs(changes)
        return await _outcomes(client, changes, before)


async def alter_topic(
    endpoints: Sequence[Endpoint], name: str, partitions: int | None, changes: Sequence[ConfigChange]
) -> list[ConfigOutcome]:
    """Change a topic's configs, then its number of partitions; change nothing if either is refused beforehand.

    Returns the outcome for each config. Raises ApiError.
    """
    counts = {} if partitions is None else {name: partitions}
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        before = await _values(client, changes, offset)
        outcomes: list[ConfigOutcome] = []
        for validate_only in (True, False):
            if changes:
                await client.alter_configs(changes, validate_only=validate_only)
                outcomes = await _outcomes(client, changes, before)
            if counts:
                await client.grow_topics(counts, validate_only=validate_only)
        return outcomes


async def _values(client: AdminClient, changes: Sequence[ConfigChange], offset: int) -> dict[str, str] | None:
    """The configs now set of the resource to be changed; None if they cannot be read."""
    if not changes:
        return {}
    try:
        described = await client.describe_configs(
            changes[0].resource_type, changes[0].resource_name, min_applied_end_offset=offset
        )
    except ApiError:
        return None  # the change itself reports what is wrong
    return {config.name: config.value for config in described.configs}


async def _outcomes(
    client: AdminClient, changes: Sequence[ConfigChange], before: Mapping[str, str] | None
) -> list[ConfigOutcome]:
    """The outcome of the first changes that this client made."""
    was = before or {}
    if not client.last_end_offset:  # nothing was written
        return [ConfigOutcome(change.name, was.get(change.name), is_altered=False) for change in changes]
    now = await _values(client, changes, client.last_end_offset)
    return [
        ConfigOutcome(
            change.name, was.get(change.name), is_altered=now is None or now.get(change.name) != was.get(change.name)
        )
        for change in changes
    ]


async def sourced_config_listing(
    endpoints: Sequence[Endpoint], entity_type: str, entity_name: str
) -> list[dict[str, str]]:
    """One row per config that can be set, by name, with the value in effect and where that is set."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        described = await client.describe_sourced_configs(
            RESOURCE_TYPES[entity_type], entity_name, min_applied_end_offset=offset
        )
    return [{"Name": config.name, "Value": config.value, "Source": config.source} for config in described.configs]
