"""Which partition a request means, and who leads it if this broker does not: the same for several APIs."""

from __future__ import annotations

from typing import NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.metadata.cluster_view import ClusterView, Node
from kraftlog.kafka.notation import ZERO_UUID
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.replicas.partitions.partitions import Partitions
from kraftpb.v1.metadata_pb2 import PartitionRecord


class TopicReference(NamedTuple):
    """A topic as a request names it: older versions by name, newer ones by id."""

    name: str = ""
    topic_id: bytes = ZERO_UUID

    @property
    def has_id(self) -> bool:
        """Whether it is named by its id."""
        return self.topic_id != ZERO_UUID

    def __str__(self) -> str:
        return self.name if self.name and not self.has_id else f"with id {self.topic_id.hex()}"


class PartitionLookup:
    """Finds partitions on this broker, and elsewhere."""

    def __init__(self, partitions: Partitions, cluster: ClusterView) -> None:
        self._partitions = partitions
        self._cluster = cluster

    def find(self, topic: TopicReference, index: int) -> Partition:
        """The replica on this broker.

        Raises ApiError: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER if other brokers have
        the partition.
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
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {topic}: ask for the metadata again")
        if view is None or view.partition(index) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic {topic}")
        raise ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"this broker has no replica of partition {index} of topic {topic}: ask for the metadata again",
        )

    def named(self, topic: str, index: int) -> Partition:
        """The replica on this broker, by the topic's name. Raises as `find`."""
        return self.find(TopicReference(topic), index)

    def elsewhere(self, topic: TopicReference, index: int) -> PartitionRecord | None:
        """What the metadata says of a partition, wherever it is."""
        view = self._cluster.topic_with_id(topic.topic_id) if topic.has_id else self._cluster.topic_named(topic.name)
        return None if view is None else view.partition(index)

    def leader_node(self, record: PartitionRecord, listener_name: str) -> Node | None:
        """Where the leader of a partition is reached."""
        return self._cluster.node(record.leader, listener_name)
