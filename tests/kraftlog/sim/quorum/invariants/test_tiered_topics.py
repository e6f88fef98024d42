"""A topic takes its remote data with it."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.tiered_topics import TopicsTakeTheirRemoteData
from kraftlog.sim.quorum.model.metadata import TOPIC
from kraftlog.sim.quorum.model.tiering import MARKED, REMOVAL_STARTED
from kraftpb.v1.metadata_pb2 import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
    PartitionRecord,
    RemoteLogSegmentMetadataRecord,
    RemotePartitionDeleteMetadataRecord,
    RemoveTopicRecord,
    SegmentLeaderEpoch,
)
from tests.kraftlog.sim.quorum.invariants.builders import violates
from tests.kraftlog.sim.quorum.invariants.metadata import TOPIC_ID, MetadataCluster, partition, topic

REMOVE_TOPIC = MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=TOPIC_ID))
SEGMENT = MetadataRecord(
    remote_log_segment_metadata=RemoteLogSegmentMetadataRecord(
        topic_id=TOPIC_ID, segment_id=b"s" * 16, end_offset=9, segment_leader_epochs=[SegmentLeaderEpoch()]
    )
)
TIERED = MetadataRecord(
    config=ConfigRecord(resource_type=TOPIC, resource_name="clicks", name="remote.storage.enable", value="true")
)
BEGIN = MetadataRecord(begin_transaction=BeginTransactionRecord(name="x"))
END = MetadataRecord(end_transaction=EndTransactionRecord())


def removal(partition_id: int, state: int = MARKED) -> MetadataRecord:
    return MetadataRecord(
        remote_partition_delete_metadata=RemotePartitionDeleteMetadataRecord(
            topic_id=TOPIC_ID, partition_id=partition_id, state=state
        )
    )


class Story:
    """A topic with two partitions, the first of which has a segment in remote storage if `records` say so."""

    def __init__(self, *records: MetadataRecord) -> None:
        self.cluster = MetadataCluster().with_brokers()
        self.invariant = TopicsTakeTheirRemoteData(self.cluster)
        other = MetadataRecord(partition=PartitionRecord(topic_id=TOPIC_ID, partition_id=1, replicas=[1], isr=[1]))
        self.commit(partition(), other, *records)

    def commit(self, *records: MetadataRecord) -> None:
        self.invariant.after_step(self.cluster.records(*records))


@pytest.mark.parametrize("has", [SEGMENT, TIERED])
def test_all_partitions_are_marked_with_their_topic(has: MetadataRecord) -> None:
    Story(has).commit(removal(0), removal(1), REMOVE_TOPIC, topic("other", b"o" * 16))
    Story(has).commit(REMOVE_TOPIC, removal(1), removal(0))
    story = Story(has)
    story.commit(BEGIN, removal(0))
    story.commit(removal(1))
    story.commit(REMOVE_TOPIC, END)


@pytest.mark.parametrize("has", [SEGMENT, TIERED])
@pytest.mark.parametrize("marked", [(), (0,), (1,)])
def test_a_partition_that_is_not_marked_is_found(has: MetadataRecord, marked: tuple[int, ...]) -> None:
    story = Story(has)
    with violates(story.invariant):
        story.commit(*map(removal, marked), REMOVE_TOPIC)


def test_a_mark_after_the_removal_comes_too_late() -> None:
    story = Story(SEGMENT)
    with violates(story.invariant):
        story.commit(REMOVE_TOPIC)


def test_a_mark_of_a_partition_that_stays_is_found() -> None:
    story = Story(SEGMENT)
    with violates(story.invariant):
        story.commit(removal(0))


def test_a_topic_without_remote_data_takes_none() -> None:
    Story().commit(REMOVE_TOPIC)
    story = Story()
    with violates(story.invariant):
        story.commit(removal(0), removal(1), REMOVE_TOPIC)


def test_a_deletion_that_goes_on_is_not_begun_anew() -> None:
    def begun() -> Story:
        story = Story(SEGMENT)
        story.cluster.records(removal(0))  # which the invariant does not see
        story.commit(removal(0, REMOVAL_STARTED))
        return story

    begun().commit(removal(1), REMOVE_TOPIC)
    story = begun()
    with violates(story.invariant):
        story.commit(REMOVE_TOPIC)


def test_what_a_deleted_topic_left_may_be_marked_by_a_broker() -> None:
    story = Story()
    story.commit(REMOVE_TOPIC)
    story.commit(SEGMENT)
    story.commit(removal(0))
