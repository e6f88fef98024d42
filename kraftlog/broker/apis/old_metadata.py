"""Answers to Metadata in versions before 6: fewer errors, and in version 0 only replicas that can be reached."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from kraftbase.errors import ErrorCode
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.kafka.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

PARTITIONS_PER_STEP: Final = 100


def as_before_version_6(
    topic: MetadataResponseTopic, version: int, cluster: ClusterView, listener_name: str
) -> Generator[None, None, MetadataResponseTopic]:
    """Return the topic for a client that does not know LISTENER_NOT_FOUND: it gets LEADER_NOT_AVAILABLE (KAFKA-7119).

    A client of version 0 looks up every replica among the brokers of the answer. So replicas that are not among them
    are left out, and the partition has REPLICA_NOT_AVAILABLE.
    """
    partitions = []
    for partition in topic.partitions:
        partitions.append(_partition(partition, version, cluster, listener_name))
        if not len(partitions) % PARTITIONS_PER_STEP:
            yield
    return MetadataResponseTopic(
        error_code=topic.error_code, name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal,
        partitions=tuple(partitions), topic_authorized_operations=topic.topic_authorized_operations,
    )  # fmt: skip


def _partition(
    partition: MetadataResponsePartition, version: int, cluster: ClusterView, listener_name: str
) -> MetadataResponsePartition:
    code = partition.error_code
    replicas, in_sync = partition.replica_nodes, partition.isr_nodes
    if code == ErrorCode.LISTENER_NOT_FOUND:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    if version == 0:
        replicas, in_sync = _reachable(replicas, cluster, listener_name), _reachable(in_sync, cluster, listener_name)
        are_missing = (len(replicas), len(in_sync)) != (len(partition.replica_nodes), len(partition.isr_nodes))
        if are_missing and code == ErrorCode.NONE:
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code, partition_index=partition.partition_index, leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch, replica_nodes=replicas, isr_nodes=in_sync,
        offline_replicas=partition.offline_replicas,
    )  # fmt: skip


def _reachable(brokers: Iterable[int], cluster: ClusterView, listener_name: str) -> tuple[int, ...]:
    return tuple(broker_id for broker_id in brokers if cluster.is_reachable(broker_id, listener_name))
