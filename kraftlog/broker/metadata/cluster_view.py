"""The cluster as this broker has applied it: brokers, topics with their partitions, features.

All brokers are kept in memory, because they are few. Topics are read from the broker's copy of the metadata on demand,
and kept until they change, up to `KEPT_PARTITIONS_MAX` partitions: a cluster may have a million.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftbase.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY, UNASSIGNED_DIRECTORY, is_reserved
from kraftbase.types import Offset
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord
from statemachine.replay.deltas import MetadataDelta
from statemachine.tables.cluster_tables import BROKERS, FEATURES
from statemachine.tables.topic_tables import PARTITIONS, TOPICS, TOPICS_BY_NAME
from statemachine.words.full_log_dirs import is_full

KEPT_PARTITIONS_MAX: Final = 100_000


class Node(NamedTuple):
    """Where clients reach a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True, eq=False)
class TopicView:
    """A topic with all of its partitions, by number. Do not change the records."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionRecord, ...]

    def partition(self, index: int) -> PartitionRecord | None:
        """Return the partition with this number, or None."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Departures:
    """Deleted topics, and a callback for when this broker no longer shows them."""

    def __init__(self) -> None:
        self.topic_ids: set[bytes] = set()
        """The topics that the broker still shows."""
        self.on_gone: Callable[[], None] | None = None
        """Called when `topic_ids` becomes empty; set it when all ids are added."""

    def topics_changed(self, gone: set[bytes]) -> None:
        """Remove topics that the broker no longer shows; `gone` may contain others, too."""
        self.topic_ids -= gone
        if not self.topic_ids and self.on_gone is not None:
            self.on_gone()


