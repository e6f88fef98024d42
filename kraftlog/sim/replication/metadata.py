"""The topics and partitions that the controller has committed, for clients, the administrator and the checkers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftbase.ids import DAMAGED_DIRECTORY
from kraftlog.controller.rules.partition_change import directory_of
from kraftlog.sim.replication.checkers.views import NO_LEADER, PartitionState
from kraftlog.sim.replication.parameters import TopicParameters
from kraftpb.v1.metadata_pb2 import PartitionRecord
from statemachine.replay.deltas import MetadataDelta


@dataclass(slots=True)
class Topic:
    """An existing topic."""

    name: str
    topic_id: bytes
    parameters: TopicParameters
    min_isr: int
    """The present min.insync.replicas."""
    lowest_min_isr: int
    """The lowest min.insync.replicas so far."""
    partitions: dict[int, PartitionState] = field(default_factory=dict)


Key = tuple[bytes, int]
"""A topic's id and the number of a partition."""


@dataclass(slots=True)
class CommittedTopics:
    """All committed topics, by name."""

    parameters: dict[str, TopicParameters]
    """The parameters of all topics, existing or not."""
    topics: dict[str, Topic] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)

    def apply(self, delta: MetadataDelta) -> Iterable[tuple[Topic, int, PartitionState | None, bool]]:
        """Apply a delta. Yield each changed partition with its state and whether an unclean election caused it.

        The state is None if the partition was deleted.
        """
        for topic in delta.topics:
            if topic.after is not None:
                parameters = self.parameters[topic.after.name]
                self.names[topic.after.topic_id] = topic.after.name
                self.topics[topic.after.name] = Topic(
                    topic.after.name, topic.after.topic_id, parameters, parameters.min_insync_replicas,
                    parameters.min_insync_replicas,
                )  # fmt: skip
        for partition in delta.partitions:
            record = partition.after or partition.before
            if record is None or record.topic_id not in self.names:
                continue
            found = self.topics.get(self.names[record.topic_id])
            if found is None or found.topic_id != record.topic_id:
                continue
            if partition.after is None:
                yield found, record.partition_id, None, False
                continue
            state = state_of(partition.after)
            before = found.partitions.get(record.partition_id)
            found.partitions[record.partition_id] = state
            yield found, record.partition_id, state, _is_unclean(before, state, found.parameters)
        for topic in delta.topics:
            if topic.after is None and topic.before is not None:
                name = self.names.pop(topic.before.topic_id)
                if self.topics[name].topic_id == topic.before.topic_id:
                    del self.topics[name]


def state_of(record: PartitionRecord) -> PartitionState:
    """Return the state that a record describes."""
    return PartitionState(
        leader=record.leader, leader_epoch=record.leader_epoch, partition_epoch=record.partition_epoch,
        replicas=tuple(record.replicas), isr=tuple(record.isr),
        eligible_leaders=tuple(record.eligible_leader_replicas), last_known=tuple(record.last_known_elr),
        damaged=tuple(broker_id for broker_id in record.replicas if directory_of(record, broker_id) ==
        DAMAGED_DIRECTORY), directories=tuple(record.directories),
    )  # fmt: skip


def _is_unclean(before: PartitionState | None, after: PartitionState, parameters: TopicParameters) -> bool:
    """Whether a leader was elected that may lack committed records, as the topic allows.

    A broker that has reported its log as damaged or missing may lack some. The last known leader had everything; with
    `flush.before.ack` it had everything on disk, so it must still have it. If the topic allows no unclean election,
    every other leader must have everything, however it was elected.
    """
    if before is None or after.leader_epoch == before.leader_epoch or after.leader == NO_LEADER:
        return False
    if parameters.has_unclean_elections and after.leader in after.damaged:
        return True
    if after.leader in (before.isr or before.eligible_leaders):
        return False
    if after.leader in before.last_known:
        return not parameters.flush_before_ack
    return parameters.has_unclean_elections
