"""The states of replicas as rows, and as tables in a database in memory for SQL (OT-56)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kraftbase.partition import TopicPartition
from kraftlog.clients.replicas import Replicas
from kraftlog.kafka.messages.describe_replicas import DescribedPartition, DescribedReplica
from statemachine.query.descriptions import PartitionDescription

COLUMNS: Final = ("Topic", "Partition", "Broker", "Role", "LogStart", "LogEnd", "Lag", "LagMs", "InSync", "WhyNot")

ABOUT_TO_JOIN: Final = "about-to-join"
"""Its leader has no reason against it, and has not yet sent an AlterPartition."""

ABOUT_TO_LEAVE: Final = "about-to-leave"
"""It is in sync until the controller has agreed that it is not."""

NEVER_FETCHED: Final = "never-fetched"
FOLLOW_FROM_THAT: Final = ("lagging", "below-high-watermark", "below-epoch-start")
"""Reasons that always apply to a replica that has never fetched, and add nothing."""

UNKNOWN: Final = -1
"""An offset or a time that the leader does not know."""

TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "replicas": (
        *("topic", "partition_id", "broker_id", "position", "is_leader", "is_preferred", "in_sync", "is_adding"),
        *("is_removing", "is_pending", "log_start_offset", "log_end_offset", "lag_offsets", "lag_ms", "reasons"),
        "error",
    ),
    "partitions": (
        *("topic", "topic_id", "partition_id", "leader", "leader_epoch", "high_watermark", "log_end_offset"),
        *("replicas", "isr", "error"),
    ),
    "brokers": ("broker_id", "broker_epoch", "rack", "fenced", "in_controlled_shutdown", "host", "port", "error"),
}
"""Each table's columns, in order."""

Row = dict[str, Any]


def replica_rows(found: Replicas) -> list[Row]:
    """A row for each replica, by topic, partition and place in the assignment: for a table, and all of it as JSON."""
    return [_shown(of) for of in _replicas(found)]


def _shown(of: Row) -> Row:
    about_to_leave = [ABOUT_TO_LEAVE] if of["in_sync"] and of["is_pending"] else []
    implied = FOLLOW_FROM_THAT if NEVER_FETCHED in of["reasons"] else ()
    told = [reason for reason in of["reasons"] if reason not in implied]
    why_not = of["error"] or ", ".join(told + about_to_leave)
    return {
        "Topic": of["topic"],
        "Partition": of["partition_id"],
        "Broker": of["broker_id"],
        "Role": "leader" if of["is_leader"] else "follower",
        "LogStart": of["log_start_offset"],
        "LogEnd": of["log_end_offset"],
        "Lag": of["lag_offsets"],
        "LagMs": of["lag_ms"],
        "InSync": of["in_sync"],
        "WhyNot": why_not,
        "Reasons": of["reasons"],
        "IsPending": of["is_pending"],
        "IsAdding": of["is_adding"],
        "IsRemoving": of["is_removing"],
        "Leader": of["leader"],
        "LeaderEpoch": of["leader_epoch"],
        "HighWatermark": of["high_watermark"],
        "Error": of["error"],
    }


def replica_database(found: Replicas) -> sqlite3.Connection:
    """The tables `TABLES` in memory, on a connection that can only read."""
    rows = {"replicas": _replicas(found), "partitions": _partitions(found), "brokers": _brokers(found)}
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for table, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            places = ", ".join("?" * len(columns))
            connection.executemany(
                f"INSERT INTO {table} VALUES ({places})",  # noqa: S608
                ([_stored(row[column]) for column in columns] for row in rows[table]),
            )
        connection.execute("PRAGMA query_only = 1")
    except BaseException:
        connection.close()
        raise
    return connection


def _stored(value: Any) -> Any:
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else value


def _replicas(found: Replicas) -> Iterator[Row]:
    for topic in found.topics:
        for partition in topic.partitions:
            answer = found.answers.get(TopicPartition(topic.name, partition.partition_id))
            error = found.error(topic.name, partition)
            said = {} if answer is None or error is not None else {of.broker_id: of for of in answer.replicas}
            for position, broker_id in enumerate(partition.replicas):
                yield {
                    "topic": topic.name,
                    "partition_id": partition.partition_id,
                    "broker_id": broker_id,
                    "position": position,
                    "is_leader": broker_id == partition.leader,
                    "is_preferred": position == 0,
                    "is_adding": broker_id in partition.adding_replicas,
                    "is_removing": broker_id in partition.removing_replicas,
                    "leader": partition.leader,
                    "leader_epoch": partition.leader_epoch,
                    "high_watermark": _high_watermark(answer, error is None),
                    "error": None if error is None else error.code.name,
                    **_progress(partition, broker_id, answer, said.get(broker_id)),
                }


def _progress(
    partition: PartitionDescription, broker_id: int, answer: DescribedPartition | None, of: DescribedReplica | None
) -> Row:
    """The leader's report on a replica. Without one: whether the replica is in sync by the metadata."""
    if answer is None or of is None:
        return {
            "in_sync": broker_id in partition.isr,
            "is_pending": None,
            **dict.fromkeys(("log_start_offset", "log_end_offset", "lag_offsets", "lag_ms")),
            "reasons": [],
        }
    log_end_offset = _known(of.log_end_offset)
    about_to_join = [] if of.is_in_sync else [ABOUT_TO_JOIN]
    return {
        "in_sync": of.is_in_sync,
        "is_pending": of.is_pending,
        "log_start_offset": _known(of.log_start_offset),
        "log_end_offset": log_end_offset,
        "lag_offsets": None if log_end_offset is None else max(0, answer.log_end_offset - log_end_offset),
        "lag_ms": _known(of.lag_ms),
        "reasons": list(of.reasons) or about_to_join,
    }


def _partitions(found: Replicas) -> Iterator[Row]:
    for topic in found.topics:
        for partition in topic.partitions:
            answer = found.answers.get(TopicPartition(topic.name, partition.partition_id))
            error = found.error(topic.name, partition)
            yield {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partition_id": partition.partition_id,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "high_watermark": _high_watermark(answer, error is None),
                "log_end_offset": None if answer is None or error is not None else answer.log_end_offset,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "error": None if error is None else str(error),
            }


def _brokers(found: Replicas) -> Iterator[Row]:
    for broker in found.brokers:
        listener = next(iter(broker.listeners), None)
        error = found.silent.get(broker.broker_id)
        yield {
            "broker_id": broker.broker_id,
            "broker_epoch": broker.broker_epoch,
            "rack": broker.rack,
            "fenced": broker.fenced,
            "in_controlled_shutdown": broker.in_controlled_shutdown,
            "host": None if listener is None else listener.host,
            "port": None if listener is None else listener.port,
            "error": None if error is None else str(error),
        }


def _high_watermark(answer: DescribedPartition | None, is_known: bool) -> int | None:
    return answer.high_watermark if answer is not None and is_known else None


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number
