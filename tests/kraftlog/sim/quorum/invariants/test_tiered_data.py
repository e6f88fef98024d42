"""Data that is only in remote storage exists there, and the metadata agrees."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.tiered_data import TieredData
from kraftlog.sim.quorum.model.tiering import DELETED, DELETING, FINISHED
from kraftpb.v1.metadata_pb2 import (
    MetadataRecord,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    RemoveTopicRecord,
    SegmentLeaderEpoch,
)
from tests.kraftlog.sim.quorum.invariants.builders import violates
from tests.kraftlog.sim.quorum.invariants.metadata import KEY, TOPIC_ID, MetadataCluster, partition


class Story:
    """One partition's remote storage."""

    def __init__(self) -> None:
        self.cluster = MetadataCluster().with_brokers()
        self.cluster.records(partition())
        self.storage = self.cluster.remote_storage
        self.invariant = TieredData(self.cluster)

    def begin(self, number: int, start_offset: int, end_offset: int) -> None:
        begun = RemoteLogSegmentMetadataRecord(
            topic_id=TOPIC_ID,
            segment_id=_id(number),
            start_offset=start_offset,
            end_offset=end_offset,
            segment_leader_epochs=[SegmentLeaderEpoch(leader_epoch=0, start_offset=start_offset)],
        )
        self.commit(MetadataRecord(remote_log_segment_metadata=begun))
        self.storage.objects.add((*KEY, _id(number)))

    def update(self, number: int, state: int) -> None:
        update = RemoteLogSegmentMetadataUpdateRecord(topic_id=TOPIC_ID, segment_id=_id(number), state=state)
        self.commit(MetadataRecord(remote_log_segment_metadata_update=update))

    def commit(self, record: MetadataRecord) -> None:
        self.invariant.after_step(self.cluster.records(record))

    def remove(self, number: int) -> None:
        self.storage.remove((*KEY, _id(number)))
        self.invariant.after_step(self.cluster.step(1))


def _id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_segments_come_and_go_in_order() -> None:
    story = Story()
    for number, (start_offset, end_offset) in enumerate([(0, 9), (10, 19), (10, 19), (20, 29)]):
        story.begin(number, start_offset, end_offset)
        story.update(number, FINISHED)
    story.storage.local_starts[1, KEY] = 30
    story.update(0, DELETING)
    story.remove(0)
    story.update(0, DELETED)
    story.invariant.at_end()


def test_short_segments_and_long_ones_lie_within_one_another() -> None:
    story = Story()
    for number, (start_offset, end_offset) in enumerate([(0, 9), (10, 19), (0, 19), (20, 39), (20, 29), (30, 39)]):
        story.begin(number, start_offset, end_offset)
        story.update(number, FINISHED)
    for number in (0, 2):
        story.update(number, DELETING)
    story.begin(9, 0, 9)
    story.update(9, FINISHED)  # nothing below 20 is counted on any more


def test_a_log_that_begins_behind_what_is_deleted_is_found() -> None:
    story = Story()
    story.begin(1, 10, 19)
    with violates(story.invariant):
        story.update(1, FINISHED)


def test_a_gap_and_an_overlap_are_found() -> None:
    for start_offset in (11, 9):
        story = Story()
        story.begin(1, 0, 9)
        story.update(1, FINISHED)
        story.begin(2, start_offset, 19)
        with violates(story.invariant):
            story.update(2, FINISHED)


def test_a_finished_segment_without_its_object_is_found() -> None:
    """TS-42: the object is there before COPY_FINISHED is announced."""
    story = Story()
    story.begin(1, 0, 9)
    story.storage.objects.clear()
    with violates(story.invariant):
        story.update(1, FINISHED)


def test_an_object_that_goes_before_the_record_is_found() -> None:
    """TS-49: DELETE_STARTED is announced first."""
    story = Story()
    story.begin(1, 0, 9)
    story.update(1, FINISHED)
    with violates(story.invariant):
        story.remove(1)


def test_with_its_topic_everything_may_go() -> None:
    story = Story()
    story.begin(1, 0, 9)
    story.update(1, FINISHED)
    story.commit(MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=TOPIC_ID)))
    for state in (0, 1):
        removal = RemotePartitionDeleteMetadataRecord(topic_id=TOPIC_ID, state=state)
        story.commit(MetadataRecord(remote_partition_delete_metadata=removal))
    story.remove(1)
    story.storage.local_starts[1, KEY] = 99
    story.invariant.at_end()


def test_a_log_that_begins_behind_what_is_copied_is_found() -> None:
    """TS-42: what is not copied is not deleted locally."""
    story = Story()
    story.begin(1, 0, 9)
    story.storage.local_starts[1, KEY] = 10
    with violates(story.invariant):
        story.invariant.at_end()
    story.update(1, FINISHED)
    story.invariant.at_end()
    story.cluster.faults_may_lose_quorum = True
    story.storage.local_starts[1, KEY] = 11
    story.invariant.at_end()
