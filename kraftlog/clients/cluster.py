"""The brokers of a cluster and the partitions of a topic, requested before anything is written or read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.clients.broker_connection import BrokerConnection
from kraftlog.clients.broker_errors import refusal
from kraftlog.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A broker's description of its cluster."""

    brokers: Mapping[int, Endpoint]
    """The addresses of the live brokers, by id."""
    partitions: Mapping[str, tuple[int, ...]]
    """The ids of the partitions of each requested topic, in order."""


def connect_any(endpoints: Sequence[Endpoint]) -> BrokerConnection:
    """A connection to the first broker that answers. Raises ApiError: BROKER_NOT_AVAILABLE, CORRUPT_MESSAGE."""
    refused: list[ApiError] = []
    for endpoint in endpoints:
        try:
            return BrokerConnection(endpoint)
        except ApiError as error:
            refused.append(error)
    if len(refused) == 1 and refused[0].code is not ErrorCode.BROKER_NOT_AVAILABLE:
        raise refused[0]
    reasons = "; ".join(str(error.args[0]) for error in refused)
    what = reasons if len(refused) == 1 else f"no broker answers: {reasons}"
    raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"{what}; start the brokers or check the addresses")


def describe_cluster(endpoints: Sequence[Endpoint], topics: Sequence[str]) -> Cluster:
    """The cluster as the first broker that answers knows it. No topic is created.

    Raises ApiError: BROKER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, and what the broker answers for a topic.
    """
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in topics), allow_auto_topic_creation=False
    )
    with connect_any(endpoints) as connection:
        answer = connection.call(request, MetadataResponse)
    if answer.error_code != ErrorCode.NONE:
        raise refusal(answer.error_code, "the broker does not describe its cluster")
    by_name = {topic.name: topic for topic in answer.topics}
    return Cluster(
        {of.node_id: Endpoint(of.host, of.port) for of in answer.brokers},
        {name: _partition_ids(name, by_name.get(name)) for name in topics},
    )


def _partition_ids(name: str, topic: MetadataResponseTopic | None) -> tuple[int, ...]:
    if topic is None:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the broker's answer lacks the topic {name!r}; ask another one")
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise refusal(topic.error_code, f"there is no topic {name!r}; create it first, or check its name")
    if topic.error_code != ErrorCode.NONE:
        raise refusal(topic.error_code, f"the broker does not describe the topic {name!r}")
    return tuple(sorted(partition.partition_index for partition in topic.partitions))


def check_partitions(topic: str, partition_ids: Sequence[int], there: Sequence[int]) -> None:
    """Raise ApiError(UNKNOWN_TOPIC_OR_PARTITION) unless the topic has all of these partitions."""
    for partition_id in partition_ids:
        if partition_id not in there:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has no partition {partition_id}; it has {len(there)}, from 0 on",
            )
