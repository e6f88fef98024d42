"""Finds the partition that a request names, and its leader if this broker does not lead it; shared by several APIs."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import NO_LEADER, UNKNOWN_EPOCH
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.kafka.notation import ZERO_UUID
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.replicas.partitions.partitions import Partitions

Leader = TypeVar("Leader", covariant=True)
Endpoint = TypeVar("Endpoint", covariant=True)


class LeaderTable(Protocol[Leader]):
    """Makes an API's own structure for a partition's leader; the APIs' structures have the same fields."""

    def __call__(self, *, leader_id: int, leader_epoch: int) -> Leader:
        """Make one."""
        ...


class EndpointTable(Protocol[Endpoint]):
    """Makes an API's own structure for the endpoint of a leader."""

    def __call__(self, *, node_id: int, host: str, port: int, rack: str | None) -> Endpoint:
        """Make one."""
        ...


class TopicReference(NamedTuple):
    """A topic as a request names it: by name in older versions, by id in newer ones."""

    name: str = ""
    topic_id: bytes = ZERO_UUID

    @property
    def has_id(self) -> bool:
        """Whether the topic is named by its id."""
        return self.topic_id != ZERO_UUID

    def __str__(self) -> str:
        return self.name if self.name and not self.has_id else f"with id {self.topic_id.hex()}"


class PartitionLookup:
    """Finds partitions on this broker and in the metadata."""

    def __init__(self, partitions: Partitions, cluster: ClusterView) -> None:
        self._partitions = partitions
        self._cluster = cluster

    def find(self, topic: TopicReference, index: int) -> Partition:
        """Return the replica on this broker.

        Raises ApiError: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER if only other brokers
        have the partition.
        """
        name, topic_id = topic
        if topic_id != ZERO_UUID:
            partition = self._partitions.with_id(topic_id, index)
        else:
            partition = self._partitions.named(name, index)
        if partition is not None:
            return partition
        view = self._cluster.topic_with_id(topic.topic_id) if topic.has_id else self._cluster.topic_named(topic.name)
        if view is None and (topic.has_id or not topic.name):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {topic} does not exist; refresh the metadata")
        if view is None or view.partition(index) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {index} of topic {topic} does not exist")
        raise ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"this broker has no replica of partition {index} of topic {topic}; refresh the metadata",
        )

    def named(self, topic: str, index: int) -> Partition:
        """Return the replica on this broker, by the topic's name. Raises as `find` does."""
        return self.find(TopicReference(topic), index)

    def current_leader(
        self, topic: TopicReference, index: int, listener_name: str, leader: LeaderTable[Leader],
        endpoint: EndpointTable[Endpoint], endpoints: dict[int, Endpoint],
    ) -> Leader:  # fmt: skip
        """Return a partition's current leader, on any broker, and add the leader's endpoint to `endpoints` (KIP-951).

        Returns leader -1 and epoch -1 if the metadata has no such partition.
        """
        view = self._cluster.topic_with_id(topic.topic_id) if topic.has_id else self._cluster.topic_named(topic.name)
        record = None if view is None else view.partition(index)
        if record is None:
            return leader(leader_id=NO_LEADER, leader_epoch=UNKNOWN_EPOCH)
        node = self._cluster.node(record.leader, listener_name)
        if node is not None:
            endpoints[node.node_id] = endpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        return leader(leader_id=record.leader, leader_epoch=record.leader_epoch)
