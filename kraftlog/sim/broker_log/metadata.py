"""The existing topics: the metadata that a broker has applied, in the tables of its state machine.

The tables survive the broker's processes. The source and the delivery of metadata are the replication world's subject.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraftbase.types import Epoch, Offset
from kraftlog.sim.broker_log.checkers.promises import TopicRules
from kraftlog.sim.broker_log.parameters import TopicParameters
from kraftlog.sim.engine.tables_in_memory import empty_image, tables_in_memory
from kraftlog.storage.config import PartitionLogConfig
from kraftpb.v1.metadata_pb2 import (
    BrokerEndpoint,
    MetadataBatch,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from raft.listener import CommittedBatch
from raft.storage.batch import encode_batch
from statemachine.replay.deltas import MetadataDelta

CLUSTER_ID: Final = "simulatedBrokerLogAAAA"
BROKER_ID: Final = 1
_FIRST_TOPIC_ID: Final = 1_000
_FIRST_DIRECTORY_ID: Final = 1_000_000


@dataclass(slots=True)
class Topic:
    """An existing topic."""

    name: str
    topic_id: bytes
    parameters: TopicParameters
    leader_epoch: int = 0

    @property
    def config(self) -> PartitionLogConfig:
        """The config of the topic's logs."""
        parameters = self.parameters
        return PartitionLogConfig(
            segment_bytes=parameters.segment_bytes, segment_ms=parameters.segment_ms,
            segment_index_bytes=parameters.segment_index_bytes,
            index_interval_bytes=parameters.index_interval_bytes, retention_ms=parameters.retention_ms,
            retention_bytes=parameters.retention_bytes, preallocates=parameters.preallocates,
            flush_ms=parameters.flush_ms, flush_before_ack=parameters.flush_before_ack,
        )  # fmt: skip


class Metadata:
    """All existing topics, and the configs of their logs by name."""

    def __init__(self, partitions: int) -> None:
        self.tables = tables_in_memory(empty_image(CLUSTER_ID))
        """The applied metadata. The tables survive the broker's processes."""
        self._partitions = partitions
        self._made = 0
        self._ids = 0
        self.topics: dict[str, Topic] = {}
        """By name."""

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection to the tables."""
        return self.tables.connection

    @property
    def end_offset(self) -> Offset:
        """The applied end offset."""
        return Offset(self.tables.applied.end_offset)

    def new_id(self) -> UUID:
        """Return a unique id."""
        return UUID(int=_FIRST_DIRECTORY_ID + self.new_number())

    def new_number(self) -> int:
        """Return a unique number."""
        self._ids += 1
        return self._ids

    def register(self, incarnation_id: bytes) -> tuple[int, list[MetadataDelta]]:
        """Register the broker. Return its epoch and the deltas for it."""
        broker_epoch = self.end_offset
        registration = RegisterBrokerRecord(
            broker_id=BROKER_ID, incarnation_id=incarnation_id, broker_epoch=broker_epoch,
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="broker", port=9092)],
        )  # fmt: skip
        return broker_epoch, self._apply([MetadataRecord(register_broker=registration)])

    def create(self, name: str, parameters: TopicParameters) -> list[MetadataDelta]:
        """Create a topic with a new id. Return the deltas for the broker."""
        self._made += 1
        topic = Topic(name, (_FIRST_TOPIC_ID + self._made).to_bytes(16, "big"), parameters)
        self.topics[name] = topic
        made = MetadataRecord(topic=TopicRecord(name=name, topic_id=topic.topic_id))
        return self._apply([made, *self._partition_records(topic)])

    def delete(self, name: str) -> list[MetadataDelta]:
        """Delete a topic. Return the deltas for the broker."""
        topic = self.topics.pop(name)
        return self._apply([MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=topic.topic_id))])

    def elect(self, name: str) -> list[MetadataDelta]:
        """Raise the leader epoch of a topic's partitions. Return the deltas for the broker."""
        self.topics[name].leader_epoch += 1
        return self._apply(self._partition_records(self.topics[name]))

    def _partition_records(self, topic: Topic) -> list[MetadataRecord]:
        return [
            MetadataRecord(
                partition=PartitionRecord(
                    topic_id=topic.topic_id, partition_id=index, replicas=[BROKER_ID], isr=[BROKER_ID],
                    leader=BROKER_ID, leader_epoch=topic.leader_epoch, partition_epoch=topic.leader_epoch,
                )
            )
            for index in range(self._partitions)
        ]  # fmt: skip

    def _apply(self, records: Sequence[MetadataRecord]) -> list[MetadataDelta]:
        body = MetadataBatch(records=records).SerializeToString()
        batch = CommittedBatch(encode_batch(self.end_offset, Epoch(1), body, len(records), 1, False))
        self.tables.apply([batch], note_delta=True)
        return self.tables.take_deltas()

    # --- settings -----------------------------------------------------------------------------------------------------

    def log_config(self, topic: str) -> PartitionLogConfig:
        """Return the config of a topic's logs; Kafka's defaults for a topic that no longer exists."""
        found = self.topics.get(topic)
        return PartitionLogConfig() if found is None else found.config

    def min_insync_replicas(self, topic: str) -> int:
        """Return the number of in-sync replicas that acks=all requires."""
        return 1


def rules_of(parameters: TopicParameters, slack_ms: int) -> TopicRules:
    """Return the settings of a topic that checkers need. `slack_ms`: how late a due flush may be."""
    return TopicRules(
        flush_before_ack=parameters.flush_before_ack, flush_ms=parameters.flush_ms + slack_ms,
        retention_ms=parameters.retention_ms, retention_bytes=parameters.retention_bytes,
    )  # fmt: skip
