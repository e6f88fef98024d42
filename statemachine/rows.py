"""The tables as the state machine uses them: what the key, the row and the record of each look like.

A record is the protobuf message that the log and snapshots hold; a row is what SQLite holds. Everything that applies,
overlays, snapshots or looks up metadata goes through a `Table`, so a new kind of metadata is one more of them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kraftpb.v1.metadata_pb2 import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoteLogEpochEndRecord,
    RemoteLogSegmentMetadataRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpoch,
    SupportedFeature,
    TopicRecord,
)
from statemachine.ids import id_to_bytes, id_to_text

R = TypeVar("R")
Key = tuple[Any, ...]
"""The values of a table's key columns; ids as 16 bytes."""
Row = tuple[Any, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Table(Generic[R]):
    """One table, or one index of another table under which its rows are looked up."""

    name: str
    key: tuple[str, ...]
    """The columns of the key, or expressions over columns."""
    columns: tuple[str, ...]
    kind: str | None = None
    """Which kind of `MetadataRecord` a snapshot holds for each row; None: the rows follow from other tables'."""
    key_of: Callable[[R], Key]
    to_row: Callable[[R], Row]
    from_row: Callable[[Row], R]
    is_index: bool = False
    """Its rows are those of another table: they are looked up here and written there."""
    where: str | None = None
    """Of an index: the condition on its rows."""
    partition_of: Callable[[R], Key] | None = None
    """The key of the partition that a row follows from, if it does."""

    def __repr__(self) -> str:
        return f"Table({self.name} by {', '.join(self.key)})"

    # --- SQL ----------------------------------------------------------------------------------------------------------

    @cached_property
    def insert_sql(self) -> str:
        """Put a row in the place of the one with its key, if there is one."""
        columns = ", ".join(self.columns)
        return f"INSERT OR REPLACE INTO {self.name} ({columns}) VALUES ({_marks(len(self.columns))})"  # noqa: S608

    def delete_sql(self, key_length: int) -> str:
        """Remove the rows whose key begins with so many values."""
        return f"DELETE FROM {self.name} WHERE {self._prefix(key_length)}"  # noqa: S608 (names of our own)

    @lru_cache(maxsize=64)  # noqa: B019 (tables live as long as the process)
    def select_sql(self, key_length: int, is_after: bool = False) -> str:
        """Select the rows whose key begins with so many values, in the order of the key; maybe only those after one."""
        conditions = [self._prefix(key_length)] if key_length else []
        if self.where is not None:
            conditions.append(self.where)
        if is_after:  # only what is behind the prefix, so that SQLite seeks there
            behind = self.key[key_length:]
            conditions.append(f"({', '.join(behind)}) > ({_marks(len(behind))})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {', '.join(self.columns)} FROM {self.name}{where} ORDER BY {', '.join(self.key)}"  # noqa: S608

    def _prefix(self, key_length: int) -> str:
        return " AND ".join(f"{column} = ?" for column in self.key[:key_length])

    # --- reads --------------------------------------------------------------------------------------------------------

    def get(self, connection: sqlite3.Connection, key: Key) -> R | None:
        """The record with that key. About 5 microseconds."""
        row = connection.execute(self.select_sql(len(key)), key_to_sql(key)).fetchone()
        return None if row is None else self.from_row(row)

    def find(
        self, connection: sqlite3.Connection, prefix: Key = (), after: Key | None = None, limit: int = -1
    ) -> Iterator[tuple[Key, R]]:
        """The records whose key begins with `prefix` and is above `after`, by key, at most `limit` of them.

        `after` is a whole key, and begins with `prefix` too.
        """
        sql = self.select_sql(len(prefix), after is not None) + (f" LIMIT {limit}" if limit >= 0 else "")
        for row in connection.execute(sql, key_to_sql(prefix + (after or ())[len(prefix) :])):
            record = self.from_row(row)
            yield self.key_of(record), record

    def to_record(self, value: R) -> MetadataRecord:
        """The record that a snapshot has for `value`."""
        if self.kind is None:
            raise TypeError(f"{self} has no records of its own")
        fields: dict[str, Any] = {self.kind: value}
        return MetadataRecord(**fields)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def key_to_sql(key: Key) -> Key:
    """A key as SQLite has it: ids are text there."""
    return tuple(id_to_text(part) if type(part) is bytes else part for part in key)


# --- columns that hold lists ------------------------------------------------------------------------------------------


# The same lists come again and again.
@lru_cache(maxsize=16_384)
def numbers_to_json(numbers: tuple[int, ...]) -> str:
    """A JSON array."""
    return json.dumps(numbers)


@lru_cache(maxsize=16_384)
def numbers_from_json(text: str) -> tuple[int, ...]:
    """What a JSON array holds."""
    return tuple(json.loads(text))


@lru_cache(maxsize=16_384)
def ids_to_json(ids: tuple[bytes, ...]) -> str:
    """A JSON array of ids as text."""
    return json.dumps([id_to_text(value) for value in ids])


@lru_cache(maxsize=16_384)
def ids_from_json(text: str) -> tuple[bytes, ...]:
    """The ids in a JSON array."""
    return tuple(map(id_to_bytes, json.loads(text)))


def _endpoints_to_json(endpoints: Any) -> str:
    return json.dumps(
        [
            {"name": at.name, "host": at.host, "port": at.port, "security_protocol": at.security_protocol}
            for at in endpoints
        ]
    )


def _endpoints_from_json(text: str) -> list[BrokerEndpoint]:
    return [BrokerEndpoint(**listener) for listener in json.loads(text)]


def _features_to_json(features: Any) -> str:
    return json.dumps(
        [{"name": given.name, "min_level": given.min_level, "max_level": given.max_level} for given in features]
    )


def _features_from_json(text: str) -> list[SupportedFeature]:
    return [SupportedFeature(**feature) for feature in json.loads(text)]


# --- brokers and controllers ------------------------------------------------------------------------------------------


def _broker_to_row(record: RegisterBrokerRecord) -> Row:
    return (
        record.broker_id,
        record.broker_epoch,
        id_to_text(record.incarnation_id),
        record.rack if record.HasField("rack") else None,
        record.fenced,
        record.in_controlled_shutdown,
        _endpoints_to_json(record.end_points),
        ids_to_json(tuple(record.log_dirs)),
        _features_to_json(record.features),
        record.unclean_shutdown,
    )


def _broker_from_row(row: Row) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=row[0],
        broker_epoch=row[1],
        incarnation_id=id_to_bytes(row[2]),
        rack=row[3],
        fenced=bool(row[4]),
        in_controlled_shutdown=bool(row[5]),
        end_points=_endpoints_from_json(row[6]),
        log_dirs=ids_from_json(row[7]),
        features=_features_from_json(row[8]),
        unclean_shutdown=bool(row[9]),
    )


BROKERS: Final = Table[RegisterBrokerRecord](
    name="brokers",
    key=("broker_id",),
    columns=(
        "broker_id",
        "broker_epoch",
        "incarnation_id",
        "rack",
        "fenced",
        "in_controlled_shutdown",
        "listeners",
        "log_dirs",
        "features",
        "unclean_shutdown",
    ),
    kind="register_broker",
    key_of=lambda record: (record.broker_id,),
    to_row=_broker_to_row,
    from_row=_broker_from_row,
)

CONTROLLERS: Final = Table[RegisterControllerRecord](
    name="controllers",
    key=("controller_id",),
    columns=("controller_id", "incarnation_id", "listeners", "features"),
    kind="register_controller",
    key_of=lambda record: (record.controller_id,),
    to_row=lambda record: (
        record.controller_id,
        id_to_text(record.incarnation_id),
        _endpoints_to_json(record.end_points),
        _features_to_json(record.features),
    ),
    from_row=lambda row: RegisterControllerRecord(
        controller_id=row[0],
        incarnation_id=id_to_bytes(row[1]),
        end_points=_endpoints_from_json(row[2]),
        features=_features_from_json(row[3]),
    ),
)


# --- topics and partitions --------------------------------------------------------------------------------------------


def _topic_table(key: tuple[str, ...], key_of: Callable[[TopicRecord], Key], is_index: bool) -> Table[TopicRecord]:
    return Table(
        name="topics",
        key=key,
        columns=("topic_id", "name"),
        kind=None if is_index else "topic",
        key_of=key_of,
        to_row=lambda record: (id_to_text(record.topic_id), record.name),
        from_row=lambda row: TopicRecord(topic_id=id_to_bytes(row[0]), name=row[1]),
        is_index=is_index,
    )


TOPICS: Final = _topic_table(("topic_id",), lambda record: (record.topic_id,), is_index=False)
TOPICS_BY_NAME: Final = _topic_table(("name",), lambda record: (record.name,), is_index=True)
TOPICS_BY_COLLISION: Final = _topic_table(
    ("replace(name, '.', '_')", "name"), lambda record: (record.name.replace(".", "_"), record.name), is_index=True
)
"""Names that differ only in '.' and '_' collide; this finds them."""

_PARTITION_COLUMNS: Final = (
    "topic_id",
    "partition_id",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "leader_recovery_state",
    "replicas",
    "isr",
    "removing_replicas",
    "adding_replicas",
    "directories",
    "eligible_leader_replicas",
    "last_known_elr",
)


def _partition_to_row(record: PartitionRecord) -> Row:
    return (
        id_to_text(record.topic_id),
        record.partition_id,
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.leader_recovery_state,
        numbers_to_json(tuple(record.replicas)),
        numbers_to_json(tuple(record.isr)),
        numbers_to_json(tuple(record.removing_replicas)),
        numbers_to_json(tuple(record.adding_replicas)),
        ids_to_json(tuple(record.directories)),
        numbers_to_json(tuple(record.eligible_leader_replicas)),
        numbers_to_json(tuple(record.last_known_elr)),
    )


def _partition_from_row(row: Row) -> PartitionRecord:
    return PartitionRecord(
        topic_id=id_to_bytes(row[0]),
        partition_id=row[1],
        leader=row[2],
        leader_epoch=row[3],
        partition_epoch=row[4],
        leader_recovery_state=row[5],
        replicas=numbers_from_json(row[6]),
        isr=numbers_from_json(row[7]),
        removing_replicas=numbers_from_json(row[8]),
        adding_replicas=numbers_from_json(row[9]),
        directories=ids_from_json(row[10]),
        eligible_leader_replicas=numbers_from_json(row[11]),
        last_known_elr=numbers_from_json(row[12]),
    )


PARTITIONS: Final = Table[PartitionRecord](
    name="partitions",
    key=("topic_id", "partition_id"),
    columns=_PARTITION_COLUMNS,
    kind="partition",
    key_of=lambda record: (record.topic_id, record.partition_id),
    to_row=_partition_to_row,
    from_row=_partition_from_row,
)
PARTITIONS_BY_LEADER: Final = Table[PartitionRecord](
    name="partitions",
    key=("leader", "topic_id", "partition_id"),
    columns=_PARTITION_COLUMNS,
    key_of=lambda record: (record.leader, record.topic_id, record.partition_id),
    to_row=_partition_to_row,
    from_row=_partition_from_row,
    is_index=True,
    partition_of=lambda record: (record.topic_id, record.partition_id),
)


PARTITIONS_WITH_ELR: Final = Table[PartitionRecord](
    name="partitions",
    key=("topic_id", "partition_id"),
    columns=_PARTITION_COLUMNS,
    key_of=lambda record: (record.topic_id, record.partition_id),
    to_row=_partition_to_row,
    from_row=_partition_from_row,
    is_index=True,
    where="eligible_leader_replicas != '[]'",
    partition_of=lambda record: (record.topic_id, record.partition_id),
)
"""Those with replicas that may lead though not in sync: few."""


class Assignment(NamedTuple):
    """A broker has a replica of a partition."""

    broker_id: int
    topic_id: bytes
    partition_id: int


ASSIGNMENTS: Final = Table[Assignment](
    name="assignments",
    key=("broker_id", "topic_id", "partition_id"),
    columns=("broker_id", "topic_id", "partition_id"),
    key_of=tuple,
    to_row=key_to_sql,
    from_row=lambda row: Assignment(row[0], id_to_bytes(row[1]), row[2]),
    partition_of=lambda assignment: (assignment.topic_id, assignment.partition_id),
)
"""Follows from the replicas of the partitions: finds those of one broker among a million."""


# --- configs, features, quotas, access control ------------------------------------------------------------------------

CONFIGS: Final = Table[ConfigRecord](
    name="configs",
    key=("resource_type", "resource_name", "name"),
    columns=("resource_type", "resource_name", "name", "value"),
    kind="config",
    key_of=lambda record: (record.resource_type, record.resource_name, record.name),
    to_row=lambda record: (record.resource_type, record.resource_name, record.name, record.value),
    from_row=lambda row: ConfigRecord(resource_type=row[0], resource_name=row[1], name=row[2], value=row[3]),
)

FEATURES: Final = Table[FeatureLevelRecord](
    name="features",
    key=("name",),
    columns=("name", "level"),
    kind="feature_level",
    key_of=lambda record: (record.name,),
    to_row=lambda record: (record.name, record.level),
    from_row=lambda row: FeatureLevelRecord(name=row[0], level=row[1]),
)

PRODUCER_IDS: Final = Table[ProducerIdsRecord](
    name="producer_ids",
    key=("id",),
    columns=("id", "broker_id", "broker_epoch", "next_producer_id"),
    kind="producer_ids",
    key_of=lambda record: (1,),
    to_row=lambda record: (1, record.broker_id, record.broker_epoch, record.next_producer_id),
    from_row=lambda row: ProducerIdsRecord(broker_id=row[1], broker_epoch=row[2], next_producer_id=row[3]),
)
"""One row, or none while no ids were given away."""


def quota_entity_key(entity: Any) -> str:
    """The entity of a quota as text, the same for the same entity: a JSON object, null for a type's default."""
    names = {part.entity_type: part.entity_name if part.HasField("entity_name") else None for part in entity}
    return json.dumps(names, sort_keys=True)


def _quota_from_row(row: Row) -> ClientQuotaRecord:
    names = json.loads(row[0])
    entity = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in sorted(names.items())]
    return ClientQuotaRecord(entity=entity, key=row[1], value=row[2])


