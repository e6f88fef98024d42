"""The committed records are consistent."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.model.metadata import Partition
from kraftpb.v1.metadata_pb2 import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemoveTopicRecord,
    SegmentLeaderEpoch,
)
from tests.kraftlog.sim.quorum.invariants.builders import violates
from tests.kraftlog.sim.quorum.invariants.metadata import (
    KEY,
    TOPIC_ID,
    MetadataCluster,
    change,
    fenced,
    partition,
    register,
    topic,
)


def test_it_keeps_the_metadata_and_what_a_step_changed() -> None:
    cluster = MetadataCluster().with_brokers()
    cluster.records(partition())
    cluster.records(change(isr=[1, 2], leader=2), change(isr=[2]))
    assert cluster.metadata.partitions[KEY] == Partition(
        leader=2,
        leader_epoch=1,
        partition_epoch=2,
        recovery_state=0,
        replicas=(1, 2, 3),
        isr=(2,),
        elr=(),
        last_known_elr=(),
        adding=(),
        removing=(),
        directories=(b"d" * 16,) * 3,
    )
    assert [(one.kind, one.before.partition_epoch, one.after.partition_epoch) for one in cluster.metadata_changes] == [
        ("partition", 0, 1),
        ("partition", 1, 2),
    ]
    assert cluster.metadata_changes[0].active == {1, 2, 3}
    assert cluster.metadata.end_offset == cluster.committed_end_offset


def test_a_transaction_takes_effect_with_its_end_or_not_at_all() -> None:
    cluster = MetadataCluster()
    begin = MetadataRecord(begin_transaction=BeginTransactionRecord(name="x"))
    cluster.records(begin, topic("a"))
    assert (cluster.metadata.topics, cluster.metadata.end_offset) == ({}, 0)
    cluster.records(MetadataRecord(end_transaction=EndTransactionRecord()))
    assert (list(cluster.metadata.topics.values()), cluster.metadata.end_offset) == (["a"], 3)
    cluster.records(begin, topic("b", b"b" * 16), MetadataRecord(abort_transaction=AbortTransactionRecord()))
    assert list(cluster.metadata.topics.values()) == ["a"]


@pytest.mark.parametrize(
    "record",
    [
        topic(),
        topic("other"),
        topic("clicks", b"o" * 16),
        change(isr=[1]),
        MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=b"o" * 16)),
        fenced(2, 0),
        fenced(1, 7),
        MetadataRecord(
            remote_log_segment_metadata_update=RemoteLogSegmentMetadataUpdateRecord(
                topic_id=TOPIC_ID, segment_id=b"s" * 16, state=1
            )
        ),
        MetadataRecord(
            remote_log_segment_metadata=RemoteLogSegmentMetadataRecord(topic_id=TOPIC_ID, segment_id=b"s" * 16, state=1)
        ),
    ],
)
def test_a_record_that_cannot_be_is_found(record: MetadataRecord) -> None:
    cluster = MetadataCluster()
    cluster.records(topic(), register(1, 1))
    with violates(cluster.log_keeper):
        cluster.records(record)


def test_segments_go_from_state_to_state() -> None:
    def segment(state: int) -> MetadataRecord:
        update = RemoteLogSegmentMetadataUpdateRecord(topic_id=TOPIC_ID, segment_id=b"s" * 16, state=state)
        return MetadataRecord(remote_log_segment_metadata_update=update)

    cluster = MetadataCluster()
    begun = RemoteLogSegmentMetadataRecord(
        topic_id=TOPIC_ID, segment_id=b"s" * 16, end_offset=9, segment_leader_epochs=[SegmentLeaderEpoch()]
    )
    cluster.records(topic(), MetadataRecord(remote_log_segment_metadata=begun))
    cluster.records(segment(1))
    cluster.records(segment(2))
    with violates(cluster.log_keeper):
        cluster.records(segment(1))
