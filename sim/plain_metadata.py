"""What the committed log says, in plain dictionaries: what nodes have in SQLite is compared with this.

It is written from the rules (kafka-facts 5.1, CT-01 to CT-16, TS-60) and uses nothing of `statemachine.replay` and the
tables. A record that cannot be true raises Contradiction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord, PartitionChangeRecord, PartitionRecord
from raft.core.types import Batch
from raft.storage.batch import batch_body

NOBODY: Final = -1
"""The leader of a partition that nobody leads."""

TOPIC, BROKER = 2, 4
"""Kinds of resources that have configs, by Kafka's numbers."""

STARTED, FINISHED, DELETING, DELETED = 0, 1, 2, 3
"""States of the copy of a segment in remote storage."""

Key = tuple[bytes, int]
"""A partition: its topic's id and its own."""


class Contradiction(Exception):
    """A committed record that cannot be, after those before it."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    recovery_state: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    directories: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Broker:
    """One registration."""

    epoch: int
    incarnation_id: bytes
    fenced: bool
    shutting_down: bool
    log_dirs: tuple[bytes, ...]
    unclean_shutdown: bool

    @property
    def is_active(self) -> bool:
        """Whether it may lead and be in sync."""
        return not self.fenced and not self.shutting_down


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment in remote storage."""

    start_offset: int
    end_offset: int
    """Inclusive."""
    state: int
    leader_epochs: tuple[tuple[int, int], ...]
    """Each with its first offset."""


class Change(NamedTuple):
    """What a committed record changed, and what its effect must be judged by."""

    offset: int
    kind: str
    """`partition`, `broker`, `topic` or `segment`."""
    key: Any
    before: Any
    after: Any
    active: frozenset[int]
    """The brokers that could lead, after the record."""
    min_isr: int
    """Of a partition: how many must be in sync for a write."""


class TakenBatch(NamedTuple):
    """A committed batch."""

    records: Sequence[MetadataRecord]
    base_offset: int
    end_offset: int


