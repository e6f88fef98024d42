"""DescribeCluster and DescribeTopicPartitions, from this broker's applied metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import NO_LEADER
from kraftlog.broker.apis.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.broker.metadata.cluster_view import TopicView
from kraftlog.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kraftlog.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from kraftlog.kafka.notation import ZERO_UUID
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftpb.v1.metadata_pb2 import PartitionRecord
from statemachine.words.names import INTERNAL_TOPICS, check_topic_name

ENDPOINTS_OF_BROKERS: Final = 1
ENDPOINTS_OF_CONTROLLERS: Final = 2

PARTITIONS_MAX: Final = 2_000
"""Kafka's `max.request.partition.size.limit`: how many partitions one answer may have."""


class DescribeClusterApi:
    """Handles DescribeCluster (KIP-700, KIP-919)."""

    def __init__(self, services: BrokerServices) -> None:
        self._cluster = services.cluster

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer at once."""
        body = cast(DescribeClusterRequest, request.body)
        if body.endpoint_type != ENDPOINTS_OF_BROKERS:
            is_known = body.endpoint_type == ENDPOINTS_OF_CONTROLLERS
            reply(
                DescribeClusterResponse(
                    error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                    error_message=f"this is a broker, but endpoint type {body.endpoint_type} was asked for",
                    endpoint_type=body.endpoint_type,
                    cluster_id=self._cluster.cluster_id,
                )
            )
            return
        listener_name = request.context.listener_name
        brokers: list[DescribeClusterBroker] = []
        for broker_id in sorted(self._cluster.brokers):
            node = self._cluster.node(broker_id, listener_name)
            is_fenced = not self._cluster.is_alive(broker_id)
            if node is not None and (body.include_fenced_brokers or not is_fenced):
                brokers.append(
                    DescribeClusterBroker(
                        broker_id=broker_id, host=node.host, port=node.port, rack=node.rack, is_fenced=is_fenced
                    )
                )
        living = self._cluster.living_nodes(listener_name)
        reply(
            DescribeClusterResponse(
                cluster_id=self._cluster.cluster_id,
                controller_id=living[0].node_id if living else NO_LEADER,
                brokers=tuple(brokers),
                cluster_authorized_operations=(
                    CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else NOT_ASKED
                ),
            )
        )


class DescribeTopicPartitionsApi:
    """Handles DescribeTopicPartitions (KIP-966): topics by name, a page at a time."""

    def __init__(self, services: BrokerServices) -> None:
        self._cluster = services.cluster

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer from this broker's applied metadata, beginning at the cursor."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(DescribeTopicPartitionsRequest, request.body)
        if body.cursor is not None and not _is_possible(body.cursor, body.topics):
            reply(DescribeTopicPartitionsResponse(topics=tuple(_refused(topic.name) for topic in body.topics)))
            return
        left = min(body.response_partition_limit, PARTITIONS_MAX) if body.response_partition_limit > 0 else 1
        topics: list[DescribeTopicPartitionsResponseTopic] = []
        next_cursor: Cursor | None = None
        for name in self._names(body):
            yield
            first = 0
            if body.cursor is not None and body.cursor.topic_name == name:
                first = body.cursor.partition_index
            if left <= 0:
                next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            view = self._cluster.topic_named(name)
            if view is None:
                topics.append(_missing(name))
                continue
            end = min(len(view.partitions), first + left)
            topics.append(self._topic(view, first, end, request.context.listener_name))
            left -= max(0, end - first)
            if end < len(view.partitions):
                next_cursor = Cursor(topic_name=name, partition_index=end)
                break
        reply(DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=next_cursor))

    def _names(self, body: DescribeTopicPartitionsRequest) -> Iterator[str]:
        """Yield the requested topics, or all, in the order of their names, beginning at the cursor.

        Of all topics, it yields at most one more than an answer can have: each has at least one partition.
        """
        start = "" if body.cursor is None else body.cursor.topic_name
        if body.topics:
            yield from sorted({topic.name for topic in body.topics if topic.name >= start})
            return
        if start and self._cluster.topic_named(start) is not None:
            yield start
        yield from list(islice(self._cluster.topic_names(after=start), PARTITIONS_MAX + 1))

    def _topic(self, view: TopicView, first: int, end: int, listener_name: str) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.NONE,
            name=view.name,
            topic_id=view.topic_id,
            is_internal=view.name in INTERNAL_TOPICS,
            partitions=tuple(self._partition(record, listener_name) for record in view.partitions[first:end]),
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    def _partition(self, record: PartitionRecord, listener_name: str) -> DescribeTopicPartitionsResponsePartition:
        leads = self._cluster.is_reachable(record.leader, listener_name)
        return DescribeTopicPartitionsResponsePartition(
            partition_index=record.partition_id,
            leader_id=record.leader if leads else NO_LEADER,
            leader_epoch=record.leader_epoch,
            replica_nodes=tuple(record.replicas),
            isr_nodes=tuple(record.isr),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas),
            last_known_elr=tuple(record.last_known_elr),
            offline_replicas=self._cluster.offline_replicas(record, listener_name),
        )


def _is_possible(cursor: Cursor, topics: Sequence[TopicRequest]) -> bool:
    """Whether the cursor is valid: it must be at one of the requested topics."""
    is_among = not topics or any(topic.name == cursor.topic_name for topic in topics)
    return is_among and cursor.partition_index >= 0


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=name, topic_id=ZERO_UUID, partitions=()
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except ApiError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=ZERO_UUID, is_internal=name in INTERNAL_TOPICS, partitions=(),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )  # fmt: skip
