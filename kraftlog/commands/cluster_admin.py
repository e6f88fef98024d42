"""The commands about features, quotas and access control: arguments become requests, and answers become rows, as in
`kraftlog.commands.admin`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from kraftlog.commands.admin import DEFAULT_ENTITY, parse_configs
from kraftlog.commands.clients import committed_end_offset, connected_client
from statemachine.query.cluster_descriptions import (
    AccessControlEntry,
    AccessControlFilter,
    AclOperation,
    AclResourceType,
    ClientQuota,
    FeatureChange,
    FeatureState,
    PatternType,
    PermissionType,
    QuotaAlteration,
    QuotaEntityPart,
    UpgradeType,
)
from statemachine.words.features import LEVELS_BY_RELEASE, METADATA_VERSION, METADATA_VERSION_NAMES
from statemachine.words.names import quoted

LEVEL_MAX: Final = 2**15 - 1
"""The highest level of any feature."""

# --- features ---------------------------------------------------------------------------------------------------------


def parse_metadata_version(text: str) -> int:
    """A level (27), a version (4.1-IV1) or a release (4.1: the newest version of it). Raises ConfigurationError."""
    if text.isascii() and text.isdigit() and len(text) <= 5:
        return int(text)
    levels = [level for level, name in METADATA_VERSION_NAMES.items() if text in (name, name.partition("-")[0])]
    if not levels:
        first, *_, last = METADATA_VERSION_NAMES.values()
        raise ConfigurationError(
            f"{text!r} is not a {METADATA_VERSION}; give a version between {first} and {last}, its release or its level"
        )
    return max(levels)


def parse_features(texts: Iterable[str]) -> dict[str, int]:
    """`NAME=LEVEL` each; 0 is off. Raises ConfigurationError."""
    levels: dict[str, int] = {}
    for text in texts:
        name, separator, level = text.partition("=")
        if not name or not separator:
            raise ConfigurationError(f"{text!r} is not a feature; write NAME=LEVEL")
        if name in levels:
            raise ConfigurationError(f"{name} is given twice; keep one of them")
        if name == METADATA_VERSION:
            levels[name] = parse_metadata_version(level)
        elif level.isascii() and level.isdigit() and len(level) <= 5 and int(level) <= LEVEL_MAX:
            levels[name] = int(level)
        else:
            raise ConfigurationError(
                f"{level!r} is not a level of {name}; write a whole number up to {LEVEL_MAX}, 0 for off"
            )
    return levels


def parse_release(text: str) -> Mapping[str, int]:
    """The levels in a new cluster of a Kafka release such as 4.1. Raises ConfigurationError."""
    if text not in LEVELS_BY_RELEASE:
        raise ConfigurationError(f"{text!r} is not a known release; give one of {', '.join(LEVELS_BY_RELEASE)}")
    return LEVELS_BY_RELEASE[text]


def feature_changes(
    metadata_version: int | None,
    features: Mapping[str, int],
    upgrade_type: UpgradeType,
    of_release: Mapping[str, int] | None = None,
) -> list[FeatureChange]:
    """The changes that the options request, metadata.version first. Raises ConfigurationError."""
    levels = dict(features)
    if of_release is not None:
        if metadata_version is not None or features:
            raise ConfigurationError(
                "--release-version sets the level of every feature; leave --metadata and --feature out"
            )
        levels = dict(of_release)
    if metadata_version is not None:
        if METADATA_VERSION in features:
            raise ConfigurationError(
                f"--metadata and --feature {METADATA_VERSION} set the same feature; keep one of them"
            )
        levels = {METADATA_VERSION: metadata_version, **features}
    if not levels:
        raise ConfigurationError("no level is given; give --release-version, --metadata or --feature")
    return [FeatureChange(name, level, upgrade_type) for name, level in levels.items()]


def shown_level(name: str, level: int) -> str:
    """A level as users read it."""
    release = METADATA_VERSION_NAMES.get(level) if name == METADATA_VERSION else None
    return f"{level} ({release})" if release is not None else str(level)


async def update_features(
    endpoints: Sequence[Endpoint], changes: Sequence[FeatureChange], *, dry_run: bool
) -> list[FeatureChange]:
    """Set the levels, all or none; with `dry_run` only validate. Raises ApiError.

    Returns the changes of features that had another level.
    """
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        described = await client.describe_features(min_applied_end_offset=offset)
        await client.update_features(changes, validate_only=dry_run)
    before = {feature.name: feature.finalized_level for feature in described.features}
    return [change for change in changes if change.level != before.get(change.name, 0)]


async def feature_listing(endpoints: Sequence[Endpoint]) -> list[dict[str, Any]]:
    """One row per feature, by name."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        described = await client.describe_features(min_applied_end_offset=offset)
    return [_feature(feature) for feature in described.features]


def _feature(feature: FeatureState) -> dict[str, Any]:
    releases = METADATA_VERSION_NAMES if feature.name == METADATA_VERSION else {}
    return {
        "Feature": feature.name,
        "SupportedMinVersion": feature.min_level,
        "SupportedMaxVersion": feature.max_level,
        "FinalizedVersionLevel": feature.finalized_level,
        "Release": releases.get(feature.finalized_level),
    }


# --- client quotas ----------------------------------------------------------------------------------------------------


