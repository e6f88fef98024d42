"""The metadata of the committed log in plain dictionaries, which is compared with SQLite on the nodes.

It is written from the rules (CT-01 to CT-04, CT-16, TS-60) and uses nothing of `statemachine.replay` or the tables. An
impossible record raises Contradiction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from kraftlog.sim.quorum.model.keys import Contradiction, Key
from kraftlog.sim.quorum.model.registrations import Broker, Controller, registered_broker, registered_controller
from kraftlog.sim.quorum.model.tiering import TieringModel
from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord, PartitionChangeRecord, PartitionRecord
from raft.core.types import Batch
from raft.storage.batch import batch_body

NO_LEADER: Final = -1
"""The leader of a partition that has none."""

TOPIC, BROKER = 2, 4
"""Kinds of resources that have configs, by Kafka's numbers."""


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
class DeletedTopic:
    """The state of a topic when it was deleted."""

    partitions: frozenset[Key]
    with_segments: frozenset[Key]
    """The partitions with segments in remote storage, in any state."""
    is_tiered: bool
    """Whether the topic's segments are copied to remote storage (remote.storage.enable)."""
    being_removed: frozenset[Key]
    """The partitions whose remote data was already being deleted, because of an earlier record."""


class Change(NamedTuple):
    """The change that a committed record made, with the state that its checks need."""

    offset: int
    unit: int
    """The end offset of the batch or transaction. Changes that take effect together have the same."""
    kind: str
    """`partition`, `broker`, `topic`, `deleted topic`, `segment` or `removal` (of a partition's remote data)."""
    key: Any
    before: Any
    after: Any
    active: frozenset[int]
    """The brokers that could lead after the record."""
    min_isr: int
    """Of a partition: the number of in-sync replicas that a write requires."""


class TakenBatch(NamedTuple):
    """A committed batch."""

    records: Sequence[MetadataRecord]
    base_offset: int
    end_offset: int


