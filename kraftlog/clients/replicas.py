"""The lag of each replica, and why one is not in sync: from the leaders, beside the metadata (OT-56). The metadata,
from any node, has the topics, their replicas and their leaders. Each leader is then asked, on its own listener, for the
lag of its followers. Replicas of a leader that does not answer have no figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.partition import TopicPartition
from kraftbase.sentinels import NO_LEADER
from kraftlog.clients.broker_connection import BrokerConnection
from kraftlog.clients.broker_errors import refusal
from kraftlog.commands.clients import committed_end_offset, connected_client
from kraftlog.kafka.messages.describe_replicas import (
    DescribedPartition,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    DescribeReplicasTopic,
)
from statemachine.query.descriptions import BrokerDescription, PartitionDescription, TopicDescription

LOOKS: Final = 3
"""How often the metadata is read at most: a leader may have changed before it was asked."""

MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The errors of a broker that no longer leads, or does not yet know that it leads."""

Answers = Mapping[TopicPartition, DescribedPartition]


@dataclass(frozen=True, slots=True)
class Replicas:
    """Topics with their partitions, and the state of each replica."""

    brokers: tuple[BrokerDescription, ...]
    topics: tuple[TopicDescription, ...]
    answers: Answers
    """The leaders' reports by partition, without partitions that have none."""
    silent: Mapping[int, ApiError] = field(default_factory=dict)
    """Leaders that did not answer, and why."""

    def error(self, topic: str, partition: PartitionDescription) -> ApiError | None:
        """Why there is no report on a partition's replicas."""
        answer = self.answers.get(TopicPartition(topic, partition.partition_id))
        if answer is not None and answer.error_code == ErrorCode.NONE:
            return None
        if partition.leader == NO_LEADER:
            return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader: see kraftlog partitions describe")
        if partition.leader in self.silent:
            return self.silent[partition.leader]
        number = ErrorCode.NOT_LEADER_OR_FOLLOWER if answer is None else answer.error_code
        return refusal(number, f"broker {partition.leader} does not report the lag of the replicas")


async def describe_replicas(endpoints: Sequence[Endpoint], names: Sequence[str]) -> Replicas:
    """Of these topics, or of all; `endpoints` are nodes of the quorum.

    Raises ApiError: BROKER_NOT_AVAILABLE if no node answers, UNKNOWN_TOPIC_OR_PARTITION.
    """
    found = await _look(endpoints, names)
    for _ in range(LOOKS - 1):
        if not any(answer.error_code in MOVED for answer in found.answers.values()):
            break
        found = await _look(endpoints, names)
    return found


async def _look(endpoints: Sequence[Endpoint], names: Sequence[str]) -> Replicas:
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        topics = (await client.describe_topics(names, min_applied_end_offset=offset)).topics
        brokers = (await client.list_brokers(min_applied_end_offset=offset)).brokers
    led: dict[int, list[TopicPartition]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader != NO_LEADER:
                led.setdefault(partition.leader, []).append(TopicPartition(topic.name, partition.partition_id))
    by_id = {broker.broker_id: broker for broker in brokers}
    asked = (asyncio.to_thread(_ask, leader, by_id.get(leader), partitions) for leader, partitions in led.items())
    answers: dict[TopicPartition, DescribedPartition] = {}
    silent: dict[int, ApiError] = {}
    for leader, answer in zip(led, await asyncio.gather(*asked), strict=True):
        if isinstance(answer, ApiError):
            silent[leader] = answer
        else:
            answers |= answer
    return Replicas(tuple(brokers), tuple(topics), answers, silent)


def _ask(leader: int, broker: BrokerDescription | None, partitions: Iterable[TopicPartition]) -> Answers | ApiError:
    """A broker's report on the partitions that it leads, or why it has none. Blocks."""
    if broker is None or not broker.listeners:
        return ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {leader} is not registered, or has no listener")
    by_topic: dict[str, list[int]] = {}
    for topic, partition_id in partitions:
        by_topic.setdefault(topic, []).append(partition_id)
    topics = tuple(DescribeReplicasTopic(name=name, partition_indexes=tuple(of)) for name, of in by_topic.items())
    endpoint = Endpoint(broker.listeners[0].host, broker.listeners[0].port)
    try:
        with BrokerConnection(endpoint) as connection:
            answer = connection.call(DescribeReplicasRequest(topics=topics), DescribeReplicasResponse)
    except ApiError as error:
        return ApiError(error.code, f"broker {leader} leads, and does not report: {error.args[0]}")
    return {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in answer.topics
        for partition in topic.partitions
    }