class ClusterView:
    """A publisher of the broker's state machine (`statemachine.apply.publishers.MetadataPublisher`)."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.brokers: dict[int, RegisterBrokerRecord] = {}
        """The registrations of all brokers, fenced ones included."""
        self.features: dict[str, int] = {}
        """The finalized level of each enabled feature."""
        self.end_offset = Offset(0)
        """All records below this offset are applied."""
        self.version = 0
        """Changes with each change of a topic, a partition or a broker."""
        self.doubted: set[int] = set()
        """Brokers whose processes may have ended a moment ago; clients must ask again for what they lead (DB-98)."""
        self._metadata: sqlite3.Connection | None = None
        self._departures: list[Departures] = []
        self._topics: dict[str, TopicView] = {}
        self._names: dict[bytes, str] = {}
        self._kept_partitions = 0

    def doubt(self, broker_id: int) -> None:
        """Doubt a broker: it has closed its connection to this one."""
        self.doubted.add(broker_id)
        self.version += 1

    def trust(self, broker_id: int) -> None:
        """End the doubt: the broker answers again, or the time in which the controller would have fenced it is over."""
        if broker_id in self.doubted:
            self.doubted.discard(broker_id)
            self.version += 1

    # --- changes ------------------------------------------------------------------------------------------------------

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Start again from a complete state."""
        self._metadata = metadata
        self.end_offset = end_offset
        self.version += 1
        self.brokers = {record.broker_id: record for _, record in BROKERS.find(metadata)}
        self.features = {record.name: record.level for _, record in FEATURES.find(metadata)}
        self._forget_topics()
        awaited = {topic_id for watching in self._departures for topic_id in watching.topic_ids}
        self._note_departures({topic_id for topic_id in awaited if self.topic_name(topic_id) is None})

    def on_delta(self, delta: MetadataDelta) -> None:
        """Apply a change; topics that changed are read again on demand."""
        self.end_offset = delta.end_offset
        if delta.topics or delta.partitions or delta.brokers:
            self.version += 1
        for topic in delta.topics:
            for record in (topic.before, topic.after):
                if record is not None:
                    self._remove_topic(record.topic_id)
        for partition in delta.partitions:
            changed = partition.after or partition.before
            if changed is not None:
                self._remove_topic(changed.topic_id)
        for broker in delta.brokers:
            if broker.after is not None:
                self.brokers[broker.after.broker_id] = broker.after
            elif broker.before is not None:
                self.brokers.pop(broker.before.broker_id, None)
        for feature in delta.features:
            if feature.after is not None:
                self.features[feature.after.name] = feature.after.level
            elif feature.before is not None:
                self.features.pop(feature.before.name, None)
        if self._departures:
            self._note_departures(
                {change.before.topic_id for change in delta.topics if change.before and change.after is None}
            )

    # --- deleted topics -----------------------------------------------------------------------------------------------

    def watch(self, departures: Departures) -> None:
        """Update `departures` as topics are deleted. The caller bounds how many are watched."""
        self._departures.append(departures)

    def watch_no_more(self, departures: Departures) -> None:
        """End `watch`."""
        self._departures = [watching for watching in self._departures if watching is not departures]

    def _note_departures(self, gone: set[bytes]) -> None:
        for watching in list(self._departures):
            watching.topics_changed(gone)

    def _forget_topics(self) -> None:
        self._topics.clear()
        self._names.clear()
        self._kept_partitions = 0

    def _remove_topic(self, topic_id: bytes) -> None:
        name = self._names.pop(topic_id, None)
        if name is not None:
            self._kept_partitions -= len(self._topics.pop(name).partitions) + 1

    # --- topics -------------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> sqlite3.Connection:
        """The broker's copy of the metadata, with the tables of docs/sql.md. Read-only for callers."""
        if self._metadata is None:
            raise RuntimeError("the cluster was read before the broker has applied any metadata")
        return self._metadata

    def topic_named(self, name: str) -> TopicView | None:
        """Return the topic with a name, or None."""
        known = self._topics.get(name)
        if known is not None:
            return known
        record = TOPICS_BY_NAME.get(self.metadata, (name,))
        return None if record is None else self._read(record.name, record.topic_id)

    def topic_with_id(self, topic_id: bytes) -> TopicView | None:
        """Return the topic with an id, or None."""
        name = self._names.get(topic_id)
        if name is not None:
            return self._topics[name]
        record = TOPICS.get(self.metadata, (topic_id,))
        return None if record is None else self._read(record.name, record.topic_id)

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id, or None, without reading its partitions."""
        name = self._names.get(topic_id)
        if name is not None:
            return name
        record = TOPICS.get(self.metadata, (topic_id,))
        return None if record is None else record.name

    def topic_names(self, after: str = "") -> Iterator[str]:
        """Yield in order the names of all topics that sort after `after`."""
        for _, record in TOPICS_BY_NAME.find(self.metadata, after=(after,) if after else None):
            yield record.name

    def _read(self, name: str, topic_id: bytes) -> TopicView:
        partitions = tuple(record for _, record in PARTITIONS.find(self.metadata, (topic_id,)))
        topic = TopicView(name, topic_id, partitions)
        if self._kept_partitions + len(partitions) >= KEPT_PARTITIONS_MAX:
            self._forget_topics()
        self._topics[name] = topic
        self._names[topic_id] = name
        self._kept_partitions += len(partitions) + 1
        return topic

    # --- brokers ------------------------------------------------------------------------------------------------------

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def registered_epoch(self, broker_id: int) -> int | None:
        """The epoch of a broker's registration; None if it is not registered."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.broker_epoch

    def is_fenced(self, broker_id: int) -> bool:
        """Whether a broker is fenced."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.fenced

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether a broker is in its controlled shutdown."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.in_controlled_shutdown

    def is_on_full_disk(self, partition: PartitionRecord, broker_id: int) -> bool:
        """Whether the log directory of a replica has no room (CT-66)."""
        broker = self.brokers.get(broker_id)
        of_broker = dict(zip(partition.replicas, partition.directories, strict=False))
        return broker is not None and is_full(broker, of_broker.get(broker_id, UNASSIGNED_DIRECTORY))

    def rack(self, broker_id: int) -> str:
        """The rack of a broker; empty if it has none."""
        broker = self.brokers.get(broker_id)
        return "" if broker is None else broker.rack

    def is_reachable(self, broker_id: int, listener_name: str) -> bool:
        """Whether a broker is registered, not fenced, and has the listener."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and _endpoint(broker, listener_name) is not None

    def node(self, broker_id: int, listener_name: str) -> Node | None:
        """Return a broker's endpoint for clients of a listener; None without such a listener, or if unregistered."""
        broker = self.brokers.get(broker_id)
        endpoint = None if broker is None else _endpoint(broker, listener_name)
        if broker is None or endpoint is None:
            return None
        return Node(broker_id, endpoint.host, endpoint.port, broker.rack if broker.HasField("rack") else None)

    def living_nodes(self, listener_name: str) -> list[Node]:
        """Return the endpoints of unfenced brokers for clients of a listener, by id."""
        nodes = (self.node(broker_id, listener_name) for broker_id in sorted(self.brokers) if self.is_alive(broker_id))
        return [node for node in nodes if node is not None]

    def offline_replicas(self, partition: PartitionRecord, listener_name: str) -> tuple[int, ...]:
        """Return the replicas that clients of a listener cannot reach.

        Their broker is not registered, is fenced, has no such listener, or lacks the directory that they are in.
        """
        return tuple(
            replica
            for at, replica in enumerate(partition.replicas)
            if not self.is_reachable(replica, listener_name) or self._lacks_directory(partition, at, replica)
        )

    def _lacks_directory(self, partition: PartitionRecord, at: int, replica: int) -> bool:
        if at >= len(partition.directories):
            return False
        directory_id = partition.directories[at]
        if is_reserved(directory_id):
            return directory_id in (LOST_DIRECTORY, DAMAGED_DIRECTORY)
        online = self.brokers[replica].log_dirs
        return bool(online) and directory_id not in online  # registrations before Kafka 3.7 name none


def _endpoint(broker: RegisterBrokerRecord, listener_name: str) -> BrokerEndpoint | None:
    return next((endpoint for endpoint in broker.end_points if endpoint.name == listener_name), None)
