"""The topics that there are: the metadata that a broker has applied, in the tables of its state machine.

It survives the broker's processes: where it comes from, and how it gets there, is another world's business.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraftbase.types import Epoch, Offset
from kraftlog.sim.broker_log.judges.promises import TopicRules
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
    """A topic that there is."""

    name: str
    topic_id: bytes
    parameters: TopicParameters
    leader_epoch: int = 0

    @property
    def config(self) -> PartitionLogConfig:
        """As its logs have it."""
        parameters = self.parameters
        return PartitionLogConfig(
            segment_bytes=parameters.segment_bytes, segment_ms=parameters.segment_ms,
            segment_index_bytes=parameters.segment_index_bytes,
            index_interval_bytes=parameters.index_interval_bytes, retention_ms=parameters.retention_ms,
            retention_bytes=parameters.retention_bytes, preallocates=parameters.preallocates,
            flush_ms=parameters.flush_ms, flush_before_ack=parameters.flush_before_ack,
        )  # fmt: skip


class Metadata:
    """All topics; `settings` for whoever asks by name."""

    def __init__(self, partitions: int) -> None:
        self.tables = tables_in_memory(empty_image(CLUSTER_ID))
        """What is applied. They survive the broker's processes."""
        self._partitions = partitions
        self._made = 0
        self._ids = 0
        self.topics: dict[str, Topic] = {}
        """By name."""

    @property
    def connection(self) -> sqlite3.Connection:
        """The tables."""
        return self.tables.connection

    @property
    def end_offset(self) -> Offset:
        """What is applied: everything below."""
        return Offset(self.tables.applied.end_offset)

    def new_id(self) -> UUID:
        """An id that nothing else has."""
        return UUID(int=_FIRST_DIRECTORY_ID + self.new_number())

    def new_number(self) -> int:
        """A number that nothing else has."""
        self._ids += 1
        return self._ids

    def register(self, incarnation_id: bytes) -> tuple[int, list[MetadataDelta]]:
        """The broker registers. Returns its epoch, and what it is told."""
        broker_epoch = self.end_offset
        registration = RegisterBrokerRecord(
            broker_id=BROKER_ID, incarnation_id=incarnation_id, broker_epoch=broker_epoch,
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="broker", port=9092)],
        )  # fmt: skip
        return broker_epoch, self._apply([MetadataRecord(register_broker=registration)])

    def create(self, name: str, parameters: TopicParameters) -> list[MetadataDelta]:
        """Make a topic, which has an id of its own. Returns what a broker is told."""
        self._made += 1
        topic = Topic(name, (_FIRST_TOPIC_ID + self._made).to_bytes(16, "big"), parameters)
        self.topics[name] = topic
        made = MetadataRecord(topic=TopicRecord(name=name, topic_id=topic.topic_id))
        return self._apply([made, *self._partition_records(topic)])

    def delete(self, name: str) -> list[MetadataDelta]:
        """Delete a topic. Returns what a broker is told."""
        topic = self.topics.pop(name)
        return self._apply([MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=topic.topic_id))])

    def elect(self, name: str) -> list[MetadataDelta]:
        """The broker leads a topic's partitions in a new epoch. Returns what it is told."""
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
        """The settings of the logs of a topic's partitions; Kafka's defaults for one that there is not any more."""
        found = self.topics.get(topic)
        return PartitionLogConfig() if found is None else found.config

    def min_insync_replicas(self, topic: str) -> int:
        """How many replicas must be in sync for acks=all."""
        return 1


def rules_of(parameters: TopicParameters, slack_ms: int) -> TopicRules:
    """What judges know of a topic; `slack_ms`: how late a flush may be that is due."""
    return TopicRules(
        flush_before_ack=parameters.flush_before_ack, flush_ms=parameters.flush_ms + slack_ms,
        retention_ms=parameters.retention_ms, retention_bytes=parameters.retention_bytes,
    )  # fmt: skip
