"""Changes of the metadata of this broker's replicas that the broker has yet to apply. Pure.

Changes are applied in slices, so more may arrive in between. They are merged: only the latest state of each partition
is applied, like at a startup from a snapshot. So there are never more pending changes than partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kraftlog.storage.slices import SLICE_PARTITIONS
from kraftpb.v1.metadata_pb2 import PartitionRecord
from statemachine.replay.deltas import MetadataDelta
from statemachine.tables.table import Key
from statemachine.words.resources import ResourceType

PartitionKey: TypeAlias = tuple[bytes, int]
"""A topic's id, and the number of a partition."""


@dataclass(slots=True)
class Changes:
    """Changes to apply; `leaving` is applied before `arriving`."""

    leaving: dict[PartitionKey, bool] = field(default_factory=dict)
    """The removed replicas, and whether other brokers still have the partition."""
    arriving: dict[PartitionKey, PartitionRecord] = field(default_factory=dict)
    """The latest state of each new or changed replica."""
    topic_names: dict[bytes, str] = field(default_factory=dict)
    """The names of changed topics, by id."""
    is_whole: bool = False
    """Whether `arriving` has all of this broker's replicas: any other is removed."""
    scanned_to: Key | None = None
    """The key after which a snapshot has yet to be scanned for `arriving`; None if the scan is complete."""
    configured_topics: set[str] = field(default_factory=set)
    is_broker_configured: bool = False
    """Whether settings of all topics may have changed."""
    are_brokers_changed: bool = False

    @property
    def is_small(self) -> bool:
        """Whether the changes are applied in one turn of the loop (DB-97)."""
        return self.scanned_to is None and len(self.leaving) + len(self.arriving) <= SLICE_PARTITIONS

    def scanned(self, records: Mapping[PartitionKey, PartitionRecord], scanned_to: Key | None) -> None:
        """Add more records of a snapshot's scan. The latest record of a partition counts, by its partition epoch, since
        the scan may read states that are later than its beginning, or earlier than a change in `arriving`."""
        for key, record in records.items():
            known = self.arriving.get(key)
            if known is None or known.partition_epoch < record.partition_epoch:
                self.arriving[key] = record
        self.scanned_to = scanned_to


class PendingChanges:
    """The pending changes. For one thread."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._changes: Changes | None = None

    def __bool__(self) -> bool:
        return self._changes is not None

    def take(self) -> Changes:
        """Return and remove all pending changes."""
        changes, self._changes = self._changes or Changes(), None
        return changes

    @property
    def is_whole(self) -> bool:
        """Whether a snapshot is pending."""
        return self._changes is not None and self._changes.is_whole

    def replace(self, records: Mapping[PartitionKey, PartitionRecord], scanned_to: Key | None = None) -> None:
        """Replace all pending changes by a snapshot: this broker's replicas, scanned up to a key."""
        self._changes = Changes(arriving=dict(records), is_whole=True, is_broker_configured=True, scanned_to=scanned_to)

    def add(self, delta: MetadataDelta) -> None:
        """Merge a change of the metadata into the pending ones."""
        changes = self._changes = self._changes or Changes()
        for topic in delta.topics:
            if topic.after is not None:
                changes.topic_names[topic.after.topic_id] = topic.after.name
        for partition in delta.partitions:
            before, after = partition.before, partition.after
            if after is not None and self._is_mine(after):
                key = (after.topic_id, after.partition_id)
                changes.leaving.pop(key, None)
                changes.arriving[key] = after
            elif before is not None and self._is_mine(before):
                key = (before.topic_id, before.partition_id)
                changes.arriving.pop(key, None)
                changes.leaving[key] = after is not None
        self._add_configs(changes, delta)
        changes.are_brokers_changed |= bool(delta.brokers)

    def _add_configs(self, changes: Changes, delta: MetadataDelta) -> None:
        changed = [record for change in delta.configs if (record := change.after or change.before) is not None]
        changes.is_broker_configured |= any(record.resource_type == ResourceType.BROKER for record in changed)
        changes.configured_topics |= {
            record.resource_name for record in changed if record.resource_type == ResourceType.TOPIC
        }

    def _is_mine(self, record: PartitionRecord) -> bool:
        return self._broker_id in record.replicas


def keys_of(records: Iterable[PartitionRecord]) -> dict[PartitionKey, PartitionRecord]:
    """Return partition records by their keys."""
    return {(record.topic_id, record.partition_id): record for record in records}