CLIENT_QUOTAS: Final = Table[ClientQuotaRecord](
    name="client_quotas",
    key=("entity", "key"),
    columns=("entity", "key", "value"),
    kind="client_quota",
    key_of=lambda record: (quota_entity_key(record.entity), record.key),
    to_row=lambda record: (quota_entity_key(record.entity), record.key, record.value),
    from_row=_quota_from_row,
)

ACLS: Final = Table[AccessControlEntryRecord](
    name="acls",
    key=("id",),
    columns=(
        "id",
        "resource_type",
        "resource_name",
        "pattern_type",
        "principal",
        "host",
        "operation",
        "permission_type",
    ),
    kind="access_control_entry",
    key_of=lambda record: (record.id,),
    to_row=lambda record: (
        id_to_text(record.id),
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    ),
    from_row=lambda row: AccessControlEntryRecord(
        id=id_to_bytes(row[0]),
        resource_type=row[1],
        resource_name=row[2],
        pattern_type=row[3],
        principal=row[4],
        host=row[5],
        operation=row[6],
        permission_type=row[7],
    ),
)


# --- tiered storage ---------------------------------------------------------------------------------------------------


def _segment_to_row(record: RemoteLogSegmentMetadataRecord) -> Row:
    epochs = [
        [entry.leader_epoch, entry.start_offset, int(entry.unreferenced)] for entry in record.segment_leader_epochs
    ]
    return (
        id_to_text(record.topic_id),
        record.partition_id,
        id_to_text(record.segment_id),
        record.start_offset,
        record.end_offset,
        record.state,
        record.broker_id,
        record.max_timestamp_ms,
        record.event_timestamp_ms,
        record.segment_size_bytes,
        json.dumps(epochs),
        record.custom_metadata if record.HasField("custom_metadata") else None,
        record.txn_index_empty,
    )


