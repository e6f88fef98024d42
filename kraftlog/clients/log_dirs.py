"""The content of the log directories of brokers: DescribeLogDirs (KIP-113, KIP-827) of each broker, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.clients.broker_connection import BrokerConnection
from kraftlog.clients.broker_errors import code_name
from kraftlog.clients.cluster import Cluster, describe_cluster
from kraftlog.kafka.messages.describe_log_dirs import (
    FULL,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

COLUMNS: Final = (
    *("Broker", "Directory", "TotalBytes", "UsableBytes"),
    *("State", "Topic", "Partition", "SizeBytes", "OffsetLag", "IsFuture", "Error"),
)
_UNKNOWN: Final = -1
"""A broker's value for an unknown size."""

_EMPTY: Final[dict[str, Any]] = dict.fromkeys((*COLUMNS, "IsCordoned"))

Row = dict[str, Any]


def log_dir_rows(endpoints: Sequence[Endpoint], broker_ids: Sequence[int], topics: Sequence[str]) -> list[Row]:
    """A row for each partition in each directory of these brokers, or of all, of these topics, or of all.

    A directory that has none of them has a row of its own, and so has a broker that does not answer, with its error.
    Raises ApiError: BROKER_NOT_AVAILABLE, BROKER_ID_NOT_REGISTERED, UNKNOWN_TOPIC_OR_PARTITION.
    """
    cluster = describe_cluster(endpoints, topics)
    for broker_id in broker_ids:
        if broker_id not in cluster.brokers:
            alive = ", ".join(map(str, sorted(cluster.brokers)))
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not alive; these are: {alive}")
    asked = sorted(broker_ids or cluster.brokers)
    return [row for broker_id in asked for row in _rows_of_broker(cluster, broker_id, topics)]


def has_failed(rows: Sequence[Row]) -> bool:
    """Whether a broker, or one of its directories, has an error."""
    return any(row["Error"] is not None for row in rows)


def _rows_of_broker(cluster: Cluster, broker_id: int, topics: Sequence[str]) -> list[Row]:
    wanted = tuple(DescribableLogDirTopic(topic=name, partitions=cluster.partitions[name]) for name in topics)
    try:
        with BrokerConnection(cluster.brokers[broker_id]) as connection:
            answer = connection.call(DescribeLogDirsRequest(topics=wanted if topics else None), DescribeLogDirsResponse)
    except ApiError as error:
        return [{**_EMPTY, "Broker": broker_id, "Error": str(error)}]
    if answer.error_code != ErrorCode.NONE:
        return [{**_EMPTY, "Broker": broker_id, "Error": code_name(answer.error_code)}]
    results = sorted(answer.results, key=lambda result: result.log_dir)
    return [row for result in results for row in _rows_of_directory(broker_id, result)]


def _rows_of_directory(broker_id: int, result: DescribeLogDirsResult) -> Iterator[Row]:
    directory = {
        **_EMPTY,
        "Broker": broker_id,
        "Directory": result.log_dir,
        "TotalBytes": _known(result.total_bytes),
        "UsableBytes": _known(result.usable_bytes),
        "IsCordoned": result.is_cordoned,
        "State": ", ".join(_states(result)),
        "Error": code_name(result.error_code),
    }
    found = sorted(
        (topic.name, of.partition_index, of.is_future_key, of.partition_size, of.offset_lag)
        for topic in result.topics
        for of in topic.partitions
    )
    if not found:
        yield directory
    for name, partition_id, is_future, size_bytes, offset_lag in found:
        yield {
            **directory,
            "Topic": name,
            "Partition": partition_id,
            "SizeBytes": size_bytes,
            "OffsetLag": offset_lag,
            "IsFuture": is_future,
        }


def _states(result: DescribeLogDirsResult) -> Iterator[str]:
    """The condition of a directory, for an operator. Only kraftlog's brokers report that it is full."""
    if FULL in result.unknown_tags:
        yield "disk-full"
    if result.is_cordoned:
        yield "cordoned"


def _known(size_bytes: int) -> int | None:
    return None if size_bytes == _UNKNOWN else size_bytes
