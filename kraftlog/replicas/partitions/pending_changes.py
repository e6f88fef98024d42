"""What the metadata says of this broker's replicas, and the broker has not carried out yet. Pure.

Changes are carried out in slices, so more may come meanwhile. They are merged: of each partition only the latest state
is carried out, as a start does that finds a snapshot. So there are never more of them than partitions.
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
    """What is to be carried out: who leaves goes before who arrives."""

    leaving: dict[PartitionKey, bool] = field(default_factory=dict)
    """Replicas that are not here any more, and whether other brokers have the partition."""
    arriving: dict[PartitionKey, PartitionRecord] = field(default_factory=dict)
    """The latest state of each replica that is here."""
    topic_names: dict[bytes, str] = field(default_factory=dict)
    """Of the topics that were created."""
    is_whole: bool = False
    """Whether `arriving` has all replicas that are here: others leave."""
    scanned_to: Key | None = None
    """The key behind which a whole state has yet to be scanned for `arriving`; None if all of it was."""
    configured_topics: set[str] = field(default_factory=set)
    is_broker_configured: bool = False
    """Whether a setting of all topics may have changed."""
    are_brokers_changed: bool = False

    @property
    def is_small(self) -> bool:
        """Whether they are carried out in one turn of the loop (DB-97)."""
        return self.scanned_to is None and len(self.leaving) + len(self.arriving) <= SLICE_PARTITIONS

    def scanned(self, records: Mapping[PartitionKey, PartitionRecord], scanned_to: Key | None) -> None:
        """More of a whole state was scanned. It may be later than the state in which the scan began, or earlier than a
        change that has come since."""
        for key, record in records.items():
            known = self.arriving.get(key)
            if known is None or known.partition_epoch < record.partition_epoch:
                self.arriving[key] = record
        self.scanned_to = scanned_to


class PendingChanges:
    """The changes that wait. For one thread."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._changes: Changes | None = None

    def __bool__(self) -> bool:
        return self._changes is not None

    def take(self) -> Changes:
        """All that waits; nothing waits afterwards."""
        changes, self._changes = self._changes or Changes(), None
        return changes

    @property
    def is_whole(self) -> bool:
        """Whether a whole state waits."""
        return self._changes is not None and self._changes.is_whole

    def replace(self, records: Mapping[PartitionKey, PartitionRecord], scanned_to: Key | None = None) -> None:
        """A whole state takes the place of all that waits: the replicas that are here, up to a key of a scan."""
        self._changes = Changes(arriving=dict(records), is_whole=True, is_broker_configured=True, scanned_to=scanned_to)

    def add(self, delta: MetadataDelta) -> None:
        """Something has changed."""
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
    """The same by key."""
    return {(record.topic_id, record.partition_id): record for record in records}