def _segment_from_row(row: Row) -> RemoteLogSegmentMetadataRecord:
    return RemoteLogSegmentMetadataRecord(
        topic_id=id_to_bytes(row[0]),
        partition_id=row[1],
        segment_id=id_to_bytes(row[2]),
        start_offset=row[3],
        end_offset=row[4],
        state=row[5],
        broker_id=row[6],
        max_timestamp_ms=row[7],
        event_timestamp_ms=row[8],
        segment_size_bytes=row[9],
        segment_leader_epochs=[
            SegmentLeaderEpoch(leader_epoch=epoch, start_offset=start, unreferenced=bool(unreferenced))
            for epoch, start, unreferenced in json.loads(row[10])
        ],
        custom_metadata=row[11],
        txn_index_empty=bool(row[12]),
    )


REMOTE_SEGMENTS: Final = Table[RemoteLogSegmentMetadataRecord](
    name="remote_segments",
    key=("topic_id", "partition_id", "segment_id"),
    columns=(
        "topic_id",
        "partition_id",
        "segment_id",
        "start_offset",
        "end_offset",
        "state",
        "broker_id",
        "max_timestamp_ms",
        "event_timestamp_ms",
        "size_bytes",
        "leader_epochs",
        "custom_metadata",
        "txn_index_empty",
    ),
    kind="remote_log_segment_metadata",
    key_of=lambda record: (record.topic_id, record.partition_id, record.segment_id),
    to_row=_segment_to_row,
    from_row=_segment_from_row,
)


