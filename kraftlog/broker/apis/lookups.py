"""Which partition a request means, and who leads it if this broker does not: the same for several APIs."""

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
    """An API's table for a partition's leader: each API has its own, with these fields."""

    def __call__(self, *, leader_id: int, leader_epoch: int) -> Leader:
        """One row."""
        ...


class EndpointTable(Protocol[Endpoint]):
    """An API's table for where leaders are reached."""

    def __call__(self, *, node_id: int, host: str, port: int, rack: str | None) -> Endpoint:
        """One row."""
        ...


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

    def current_leader(
        self, topic: TopicReference, index: int, listener_name: str, leader: LeaderTable[Leader],
        endpoint: EndpointTable[Endpoint], endpoints: dict[int, Endpoint],
    ) -> Leader:  # fmt: skip
        """The present leader of a partition, wherever it is; into `endpoints`, by broker, where to reach it (KIP-951).

        -1 and -1 if the metadata has no such partition.
        """
        view = self._cluster.topic_with_id(topic.topic_id) if topic.has_id else self._cluster.topic_named(topic.name)
        record = None if view is None else view.partition(index)
        if record is None:
            return leader(leader_id=NO_LEADER, leader_epoch=UNKNOWN_EPOCH)
        node = self._cluster.node(record.leader, listener_name)
        if node is not None:
            endpoints[node.node_id] = endpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        return leader(leader_id=record.leader, leader_epoch=record.leader_epoch)
