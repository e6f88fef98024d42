"""What a run of committed batches changed, typed: each changed row, as it was and as it is.

A delta is the net change of one transaction of the store, made just before it is written: a value that was set twice
shows once, and a change without effect does not show. It costs one look-up for each touched row, however large the
state is, and nothing without a publisher.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Generic, TypeVar

from kraftbase.types import Offset
from kraftpb.v1.metadata_pb2 import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoteLogEpochEndRecord,
    RemoteLogSegmentMetadataRecord,
    RemotePartitionDeleteMetadataRecord,
    TopicRecord,
)
from statemachine.replay.changes import Changes
from statemachine.tables.cluster_tables import (
    ACLS,
    BROKERS,
    CLIENT_QUOTAS,
    CONFIGS,
    CONTROLLERS,
    FEATURES,
    PRODUCER_IDS,
)
from statemachine.tables.remote_log_tables import REMOTE_EPOCH_ENDS, REMOTE_PARTITION_DELETES, REMOTE_SEGMENTS
from statemachine.tables.table import Table
from statemachine.tables.topic_tables import PARTITIONS, TOPICS

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Change(Generic[R]):
    """One change. The records must not be changed."""

    before: R | None
    """None: it was created."""
    after: R | None
    """None: it was removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataDelta:
    """The changes of one run of committed batches."""

    end_offset: Offset
    """The offset after the last record of the run."""
    features: tuple[Change[FeatureLevelRecord], ...] = ()
    """A feature that is off now has no `after`."""
    controllers: tuple[Change[RegisterControllerRecord], ...] = ()
    brokers: tuple[Change[RegisterBrokerRecord], ...] = ()
    """Registrations, with their state: fenced or not, shutting down or not, which directories work."""
    topics: tuple[Change[TopicRecord], ...] = ()
    partitions: tuple[Change[PartitionRecord], ...] = ()
    """The partitions of a removed topic are among them, each by itself."""
    configs: tuple[Change[ConfigRecord], ...] = ()
    client_quotas: tuple[Change[ClientQuotaRecord], ...] = ()
    producer_ids: tuple[Change[ProducerIdsRecord], ...] = ()
    acls: tuple[Change[AccessControlEntryRecord], ...] = ()
    remote_segments: tuple[Change[RemoteLogSegmentMetadataRecord], ...] = ()
    remote_epoch_ends: tuple[Change[RemoteLogEpochEndRecord], ...] = ()
    """The highest offset that was ever tiered in a leader epoch of a partition."""
    remote_partition_deletes: tuple[Change[RemotePartitionDeleteMetadataRecord], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed: the run had no records with an effect."""
        return not any(getattr(self, field.name) for field in fields(self) if field.name != "end_offset")


_TABLES: Final[dict[str, Table[Any]]] = {
    "features": FEATURES,
    "controllers": CONTROLLERS,
    "brokers": BROKERS,
    "topics": TOPICS,
    "partitions": PARTITIONS,
    "configs": CONFIGS,
    "client_quotas": CLIENT_QUOTAS,
    "producer_ids": PRODUCER_IDS,
    "acls": ACLS,
    "remote_segments": REMOTE_SEGMENTS,
    "remote_epoch_ends": REMOTE_EPOCH_ENDS,
    "remote_partition_deletes": REMOTE_PARTITION_DELETES,
}
"""The field of a delta for each kind of metadata; the other tables are derived from these."""


def delta_of(changes: Changes, end_offset: Offset) -> MetadataDelta:
    """The changes that `changes`, which are not written yet, will make."""
    by_field = {
        name: tuple(Change(before, after) for before, after in changes.differences(table) if before != after)
        for name, table in _TABLES.items()
    }
    return MetadataDelta(end_offset=end_offset, **by_field)