class SegmentInEpoch(NamedTuple):
    """The part of a remote segment that is of one leader epoch."""

    topic_id: bytes
    partition_id: int
    leader_epoch: int
    start_offset: int
    """Where the epoch begins in the segment."""
    segment_id: bytes
    end_offset: int
    """The last offset of the epoch in the segment: inclusive."""
    is_referenced: bool
    """Whether lookups find it (TS-60)."""


REMOTE_SEGMENT_EPOCHS: Final = Table[SegmentInEpoch](
    name="remote_segment_epochs",
    key=("topic_id", "partition_id", "leader_epoch", "start_offset", "segment_id"),
    columns=(
        "topic_id",
        "partition_id",
        "leader_epoch",
        "start_offset",
        "segment_id",
        "end_offset",
        "is_referenced",
    ),
    key_of=lambda entry: tuple(entry)[:5],
    to_row=lambda entry: key_to_sql(tuple(entry)),
    from_row=lambda row: SegmentInEpoch(
        id_to_bytes(row[0]), row[1], row[2], row[3], id_to_bytes(row[4]), row[5], bool(row[6])
    ),
)
"""Follows from the remote segments."""

REMOTE_EPOCH_ENDS: Final = Table[RemoteLogEpochEndRecord](
    name="remote_epoch_ends",
    key=("topic_id", "partition_id", "leader_epoch"),
    columns=("topic_id", "partition_id", "leader_epoch", "highest_offset"),
    kind="remote_log_epoch_end",
    key_of=lambda record: (record.topic_id, record.partition_id, record.leader_epoch),
    to_row=lambda record: (
        id_to_text(record.topic_id),
        record.partition_id,
        record.leader_epoch,
        record.highest_offset,
    ),
    from_row=lambda row: RemoteLogEpochEndRecord(
        topic_id=id_to_bytes(row[0]), partition_id=row[1], leader_epoch=row[2], highest_offset=row[3]
    ),
)

