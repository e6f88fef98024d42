"""What is told about a cluster's features, client quotas, access control entries and config sources.

Numbers are Kafka's. One that this version does not know is told as it is: a newer node may have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

# --- features ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FeatureState:
    """A feature: its level, and the levels that all nodes support."""

    name: str
    min_level: int
    max_level: int
    """0 with `min_level` 0: there is no level that all nodes support."""
    finalized_level: int
    """0: off."""


@dataclass(frozen=True, slots=True)
class DescribedFeatures:
    """Features by name, as of the offset that the answering node had applied."""

    applied_end_offset: int
    features: tuple[FeatureState, ...]


class UpgradeType(IntEnum):
    """Which way a feature's level may go, in Kafka's numbers (KIP-584)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
    """May lose metadata; no controller does it."""


@dataclass(frozen=True, slots=True)
class FeatureChange:
    """A feature's new level."""

    name: str
    level: int
    """0: off."""
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


# --- client quotas ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuotaEntityPart:
    """What a quota is for, or a part of it."""

    entity_type: str
    """user, client-id or ip."""
    entity_name: str | None
    """None: the default of that type."""


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """A quota: bytes, partitions or connections per second, or a percentage of one thread's time, by its key."""

    entity: tuple[QuotaEntityPart, ...]
    key: str
    value: float


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """A quota to set, or to remove."""

    entity: tuple[QuotaEntityPart, ...]
    key: str
    value: float | None
    """None: remove it."""


@dataclass(frozen=True, slots=True)
class DescribedClientQuotas:
    """All quotas, as of the offset that the answering node had applied."""

    applied_end_offset: int
    quotas: tuple[ClientQuota, ...]


# --- access control ---------------------------------------------------------------------------------------------------


class AclResourceType(IntEnum):
    """What access is controlled to. Not the numbers of the things that have configs."""

    ANY = 1
    """In filters only."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a resource name is meant."""

    ANY = 1
    """In filters only: both kinds with exactly that name."""
    MATCH = 2
    """In filters only: every pattern that covers the resource of that name."""
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What may be done."""

    ANY = 1
    """In filters only."""
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(IntEnum):
    """Whether it may be done."""

    ANY = 1
    """In filters only."""
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class AccessControlEntry:
    """Who may do what with which resources, or may not. The numbers are those of the enums above."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    """Its type and its name: User:alice."""
    host: str
    """An address, or * for all."""
    operation: int
    permission_type: int
    acl_id: str | None = None
    """The controller makes it up: None in an entry that is to be created."""


@dataclass(frozen=True, slots=True)
class AccessControlFilter:
    """Which entries are meant; what is None matches everything."""

    resource_type: int | None = None
    resource_name: str | None = None
    pattern_type: int | None = None
    principal: str | None = None
    host: str | None = None
    operation: int | None = None
    permission_type: int | None = None


@dataclass(frozen=True, slots=True)
class DescribedAccessControl:
    """The entries that a filter matches, as of the offset that the answering node had applied."""

    applied_end_offset: int
    entries: tuple[AccessControlEntry, ...]


# --- configs ----------------------------------------------------------------------------------------------------------


class ConfigChangeKind(IntEnum):
    """What becomes of a config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    """Elements are added to a list that is not set, or does not have them."""
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of one config."""

    resource_type: int
    """2 topic, 4 broker."""
    resource_name: str
    """Of a broker: its id, or nothing for the default of all brokers."""
    name: str
    kind: ConfigChangeKind
    value: str = ""
    """Of APPEND and SUBTRACT: elements, separated by commas. Of DELETE: nothing."""


@dataclass(frozen=True, slots=True)
class SourcedConfig:
    """The value that holds for one resource, and where it is set."""

    name: str
    value: str
    source: str
    """TOPIC, BROKER, CLUSTER_DEFAULT, DEFAULT, or UNKNOWN from a node that says something else."""


@dataclass(frozen=True, slots=True)
class DescribedSourcedConfigs:
    """The configs of one resource by name, as of the offset that the answering node had applied."""

    applied_end_offset: int
    configs: tuple[SourcedConfig, ...]
