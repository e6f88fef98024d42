"""The tables of topics, their partitions, and of the brokers that have replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from kraftbase.ids import id_to_bytes, id_to_text
from kraftpb.v1.metadata_pb2 import PartitionRecord, TopicRecord
from statemachine.tables.columns import ids_from_json, ids_to_json, numbers_from_json, numbers_to_json
from statemachine.tables.table import Condition, Key, Row, Table


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


_NO_LISTS: Final = ("[]", "[]")
"""The value of most partitions."""


def _partition_to_row(record: PartitionRecord) -> Row:
    return (
        id_to_text(record.topic_id),
        record.partition_id,
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.leader_recovery_state,
        numbers_to_json(record.replicas),
        numbers_to_json(record.isr),
        numbers_to_json(record.removing_replicas),
        numbers_to_json(record.adding_replicas),
        ids_to_json(tuple(record.directories)),
        numbers_to_json(record.eligible_leader_replicas),
        numbers_to_json(record.last_known_elr),
    )


def _partition_from_row(row: Row) -> PartitionRecord:
    record = PartitionRecord(
        topic_id=id_to_bytes(row[0]),
        partition_id=row[1],
        leader=row[2],
        leader_epoch=row[3],
        partition_epoch=row[4],
        leader_recovery_state=row[5],
        replicas=numbers_from_json(row[6]),
        isr=numbers_from_json(row[7]),
        directories=ids_from_json(row[10]),
    )
    if row[8:10] != _NO_LISTS:
        record.removing_replicas.extend(numbers_from_json(row[8]))
        record.adding_replicas.extend(numbers_from_json(row[9]))
    if row[11:13] != _NO_LISTS:
        record.eligible_leader_replicas.extend(numbers_from_json(row[11]))
        record.last_known_elr.extend(numbers_from_json(row[12]))
    return record


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

WITH_ELR: Final = Condition[PartitionRecord](
    "eligible_leader_replicas || last_known_elr != '[][]'",
    (),
    lambda partition: bool(partition.eligible_leader_replicas or partition.last_known_elr),
)
"""Of partitions: replicas may lead though not in sync, or led last."""

PARTITIONS_WITH_ELR: Final = Table[PartitionRecord](
    name="partitions",
    key=("topic_id", "partition_id"),
    columns=_PARTITION_COLUMNS,
    key_of=lambda record: (record.topic_id, record.partition_id),
    to_row=_partition_to_row,
    from_row=_partition_from_row,
    is_index=True,
    where=WITH_ELR.sql,
    partition_of=lambda record: (record.topic_id, record.partition_id),
)
"""Those that are `WITH_ELR`: few."""


def holding(broker_id: int) -> Condition[PartitionRecord]:
    """Of partitions: a broker has a replica."""
    return Condition(
        "EXISTS (SELECT 1 FROM json_each(replicas) WHERE value = ?)",
        (broker_id,),
        lambda partition: broker_id in partition.replicas,
    )


def counting_on(
    broker_ids: Collection[int], lost_data: Collection[int], older: Collection[int] = ()
) -> Condition[PartitionRecord]:
    """Of partitions: one of `broker_ids` is in sync, one of `lost_data` is eligible to lead, or one of `older` is that
    or the last known leader."""
    in_sync, eligible, known = frozenset(broker_ids), frozenset({*lost_data, *older}), frozenset(older)

    def holds(partition: PartitionRecord) -> bool:
        return not (
            in_sync.isdisjoint(partition.isr)
            and eligible.isdisjoint(partition.eligible_leader_replicas)
            and known.isdisjoint(partition.last_known_elr)
        )

    columns = {"isr": in_sync, "eligible_leader_replicas": eligible, "last_known_elr": known}
    sql = " OR ".join(_has_one(column, len(those)) for column, those in columns.items())
    return Condition(f"({sql})", (*in_sync, *eligible, *known), holds)


def _has_one(column: str, count: int) -> str:
    """SQL: the list in `column` has one of this many parameters."""
    marks = ", ".join("?" * count)
    return f"EXISTS (SELECT 1 FROM json_each({column}) WHERE value IN ({marks}))"  # noqa: S608 (columns of our own)


NOT_LED_BY_PREFERRED: Final = Condition[PartitionRecord](
    "leader != json_extract(replicas, '$[0]')", (), lambda partition: partition.leader != partition.replicas[0]
)
"""Of partitions: the first replica does not lead."""

IN_DIRECTORIES: Final = Condition[PartitionRecord](
    "directories != '[]'", (), lambda partition: bool(partition.directories)
)
"""Of partitions: they name the log directories of their replicas."""

REASSIGNING: Final = Condition[PartitionRecord](
    "adding_replicas || removing_replicas != '[][]'",
    (),
    lambda partition: bool(partition.adding_replicas or partition.removing_replicas),
)
"""Of partitions: a reassignment is in progress."""