REMOTE_PARTITION_DELETES: Final = Table[RemotePartitionDeleteMetadataRecord](
    name="remote_partition_deletes",
    key=("topic_id", "partition_id"),
    columns=("topic_id", "partition_id", "state", "broker_id", "event_timestamp_ms"),
    kind="remote_partition_delete_metadata",
    key_of=lambda record: (record.topic_id, record.partition_id),
    to_row=lambda record: (
        id_to_text(record.topic_id),
        record.partition_id,
        record.state,
        record.broker_id,
        record.event_timestamp_ms,
    ),
    from_row=lambda row: RemotePartitionDeleteMetadataRecord(
        topic_id=id_to_bytes(row[0]), partition_id=row[1], state=row[2], broker_id=row[3], event_timestamp_ms=row[4]
    ),
)

TABLES: Final[tuple[Table[Any], ...]] = (
    FEATURES,
    CONTROLLERS,
    BROKERS,
    TOPICS,
    PARTITIONS,
    ASSIGNMENTS,
    CONFIGS,
    CLIENT_QUOTAS,
    PRODUCER_IDS,
    ACLS,
    REMOTE_EPOCH_ENDS,
    REMOTE_SEGMENTS,
    REMOTE_SEGMENT_EPOCHS,
    REMOTE_PARTITION_DELETES,
)
"""All that are written, in the order in which a snapshot has their records (SN-33)."""
