"""The topics and partitions that the controller has committed, as clients, administrators and judges see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftbase.ids import DAMAGED_DIRECTORY
from kraftlog.controller.rules.partition_change import directory_of
from kraftlog.sim.replication.judges.views import NO_LEADER, PartitionState
from kraftlog.sim.replication.parameters import TopicParameters
from kraftpb.v1.metadata_pb2 import PartitionRecord
from statemachine.replay.deltas import MetadataDelta


@dataclass(slots=True)
class Topic:
    """A topic that there is."""

    name: str
    topic_id: bytes
    parameters: TopicParameters
    min_isr: int
    """min.insync.replicas now."""
    lowest_min_isr: int
    """The lowest that it ever was."""
    partitions: dict[int, PartitionState] = field(default_factory=dict)


Key = tuple[bytes, int]
"""A topic's id and the number of a partition."""


@dataclass(slots=True)
class CommittedTopics:
    """All topics, by name."""

    parameters: dict[str, TopicParameters]
    """Of topics that there are, or are to be."""
    topics: dict[str, Topic] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)

    def apply(self, delta: MetadataDelta) -> Iterable[tuple[Topic, int, PartitionState | None, bool]]:
        """Take a change over; yields each partition that has changed, with its state, None: it was deleted, and
        whether an unclean election made it."""
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
    """What a record says."""
    return PartitionState(
        leader=record.leader, leader_epoch=record.leader_epoch, partition_epoch=record.partition_epoch,
        replicas=tuple(record.replicas), isr=tuple(record.isr),
        eligible_leaders=tuple(record.eligible_leader_replicas), last_known=tuple(record.last_known_elr),
        damaged=tuple(of for of in record.replicas if directory_of(record, of) == DAMAGED_DIRECTORY),
        directories=tuple(record.directories),
    )  # fmt: skip


def _is_unclean(before: PartitionState | None, after: PartitionState, parameters: TopicParameters) -> bool:
    """Whether a new leader was elected that may lack what is committed, as the topic allows.

    A broker that has said that its log is damaged or missing may. The last known leader had everything. With
    `flush.before.ack` it has that on its disk, so it must have it still. Where the topic allows no unclean election any
    other leader must have everything, too, however it was elected.
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