class MetadataModel:
    """The metadata of the committed log."""

    def __init__(self) -> None:
        self.end_offset = 0
        """Everything below this offset has taken effect."""
        self.topics: dict[bytes, str] = {}
        self.partitions: dict[Key, Partition] = {}
        self.brokers: dict[int, Broker] = {}
        self.configs: dict[tuple[int, str, str], str] = {}
        self.features: dict[str, int] = {}
        self.controllers: dict[int, Controller] = {}
        """The registered controllers, by id."""
        self.tiering = TieringModel()
        self._waiting: list[tuple[int, MetadataRecord]] = []
        """The records of the open transaction, each with its offset."""
        self._changes: list[Change] = []
        self._unit = 0

    # --- the log ------------------------------------------------------------------------------------------------------

    def apply(self, batch: TakenBatch) -> list[Change]:
        """Apply a committed batch; return its changes. Raises Contradiction."""
        self._changes, self._unit = [], batch.end_offset
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
            raise Contradiction(f"the {kind} at offset {offset} needs {missing}, which does not exist") from None

    def _note(self, offset: int, kind: str, key: Any, before: Any, after: Any) -> None:
        active = frozenset(broker_id for broker_id, broker in self.brokers.items() if broker.is_active)
        min_isr = self.min_isr(key[0]) if kind == "partition" else 0
        self._changes.append(Change(offset, self._unit, kind, key, before, after, active, min_isr))

    # --- topics and partitions ----------------------------------------------------------------------------------------

    def _take_topic(self, offset: int, record: Any) -> None:
        if record.topic_id in self.topics or record.name in self.topics.values():
            raise Contradiction(f"the topic {record.name} at offset {offset} exists")
        self.topics[record.topic_id] = record.name
        self._note(offset, "topic", record.topic_id, None, record.name)

    def _take_remove_topic(self, offset: int, record: Any) -> None:
        topic_id = record.topic_id
        deleted = DeletedTopic(
            partitions=frozenset(key for key in self.partitions if key[0] == topic_id),
            with_segments=frozenset(place[:2] for place in self.tiering.segments if place[0] == topic_id),
            is_tiered=self.topic_config(topic_id, "remote.storage.enable", "false").lower() == "true",
            being_removed=frozenset(key for key in self.tiering.removals if key[0] == topic_id),
        )
        name = self.topics.pop(topic_id)
        self.partitions = {key: value for key, value in self.partitions.items() if key[0] != topic_id}
        self.configs = {key: value for key, value in self.configs.items() if key[:2] != (TOPIC, name)}
        self.tiering.remove_topic(topic_id)
        self._note(offset, "topic", topic_id, name, None)
        self._note(offset, "deleted topic", topic_id, deleted, None)

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
        after = self.brokers[record.broker_id] = registered_broker(record)
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
                if before.last_unfenced_epoch is not None:
                    changed["last_unfenced_epoch"] = before.epoch
        if record.HasField("in_controlled_shutdown"):
            changed["shutting_down"] = record.in_controlled_shutdown
        if record.HasField("log_dirs"):
            changed["log_dirs"] = tuple(record.log_dirs.ids)
            if before.last_unfenced_epoch == before.epoch:
                failed = [(name, before.epoch) for name in before.log_dirs if name not in record.log_dirs.ids]
                others = [directory for directory in before.unfenced_log_dirs if directory[0] not in dict(failed)]
                changed["unfenced_log_dirs"] = tuple(
                    sorted([*others, *failed], key=lambda directory: (-directory[1], directory[0]))
                )
        if record.HasField("full_log_dirs"):
            changed["full_log_dirs"] = tuple(record.full_log_dirs.ids)
        after = self.brokers[record.broker_id] = replace(before, **changed)
        self._note(offset, "broker", record.broker_id, before, after)

    def _registered(self, offset: int, record: Any) -> Broker:
        broker = self.brokers[record.broker_id]
        if broker.epoch != record.broker_epoch:
            raise Contradiction(
                f"the record at offset {offset} is for broker {record.broker_id} in epoch {record.broker_epoch}, but"
                f" its epoch is {broker.epoch}"
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
        self.controllers[record.controller_id] = registered_controller(record)

    def topic_config(self, topic_id: bytes, name: str, default: str) -> str:
        """Return a topic's config: its own value, or else the cluster's, or else `default`."""
        own = self.configs.get((TOPIC, self.topics.get(topic_id, ""), name))
        return own or self.configs.get((BROKER, "", name)) or default

    def min_isr(self, topic_id: bytes) -> int:
        """The number of in-sync replicas that a write requires."""
        return int(self.topic_config(topic_id, "min.insync.replicas", "1"))

    def allows_unclean(self, topic_id: bytes) -> bool:
        """Whether a replica that may lack committed records may become leader."""
        return self.topic_config(topic_id, "unclean.leader.election.enable", "false") == "true"

    @property
    def has_elr(self) -> bool:
        """Whether the controller keeps eligible leader replicas (KIP-966)."""
        return self.features.get("eligible.leader.replicas.version", 0) >= 1

    # --- remote storage -----------------------------------------------------------------------------------------------

    def _take_remote_log_segment_metadata(self, offset: int, record: Any) -> None:
        self._note(offset, "segment", *self.tiering.begin_copy(offset, record))

    def _take_remote_log_segment_metadata_update(self, offset: int, record: Any) -> None:
        self._note(offset, "segment", *self.tiering.update_copy(offset, record))

    def _take_remote_partition_delete_metadata(self, offset: int, record: Any) -> None:
        self._note(offset, "removal", *self.tiering.remove_partition(offset, record))


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


def taken(batch: Batch) -> TakenBatch:
    """Decode the records of a batch."""
    records = () if batch.is_control else MetadataBatch.FromString(bytes(batch_body(batch))).records
    return TakenBatch(records, batch.base_offset, batch.end_offset)
