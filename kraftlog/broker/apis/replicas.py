"""DescribeReplicas, an API of our own: offsets of replicas, and why one is not in sync (docs/rules/apis.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, cast

from kraftbase.errors import ApiError
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.kafka.messages.describe_replicas import (
    DescribedPartition,
    DescribedReplica,
    DescribedTopic,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    DescribeReplicasTopic,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftlog.replicas.partitions.partition import Partition


def _named(topics: Iterable[DescribeReplicasTopic]) -> Iterator[tuple[str, Iterable[int]]]:
    return ((topic.name, topic.partition_indexes) for topic in topics)


DISK_FULL: Final = "disk-full"
"""The reason for a replica on a full disk, which is given whether it is in sync or not."""


class DescribeReplicasApi:
    """Handles DescribeReplicas. Only the leader of a partition has the answer."""

    def __init__(self, services: BrokerServices) -> None:
        self._cluster = services.cluster
        self._lookup = services.lookup
        self._partitions = services.partitions

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer without waiting. Without topics, describe all partitions that this broker leads."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(DescribeReplicasRequest, request.body)
        topics = []
        for name, indexes in self._all_led() if body.topics is None else _named(body.topics):
            described = []
            for index in dict.fromkeys(indexes):
                described.append(self._described(name, index))
                yield
            topics.append(DescribedTopic(name=name, partitions=tuple(described)))
        reply(DescribeReplicasResponse(topics=tuple(topics)))

    def _all_led(self) -> Iterator[tuple[str, Iterable[int]]]:
        led = sorted(partition.name for partition in self._partitions if partition.is_leader)
        for topic, names in groupby(led, lambda name: name.topic):
            yield topic, [name.partition_id for name in names]

    def _is_full(self, partition: Partition, broker_id: int) -> bool:
        return self._cluster.is_on_full_disk(partition.record, broker_id)

    def _described(self, topic: str, index: int) -> DescribedPartition:
        try:
            partition = self._lookup.named(topic, index)
        except ApiError as error:
            return DescribedPartition(error_code=error.code, partition_index=index)
        return self._of_partition(partition)

    def _of_partition(self, partition: Partition) -> DescribedPartition:
        index = partition.name.partition_id
        leader_id, leader_epoch = partition.record.leader, partition.leader_epoch
        try:
            log = partition.leader_log()
        except ApiError as error:
            return DescribedPartition(
                error_code=error.code, partition_index=index, leader_id=leader_id, leader_epoch=leader_epoch
            )
        return DescribedPartition(
            partition_index=index,
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
            replicas=tuple(
                DescribedReplica(
                    broker_id=replica.broker_id,
                    log_start_offset=replica.log_start_offset,
                    log_end_offset=replica.log_end_offset,
                    lag_ms=replica.lag_ms,
                    is_in_sync=replica.is_in_sync,
                    is_pending=replica.is_pending,
                    reasons=(*replica.reasons, DISK_FULL)
                    if self._is_full(partition, replica.broker_id)
                    else replica.reasons,
                )
                for replica in partition.describe_replicas()
            ),
        )
