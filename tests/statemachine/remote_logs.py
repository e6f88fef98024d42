"""Records of tiered storage for tests, in one line each; partition 0 of topic 1 unless another is given."""

from __future__ import annotations

from collections.abc import Mapping

from kraftpb.v1.metadata_pb2 import (
    MetadataRecord,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpoch,
)
from statemachine.words.remote_log_states import PartitionDeleteState, SegmentState
from tests.statemachine.builders import an_id

TOPIC_ID = an_id(1)

COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED = SegmentState
MARKED, STARTED, FINISHED = PartitionDeleteState


def segment(
    number: int,
    start_offset: int,
    end_offset: int,
    epochs: Mapping[int, int] | None = None,
    *,
    state: int = COPY_STARTED,
    custom_metadata: bytes | None = None,
    topic: int = 1,
    partition_id: int = 0,
) -> RemoteLogSegmentMetadataRecord:
    """A copy of the offsets from start to end, inclusive; of epoch 0 unless `epochs` has where each begins."""
    starts = {0: start_offset} if epochs is None else epochs
    return RemoteLogSegmentMetadataRecord(
        topic_id=an_id(topic),
        partition_id=partition_id,
        segment_id=an_id(300 + number),
        start_offset=start_offset,
        end_offset=end_offset,
        broker_id=1,
        max_timestamp_ms=5,
        event_timestamp_ms=6,
        segment_leader_epochs=[SegmentLeaderEpoch(leader_epoch=key, start_offset=at) for key, at in starts.items()],
        segment_size_bytes=10 * (end_offset - start_offset + 1),
        custom_metadata=custom_metadata,
        state=state,
    )


def update(
    number: int, state: int, *, custom_metadata: bytes | None = None, topic: int = 1, partition_id: int = 0
) -> RemoteLogSegmentMetadataUpdateRecord:
    return RemoteLogSegmentMetadataUpdateRecord(
        topic_id=an_id(topic),
        partition_id=partition_id,
        segment_id=an_id(300 + number),
        broker_id=2,
        event_timestamp_ms=7,
        custom_metadata=custom_metadata,
        state=state,
    )


def partition_delete(state: int, *, topic: int = 1, partition_id: int = 0) -> RemotePartitionDeleteMetadataRecord:
    return RemotePartitionDeleteMetadataRecord(
        topic_id=an_id(topic), partition_id=partition_id, broker_id=1, event_timestamp_ms=8, state=state
    )


def added(record: RemoteLogSegmentMetadataRecord) -> MetadataRecord:
    return MetadataRecord(remote_log_segment_metadata=record)


def updated(number: int, state: int, *, topic: int = 1, partition_id: int = 0) -> MetadataRecord:
    return MetadataRecord(
        remote_log_segment_metadata_update=update(number, state, topic=topic, partition_id=partition_id)
    )


def deleting(state: int, *, topic: int = 1, partition_id: int = 0) -> MetadataRecord:
    return MetadataRecord(
        remote_partition_delete_metadata=partition_delete(state, topic=topic, partition_id=partition_id)
    )


def copied(record: RemoteLogSegmentMetadataRecord) -> list[MetadataRecord]:
    """The records of a copy that was begun and finished."""
    number = int.from_bytes(record.segment_id, "big") - int.from_bytes(an_id(300), "big")
    topic = int.from_bytes(record.topic_id, "big") - int.from_bytes(an_id(0), "big")
    return [added(record), updated(number, COPY_FINISHED, topic=topic, partition_id=record.partition_id)]
