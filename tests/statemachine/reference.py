"""The state machine as plain dicts, one record at a time: the expected content of the tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftbase.ids import id_to_bytes
from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.query import metadata_queries
from statemachine.store.store import MetadataStore
from tests.statemachine.builders import TOPIC


class Impossible(Exception):
    """The record cannot be true."""


@dataclass
class Reference:
    topics: dict[bytes, str] = field(default_factory=dict)
    partitions: dict[tuple[bytes, int], tuple[list[int], int]] = field(default_factory=dict)
    configs: dict[tuple[int, str, str], str] = field(default_factory=dict)
    brokers: dict[int, int] = field(default_factory=dict)

    def replay(self, record: MetadataRecord) -> None:
        match record.WhichOneof("record"):
            case "topic":
                if record.topic.topic_id in self.topics or record.topic.name in self.topics.values():
                    raise Impossible
                self.topics[record.topic.topic_id] = record.topic.name
            case "partition":
                key = record.partition.topic_id, record.partition.partition_id
                if record.partition.topic_id not in self.topics:
                    raise Impossible
                self.partitions[key] = list(record.partition.replicas), record.partition.leader
            case "config":
                name = record.config.resource_type, record.config.resource_name, record.config.name
                if record.config.HasField("value"):
                    self.configs[name] = record.config.value
                else:
                    self.configs.pop(name, None)
            case "register_broker":
                self.brokers[record.register_broker.broker_id] = record.register_broker.broker_epoch
            case "remove_topic":
                topic_id = record.remove_topic.topic_id
                if topic_id not in self.topics:
                    raise Impossible
                name_of_topic = self.topics.pop(topic_id)
                self.partitions = {key: row for key, row in self.partitions.items() if key[0] != topic_id}
                self.configs = {k: v for k, v in self.configs.items() if k[:2] != (TOPIC, name_of_topic)}


def seen_in(store: MetadataStore) -> Reference:
    """The content of the store, from queries, in the reference's terms."""
    state = Reference()
    for topic in metadata_queries.describe_all_topics(store.reader):
        topic_id = id_to_bytes(topic.topic_id)
        state.topics[topic_id] = topic.name
        for partition in topic.partitions:
            state.partitions[topic_id, partition.partition_id] = list(partition.replicas), partition.leader
    for row in store.reader.execute("SELECT resource_type, resource_name, name, value FROM configs"):
        state.configs[row[0], row[1], row[2]] = row[3]
    state.brokers = {broker.broker_id: broker.broker_epoch for broker in metadata_queries.list_brokers(store.reader)}
    return state
