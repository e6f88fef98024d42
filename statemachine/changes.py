"""What a run of committed records comes to: the net change to the tables, without the steps in between.

Records are replayed in order (CT-01 to CT-03, as far as their kinds exist); only the last value of each key is kept, so
a flush touches each row once, and how the log was cut into runs makes no difference. What each record did is noted
for the digest by which nodes are compared; that is the same however the log is cut, too. A record that cannot be true
(a partition of a topic that does not exist, a topic that exists already, a kind that this version does not know) is a
ReplayError: a replica that went on would no longer be one (CT-02, CT-18).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack
from typing import NoReturn, Protocol

from kraftpb.v1.metadata_pb2 import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from raft.core.errors import InvariantViolation
from raft.core.types import Offset
from statemachine.ids import ID_BYTES
from statemachine.names import quoted
from statemachine.resources import ResourceType


class ReplayError(InvariantViolation):
    """A committed record cannot be applied. Ends the process: this replica would differ from the others (CT-18)."""


class StoredTopics(Protocol):
    """What has to be looked up in the state that the records are applied to."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with that id."""
        ...

    def topics_like(self, topic_id: bytes, name: str) -> Sequence[bytes]:
        """The ids of the topics that have that id or that name."""
        ...


class Changes:
    """The net change of the records replayed so far. What is removed is removed before anything is added."""

    __slots__ = (
        "_effects",
        "_names",
        "_stored",
        "brokers",
        "cleared_topics",
        "configs",
        "partitions",
        "removed_topics",
        "topics",
    )

    def __init__(self, stored: StoredTopics) -> None:
        self._stored = stored
        self.removed_topics: dict[bytes, None] = {}
        """Ids of stored topics that go, with their partitions."""
        self.cleared_topics: dict[str, None] = {}
        """Names of topics whose stored configs go."""
        self.topics: dict[bytes, str] = {}
        self._names: dict[str, bytes] = {}
        self.brokers: dict[int, RegisterBrokerRecord] = {}
        self.partitions: dict[bytes, dict[int, PartitionRecord]] = {}
        self.configs: dict[tuple[int, str], dict[str, str | None]] = {}
        """By resource and config name; None: the config goes."""
        self._effects: list[bytes] = []

    def replay(self, records: Iterable[MetadataRecord], base_offset: Offset) -> None:
        """Take in `records`, the first of which is at `base_offset`. Raises ReplayError; then this is spent."""
        for offset, record in enumerate(records, base_offset):
            match record.WhichOneof("record"):
                case "config":
                    self._replay_config(record.config)
                case "partition":
                    self._replay_partition(record.partition, offset)
                case "topic":
                    self._replay_topic(record.topic, offset)
                case "remove_topic":
                    self._replay_remove_topic(record.remove_topic, offset)
                case "register_broker":
                    self._replay_broker(record.register_broker)
                case "no_op":
                    self._effects.append(b"no_op")
                case _:
                    _refuse(offset, "is of a kind that this version does not know; upgrade this node")

    def take_effects(self) -> bytes:
        """What the records replayed since the last call did, encoded: how many fields, their lengths, the fields.

        The fields of a record are what it did and the row it did it to (docs/formats/metadata.md).
        """
        effects, self._effects = self._effects, []
        return b"".join((pack(f">{len(effects) + 1}I", len(effects), *map(len, effects)), *effects))

    def _replay_config(self, record: ConfigRecord) -> None:
        resource_type, resource_name, name = record.resource_type, record.resource_name, record.name
        value = record.value if record.HasField("value") else None
        self.configs.setdefault((resource_type, resource_name), {})[name] = value
        row = (b"%d" % resource_type, resource_name.encode(), name.encode())
        self._effects += (b"remove_config", *row) if value is None else (b"config", *row, value.encode())

    def _replay_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = record
        self._effects += (b"broker", record.SerializeToString())

    def _replay_partition(self, record: PartitionRecord, offset: int) -> None:
        rows = self.partitions.get(record.topic_id)
        if rows is None:
            if record.topic_id not in self.topics and self._stored_name(record.topic_id) is None:
                _refuse(offset, f"is a partition of topic {record.topic_id.hex()}, which does not exist")
            rows = self.partitions[record.topic_id] = {}
        rows[record.partition_id] = record
        self._effects += (b"partition", record.SerializeToString())

    def _replay_topic(self, record: TopicRecord, offset: int) -> None:
        topic_id, name = record.topic_id, record.name
        if len(topic_id) != ID_BYTES or not name:
            _refuse(offset, f"creates topic {quoted(name)} with the id {topic_id.hex()!r}, which cannot be")
        if (
            topic_id in self.topics
            or name in self._names
            or any(stored not in self.removed_topics for stored in self._stored.topics_like(topic_id, name))
        ):
            _refuse(offset, f"creates topic {quoted(name)} with the id {topic_id.hex()}, one of which exists")
        self.topics[topic_id] = name
        self._names[name] = topic_id
        self._effects += (b"topic", topic_id, name.encode())

    def _replay_remove_topic(self, record: RemoveTopicRecord, offset: int) -> None:
        topic_id = record.topic_id
        name = self.topics.pop(topic_id, None)
        if name is None:
            name = self._stored_name(topic_id)
            if name is None:
                _refuse(offset, f"removes topic {topic_id.hex()}, which does not exist")
            self.removed_topics[topic_id] = None
        else:
            del self._names[name]
        self.cleared_topics[name] = None
        self.partitions.pop(topic_id, None)
        self.configs.pop((ResourceType.TOPIC, name), None)
        self._effects += (b"remove_topic", topic_id, name.encode())

    def _stored_name(self, topic_id: bytes) -> str | None:
        if topic_id in self.removed_topics or len(topic_id) != ID_BYTES:
            return None
        return self._stored.topic_name(topic_id)


def _refuse(offset: int, reason: str) -> NoReturn:
    raise ReplayError(f"the committed record at offset {offset} {reason}")
