"""Queries on a metadata database, live through a store's connections or offline through `open_reader`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from kraftbase.ids import ID_BYTES
from kraftbase.types import Offset
from kraftpb.v1.metadata_pb2 import PartitionRecord
from statemachine.query.descriptions import (
    BrokerDescription,
    BrokerListener,
    ConfigValue,
    Counts,
    FeatureLevels,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from statemachine.tables.cluster_tables import FEATURES
from statemachine.words.features import METADATA_VERSION, METADATA_VERSION_MIN
from statemachine.words.resources import ResourceType

_PARTITION_COLUMNS: Final = (
    "partition_id, leader, leader_epoch, partition_epoch, replicas, isr, removing_replicas, adding_replicas,"
    " leader_recovery_state, directories, eligible_leader_replicas, last_known_elr"
)

_PARTITION_BYTES_MIN: Final = PartitionRecord(topic_id=bytes(ID_BYTES), replicas=[1]).ByteSize()
"""Every partition has a topic's id and a replica."""

_DIRECTORY_BYTES: Final = ID_BYTES + 2
_DIRECTORY_JSON_CHARACTERS: Final = 26
"""An id in quotes, a comma and a space; the brackets stand for those that the last one lacks."""


def applied_end_offset(connection: sqlite3.Connection) -> Offset:
    """The offset after the last record that the tables hold."""
    return Offset(connection.execute("SELECT end_offset FROM applied").fetchone()[0])


def digest(connection: sqlite3.Connection) -> str:
    """The digest over all batches applied so far: equal on nodes that have applied as much of the same log."""
    found: str = connection.execute("SELECT digest FROM applied").fetchone()[0]
    return found


def metadata_version(connection: sqlite3.Connection) -> int:
    """The finalized metadata.version; the lowest one while there is none."""
    feature = FEATURES.get(connection, (METADATA_VERSION,))
    return METADATA_VERSION_MIN if feature is None else feature.level


def counts(connection: sqlite3.Connection) -> Counts:
    """The number of objects of each kind."""
    row = connection.execute(
        "SELECT (SELECT end_offset FROM applied), (SELECT count(*) FROM topics), (SELECT count(*) FROM partitions),"
        " (SELECT count(*) FROM brokers), (SELECT count(*) FROM configs)"
    ).fetchone()
    return Counts(*row)


def list_topics(connection: sqlite3.Connection) -> Iterator[TopicListing]:
    """All topics by name."""
    rows = connection.execute(
        "SELECT name, topic_id, count(partition_id),"
        " coalesce(max(json_array_length(replicas)) FILTER (WHERE partition_id = 0), 0)"
        " FROM topics LEFT JOIN partitions USING (topic_id) GROUP BY topic_id ORDER BY name"
    )
    for row in rows:
        yield TopicListing(*row)


def describe_topic(
    connection: sqlite3.Connection, *, name: str | None = None, topic_id: str | None = None
) -> TopicDescription | None:
    """The topic of that name, or of that id; None if there is none."""
    column, value = ("name", name) if name is not None else ("topic_id", topic_id)
    found = connection.execute(f"SELECT topic_id, name FROM topics WHERE {column} = ?", (value,)).fetchone()  # noqa: S608
    if found is None:
        return None
    rows = connection.execute(
        f"SELECT {_PARTITION_COLUMNS} FROM partitions WHERE topic_id = ? ORDER BY partition_id",  # noqa: S608
        (found[0],),
    )
    configs = describe_configs(connection, ResourceType.TOPIC, found[1])
    return TopicDescription(found[1], found[0], _partitions(rows), tuple(configs))


def describe_all_topics(connection: sqlite3.Connection) -> Iterator[TopicDescription]:
    """All topics by name, in full, one after the other."""
    rows = connection.execute(
        f"SELECT name, topic_id, {_PARTITION_COLUMNS} FROM topics LEFT JOIN partitions USING (topic_id)"  # noqa: S608
        " ORDER BY name, partition_id"
    )
    configs = connection.execute(
        "SELECT topics.name, configs.name, value FROM topics JOIN configs ON resource_type = ? AND resource_name ="
        " topics.name ORDER BY topics.name, configs.name",
        (int(ResourceType.TOPIC),),
    )
    set_next = next(configs, None)
    for (name, topic_id), found in groupby(rows, key=lambda row: row[:2]):
        of_topic = []
        while set_next is not None and set_next[0] == name:
            of_topic.append(ConfigValue(*set_next[1:]))
            set_next = next(configs, None)
        partitions = _partitions(row[2:] for row in found if row[2] is not None)
        yield TopicDescription(name, topic_id, partitions, tuple(of_topic))


def partitions_bytes_min(connection: sqlite3.Connection) -> int:
    """A lower bound on the bytes of all partitions' descriptions: partitions and their log directories are only
    counted.

    For a million of them that takes some tenths of a second.
    """
    count, directories = connection.execute(
        f"SELECT count(*), coalesce(sum(length(directories) / {_DIRECTORY_JSON_CHARACTERS}), 0) FROM partitions"  # noqa: S608
    ).fetchone()
    return int(count * _PARTITION_BYTES_MIN + directories * _DIRECTORY_BYTES)


def list_brokers(connection: sqlite3.Connection) -> list[BrokerDescription]:
    """All registered brokers by id."""
    rows = connection.execute(
        "SELECT broker_id, broker_epoch, incarnation_id, listeners, rack, fenced, in_controlled_shutdown, log_dirs,"
        " features, older_log_dirs FROM brokers ORDER BY broker_id"
    )
    return [
        BrokerDescription(
            broker_id=row[0],
            broker_epoch=row[1],
            incarnation_id=row[2],
            listeners=tuple(BrokerListener(**listener) for listener in json.loads(row[3])),
            rack=row[4],
            fenced=bool(row[5]),
            in_controlled_shutdown=bool(row[6]),
            log_dirs=tuple(json.loads(row[7])),
            features=tuple(FeatureLevels(**feature) for feature in json.loads(row[8])),
            older_log_dirs=tuple(json.loads(row[9])),
        )
        for row in rows
    ]


def describe_configs(connection: sqlite3.Connection, resource_type: int, resource_name: str) -> list[ConfigValue]:
    """The configs that were set for one resource, by name."""
    rows = connection.execute(
        "SELECT name, value FROM configs WHERE resource_type = ? AND resource_name = ? ORDER BY name",
        (int(resource_type), resource_name),
    )
    return [ConfigValue(*row) for row in rows]


def _partitions(rows: Iterable[tuple[Any, ...]]) -> tuple[PartitionDescription, ...]:
    return tuple(
        PartitionDescription(
            partition_id=row[0],
            leader=row[1],
            leader_epoch=row[2],
            partition_epoch=row[3],
            replicas=tuple(json.loads(row[4])),
            isr=tuple(json.loads(row[5])),
            removing_replicas=tuple(json.loads(row[6])),
            adding_replicas=tuple(json.loads(row[7])),
            leader_recovery_state=row[8],
            directories=tuple(json.loads(row[9])),
            eligible_leader_replicas=tuple(json.loads(row[10])),
            last_known_elr=tuple(json.loads(row[11])),
        )
        for row in rows
    )