def quota_entity(names: Mapping[str, str | None], defaults: Mapping[str, bool]) -> tuple[QuotaEntityPart, ...]:
    """The entity that the options name: by type (user, client-id, ip) a name, or the default.

    Raises ConfigurationError for a name that is empty, and for both at once.
    """
    parts = []
    for entity_type, name in names.items():
        is_default = defaults.get(entity_type, False)
        if name is not None and is_default:
            raise ConfigurationError(
                f"--{entity_type} and --{entity_type}-default exclude each other; keep one of them"
            )
        if name == "":
            raise ConfigurationError(f"--{entity_type} is empty; give a name, or use --{entity_type}-default")
        if name is not None or is_default:
            parts.append(QuotaEntityPart(entity_type, name))
    return tuple(parts)


def quota_alterations(
    entity: tuple[QuotaEntityPart, ...], added: Iterable[str], deleted: Iterable[str]
) -> list[QuotaAlteration]:
    """`KEY=NUMBER` each to set, keys to remove. Raises ConfigurationError."""
    if not entity:
        raise ConfigurationError("no entity is named; give --user, --client-id, both, or --ip, or the default of one")
    values: dict[str, float | None] = {}
    for key, text in parse_configs(added).items():
        values[key] = _number(key, text)
    for key in deleted:
        if not key:
            raise ConfigurationError("a quota to remove has an empty name; write its key")
        if values.get(key) is not None:
            raise ConfigurationError(f"{key} is both set and removed; keep one of them")
        values[key] = None
    if not values:
        raise ConfigurationError("there is nothing to alter; give --add-config or --delete-config")
    return [QuotaAlteration(entity, key, value) for key, value in values.items()]


def _number(key: str, text: str) -> float:
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigurationError(f"{text!r} is not a value of {key}; write a number, such as 1048576")
    return value


async def alter_client_quotas(
    endpoints: Sequence[Endpoint], alterations: Sequence[QuotaAlteration]
) -> list[QuotaAlteration]:
    """Alter the quotas of one entity, all or none. Raises ApiError.

    Returns the quotas that had another value: the controller accepts the other ones, too, and writes nothing for them.
    """
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        described = await client.describe_client_quotas(min_applied_end_offset=offset)
        await client.alter_client_quotas(alterations)
    before = {(frozenset(quota.entity), quota.key): quota.value for quota in described.quotas}
    return [of for of in alterations if of.value != before.get((frozenset(of.entity), of.key))]


def shown_number(value: float) -> str:
    """A quota's value as the user writes it."""
    return str(_whole(value))


async def quota_listing(endpoints: Sequence[Endpoint], entity: Sequence[QuotaEntityPart] = ()) -> list[dict[str, Any]]:
    """One row per quota whose entity has at least these parts."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        described = await client.describe_client_quotas(min_applied_end_offset=offset)
    return [_quota(quota) for quota in described.quotas if set(entity) <= set(quota.entity)]


def shown_entity(entity: Iterable[QuotaEntityPart]) -> str:
    """An entity as users read it."""
    return ", ".join(
        f"{part.entity_type} {DEFAULT_ENTITY if part.entity_name is None else quoted(part.entity_name)}"
        for part in entity
    )


def _quota(quota: ClientQuota) -> dict[str, Any]:
    return {
        "Entity": shown_entity(quota.entity),
        "Parts": [{"Type": part.entity_type, "Name": part.entity_name} for part in quota.entity],
        "Quota": quota.key,
        "Value": _whole(quota.value),
    }


def _whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value


# --- access control ---------------------------------------------------------------------------------------------------


async def add_acls(endpoints: Sequence[Endpoint], entries: Sequence[AccessControlEntry]) -> list[dict[str, Any]]:
    """Create entries; one row each, also for existing entries. Raises ApiError for the first refused entry."""
    async with connected_client(endpoints) as client:
        ids = await client.create_acls(entries)
    return [{**_acl(entry), "Id": acl_id} for entry, acl_id in zip(entries, ids, strict=True)]


async def acl_listing(endpoints: Sequence[Endpoint], filters: Sequence[AccessControlFilter]) -> list[dict[str, Any]]:
    """One row per entry that one of the filters matches."""
    offset = await committed_end_offset(endpoints)
    found: dict[str | None, AccessControlEntry] = {}
    async with connected_client(endpoints) as client:
        for wanted in filters:
            described = await client.describe_acls(wanted, min_applied_end_offset=offset)
            found |= {entry.acl_id: entry for entry in described.entries}
    return [_acl(entry) for entry in sorted(found.values(), key=_acl_order)]


async def remove_acls(endpoints: Sequence[Endpoint], filters: Sequence[AccessControlFilter]) -> list[dict[str, Any]]:
    """Remove the entries that one of the filters matches; one row per removed entry. Raises ApiError."""
    async with connected_client(endpoints) as client:
        deleted = await client.delete_acls(filters)
    return [_acl(entry) for entry in sorted(deleted, key=_acl_order)]


def _acl_order(entry: AccessControlEntry) -> tuple[object, ...]:
    return (entry.resource_type, entry.resource_name, entry.pattern_type, entry.principal, entry.host, entry.operation)


def _acl(entry: AccessControlEntry) -> dict[str, Any]:
    return {
        "ResourceType": _word(AclResourceType, entry.resource_type),
        "ResourceName": entry.resource_name,
        "PatternType": _word(PatternType, entry.pattern_type),
        "Principal": entry.principal,
        "Host": entry.host,
        "Operation": _word(AclOperation, entry.operation),
        "PermissionType": _word(PermissionType, entry.permission_type),
        "Id": entry.acl_id,
    }


def _word(words: type[IntEnum], number: int) -> str:
    """Kafka's name; the number itself if only a newer node knows the name."""
    return next((word.name for word in words if word == number), str(number))
