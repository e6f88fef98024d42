"""Descriptions of topics, brokers and configs: the values that queries and the client return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in one line."""

    name: str
    topic_id: str
    num_partitions: int
    replication_factor: int
    """Of partition 0; 0 if it has no partitions."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition: its replicas and its leader."""

    partition_id: int
    leader: int
    """-1: none."""
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    """0 recovered, 1 recovering."""
    directories: tuple[str, ...] = ()
    """The log directory of each replica, in the order of `replicas`."""
    eligible_leader_replicas: tuple[int, ...] = ()
    """May lead though not in sync (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions, by partition id, and the configs that were set, by name."""

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    configs: tuple[ConfigValue, ...]


class BrokerListener(NamedTuple):
    """Where a broker listens."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class FeatureLevels(NamedTuple):
    """The levels of a feature that a broker supports."""

    name: str
    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker's registration."""

    broker_id: int
    broker_epoch: int
    incarnation_id: str
    listeners: tuple[BrokerListener, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[str, ...]
    features: tuple[FeatureLevels, ...] = ()
    older_log_dirs: tuple[str, ...] = ()
    """Those of its log directories that were older copies when it registered (CT-38)."""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A config that was set for one resource."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of objects of each kind below one offset; equal on any two nodes that have applied as much."""

    end_offset: int
    topics: int
    partitions: int
    brokers: int
    configs: int


# --- arguments and results of the admin client ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create: with counts, or with the brokers of each partition."""

    name: str
    num_partitions: int = -1
    """-1: the cluster's num.partitions, or as many as `assignments` has."""
    replication_factor: int = -1
    """-1: the cluster's default.replication.factor, or as many as `assignments` has."""
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """The brokers of each partition, the preferred leader first."""
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or could be."""

    name: str
    topic_id: str
    num_partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class Alteration:
    """A config to set, or to remove."""

    resource_type: int
    """2 topic, 4 broker."""
    resource_name: str
    """Of a broker: its id, or nothing for the default of all brokers."""
    name: str
    value: str | None
    """None: remove it."""


@dataclass(frozen=True, slots=True)
class ListedTopics:
    """Topics by name, as of the offset that the answering node had applied."""

    applied_end_offset: int
    topics: tuple[TopicListing, ...]


@dataclass(frozen=True, slots=True)
class DescribedTopics:
    """Topics in full, as of the offset that the answering node had applied."""

    applied_end_offset: int
    topics: tuple[TopicDescription, ...]


@dataclass(frozen=True, slots=True)
class ListedBrokers:
    """Brokers by id, as of the offset that the answering node had applied."""

    applied_end_offset: int
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class DescribedConfigs:
    """The configs of one resource by name, as of the offset that the answering node had applied."""

    applied_end_offset: int
    configs: tuple[ConfigValue, ...]


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """What an SQL statement has found, as of the offset that the answering node had applied."""

    applied_end_offset: int
    columns: tuple[str, ...]
    rows: tuple[tuple[int | float | str | bytes | None, ...], ...]