class PlainMetadata:
    """All of it."""

    def __init__(self) -> None:
        self.end_offset = 0
        """Everything below has taken effect."""
        self.topics: dict[bytes, str] = {}
        self.partitions: dict[Key, Partition] = {}
        self.brokers: dict[int, Broker] = {}
        self.configs: dict[tuple[int, str, str], str] = {}
        self.features: dict[str, int] = {}
        self.controllers: set[int] = set()
        """Those that have registered."""
        self.segments: dict[tuple[bytes, int, bytes], Segment] = {}
        self.copied_ends: dict[Key, int] = {}
        """Up to where partitions were ever copied: exclusive."""
        self.partition_deletes: dict[Key, int] = {}
        self._waiting: list[tuple[int, MetadataRecord]] = []
        """Of a transaction that has not ended, each with its offset."""
        self._changes: list[Change] = []

    # --- the log ------------------------------------------------------------------------------------------------------

    def apply(self, batch: TakenBatch) -> list[Change]:
        """Take in a committed batch and tell what it changed. Raises Contradiction."""
        self._changes = []
        for offset, record in enumerate(batch.records, batch.base_offset):
            kind = record.WhichOneof("record") or ""
            if kind == "begin_transaction":
                self._waiting = [(offset, record)]
            elif kind == "end_transaction":
                for waiting in self._waiting:
                    self._take(*waiting)
                self._waiting = []
            elif kind == "abort_transaction":
                self._waiting = []
            elif self._waiting:
                self._waiting.append((offset, record))
            else:
                self._take(offset, record)
        if not self._waiting:
            self.end_offset = batch.end_offset
        return self._changes

    def _take(self, offset: int, record: MetadataRecord) -> None:
        kind = record.WhichOneof("record") or ""
        if kind in _WITHOUT_EFFECT:
            return
        take = getattr(self, f"_take_{kind}", None)
        if take is None:
            raise Contradiction(f"the record at offset {offset} is a {kind}, which no simulated controller writes")
        try:
            take(offset, getattr(record, kind))
        except KeyError as missing:
            raise Contradiction(f"the {kind} at offset {offset} needs {missing}, which is not there") from None

    def _note(self, offset: int, kind: str, key: Any, before: Any, after: Any) -> None:
        active = frozenset(broker_id for broker_id, broker in self.brokers.items() if broker.is_active)
        min_isr = self.min_isr(key[0]) if kind == "partition" else 0
        self._changes.append(Change(offset, kind, key, before, after, active, min_isr))

    # --- topics and partitions ----------------------------------------------------------------------------------------

    def _take_topic(self, offset: int, record: Any) -> None:
        if record.topic_id in self.topics or record.name in self.topics.values():
            raise Contradiction(f"the topic {record.name} at offset {offset} exists")
        self.topics[record.topic_id] = record.name
        self._note(offset, "topic", record.topic_id, None, record.name)

    def _take_remove_topic(self, offset: int, record: Any) -> None:
        name = self.topics.pop(record.topic_id)
        self.partitions = {key: value for key, value in self.partitions.items() if key[0] != record.topic_id}
        self.configs = {key: value for key, value in self.configs.items() if key[:2] != (TOPIC, name)}
        self._note(offset, "topic", record.topic_id, name, None)

    def _take_partition(self, offset: int, record: PartitionRecord) -> None:
        key = (record.topic_id, record.partition_id)
        _ = self.topics[record.topic_id]
        after = Partition(
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            recovery_state=record.leader_recovery_state,
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            elr=tuple(record.eligible_leader_replicas),
            last_known_elr=tuple(record.last_known_elr),
            adding=tuple(record.adding_replicas),
            removing=tuple(record.removing_replicas),
            directories=tuple(record.directories),
        )
        before = self.partitions.get(key)
        self.partitions[key] = after
        self._note(offset, "partition", key, before, after)

    def _take_partition_change(self, offset: int, record: PartitionChangeRecord) -> None:
        key = (record.topic_id, record.partition_id)
        before = self.partitions[key]
        changed: dict[str, Any] = {"partition_epoch": before.partition_epoch + 1}
        if record.HasField("leader"):
            changed |= {"leader": record.leader, "leader_epoch": before.leader_epoch + 1}
        if record.HasField("leader_recovery_state"):
            changed["recovery_state"] = record.leader_recovery_state
        changed |= {
            own: tuple(getattr(record, field).ids)
            for field, own in _CHANGED_LISTS.items()
            if record.HasField(field)  # type: ignore[arg-type]
        }
        after = self.partitions[key] = replace(before, **changed)
        self._note(offset, "partition", key, before, after)

    # --- brokers ------------------------------------------------------------------------------------------------------

    def _take_register_broker(self, offset: int, record: Any) -> None:
        before = self.brokers.get(record.broker_id)
        after = self.brokers[record.broker_id] = Broker(
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            fenced=record.fenced,
            shutting_down=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            unclean_shutdown=record.unclean_shutdown,
        )
        self._note(offset, "broker", record.broker_id, before, after)

    def _take_unregister_broker(self, offset: int, record: Any) -> None:
        before = self._registered(offset, record)
        del self.brokers[record.broker_id]
        self._note(offset, "broker", record.broker_id, before, None)

    def _take_broker_registration_change(self, offset: int, record: Any) -> None:
        before = self._registered(offset, record)
        changed: dict[str, Any] = {}
        if record.HasField("fenced"):
            changed["fenced"] = record.fenced
            if not record.fenced:
                changed["unclean_shutdown"] = False
        if record.HasField("in_controlled_shutdown"):
            changed["shutting_down"] = record.in_controlled_shutdown
        if record.HasField("log_dirs"):
            changed["log_dirs"] = tuple(record.log_dirs.ids)
        after = self.brokers[record.broker_id] = replace(before, **changed)
        self._note(offset, "broker", record.broker_id, before, after)

    def _registered(self, offset: int, record: Any) -> Broker:
        broker = self.brokers[record.broker_id]
        if broker.epoch != record.broker_epoch:
            raise Contradiction(
                f"the record at offset {offset} is for broker {record.broker_id} of epoch {record.broker_epoch}, and"
                f" it has {broker.epoch}"
            )
        return broker

    # --- configs and features -----------------------------------------------------------------------------------------

    def _take_config(self, offset: int, record: Any) -> None:
        key = (record.resource_type, record.resource_name, record.name)
        if record.HasField("value"):
            self.configs[key] = record.value
        else:
            self.configs.pop(key, None)

    def _take_feature_level(self, offset: int, record: Any) -> None:
        self.features.pop(record.name, None)
        if record.level:
            self.features[record.name] = record.level

    def _take_register_controller(self, offset: int, record: Any) -> None:
        self.controllers.add(record.controller_id)

    def topic_config(self, topic_id: bytes, name: str, default: str) -> str:
        """What a topic's config is: its own, or the cluster's, or `default`."""
        own = self.configs.get((TOPIC, self.topics.get(topic_id, ""), name))
        return own or self.configs.get((BROKER, "", name)) or default

    def min_isr(self, topic_id: bytes) -> int:
        """How many replicas must be in sync for a write."""
        return int(self.topic_config(topic_id, "min.insync.replicas", "1"))

    def allows_unclean(self, topic_id: bytes) -> bool:
        """Whether somebody may lead who may lack something."""
        return self.topic_config(topic_id, "unclean.leader.election.enable", "false") == "true"

    @property
    def has_elr(self) -> bool:
        """Whether eligible leader replicas are kept (KIP-966)."""
        return self.features.get("eligible.leader.replicas.version", 0) >= 1

    # --- remote storage -----------------------------------------------------------------------------------------------

    def _take_remote_log_segment_metadata(self, offset: int, record: Any) -> None:
        key = (record.topic_id, record.partition_id, record.segment_id)
        before = self.segments.get(key)
        epochs = tuple((entry.leader_epoch, entry.start_offset) for entry in record.segment_leader_epochs)
        after = Segment(record.start_offset, record.end_offset, record.state, epochs)
        if record.state != STARTED or before not in (None, after):
            raise Contradiction(f"the segment at offset {offset} is {before}, and begins as {after}")
        self.segments[key] = after
        self._note(offset, "segment", key, before, after)

    def _take_remote_log_segment_metadata_update(self, offset: int, record: Any) -> None:
        key = (record.topic_id, record.partition_id, record.segment_id)
        before = self.segments[key]
        if record.state not in _FOLLOWS[before.state]:
            raise Contradiction(f"the segment at offset {offset} goes from state {before.state} to {record.state}")
        after = self.segments[key] = replace(before, state=record.state)
        if record.state == FINISHED:
            self.copied_ends[key[:2]] = max(self.copied_ends.get(key[:2], 0), after.end_offset + 1)
        if record.state == DELETED:
            del self.segments[key]
        self._note(offset, "segment", key, before, after)

    def _take_remote_partition_delete_metadata(self, offset: int, record: Any) -> None:
        key = (record.topic_id, record.partition_id)
        if record.state not in (self.partition_deletes.get(key, -1), self.partition_deletes.get(key, -1) + 1):
            raise Contradiction(
                f"the deletion of a partition at offset {offset} comes too soon to state {record.state}"
            )
        self.partition_deletes[key] = record.state
        if record.state == 2:
            del self.partition_deletes[key]
            self.segments = {place: found for place, found in self.segments.items() if place[:2] != key}


_WITHOUT_EFFECT: Final = ("no_op", "begin_transaction")

_CHANGED_LISTS: Final = {
    "replicas": "replicas",
    "isr": "isr",
    "eligible_leader_replicas": "elr",
    "last_known_elr": "last_known_elr",
    "adding_replicas": "adding",
    "removing_replicas": "removing",
    "directories": "directories",
}

_FOLLOWS: Final = {STARTED: (FINISHED, DELETING), FINISHED: (FINISHED, DELETING), DELETING: (DELETING, DELETED)}


def taken(batch: Batch) -> TakenBatch:
    """A batch of the log with its records."""
    records = () if batch.is_control else MetadataBatch.FromString(bytes(batch_body(batch))).records
    return TakenBatch(records, batch.base_offset, batch.end_offset)
