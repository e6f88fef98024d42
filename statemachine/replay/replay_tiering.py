"""How the records of tiered storage change the metadata (KIP-405; TS-60 to TS-62).

A segment spans leader epochs. In each of them a copy that is finished is referenced: lookups find it, if it is the one
that starts last at or below an offset. In that epoch it replaces every other copy that starts no earlier and ends no
later, or starts at the same offset. Replaced copies stay listed, unreferenced, until they are deleted; they do not
return when the segment that replaced them is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from kraftbase.ids import ID_BYTES
from kraftpb.v1.metadata_pb2 import (
    RemoteLogEpochEndRecord,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from statemachine.replay.view import InvalidRecord, View
from statemachine.tables.remote_log_tables import (
    REMOTE_EPOCH_ENDS,
    REMOTE_PARTITION_DELETES,
    REMOTE_SEGMENT_EPOCHS,
    REMOTE_SEGMENTS,
    SegmentInEpoch,
)
from statemachine.words.remote_log_states import (
    PartitionDeleteState,
    SegmentState,
    partition_may_become,
    partition_state_name,
    segment_may_become,
    segment_state_name,
)


class EpochRange(NamedTuple):
    """The offsets of one leader epoch within a segment."""

    leader_epoch: int
    start_offset: int
    end_offset: int
    """Inclusive."""


def epoch_ranges(segment: RemoteLogSegmentMetadataRecord) -> Iterator[EpochRange]:
    """The offsets of the segment in each of its leader epochs."""
    epochs = segment.segment_leader_epochs
    for index, entry in enumerate(epochs):
        end = epochs[index + 1].start_offset - 1 if index + 1 < len(epochs) else segment.end_offset
        yield EpochRange(entry.leader_epoch, entry.start_offset, end)


_STORED_STATES: Final = (SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED)
"""A segment whose deletion is finished is not stored."""


def segment(view: View, record: RemoteLogSegmentMetadataRecord) -> None:
    """A copy begins; or, in a snapshot, a segment in its state: the record does not distinguish the two."""
    what = f"adds remote segment {record.segment_id.hex()} in state {segment_state_name(record.state)}"
    _check_ids(what, record.topic_id, record.segment_id)
    if record.state not in _STORED_STATES:
        raise InvalidRecord(f"{what}, in which no segment begins")
    before = view.get(REMOTE_SEGMENTS, (record.topic_id, record.partition_id, record.segment_id))
    if before is not None and before != record:  # the epochs of the old segment would stay, and lookups would find it
        raise InvalidRecord(f"{what}, but another with that id is in state {segment_state_name(before.state)}")
    if any(later.start_offset <= part.start_offset for part, later in pairwise(epoch_ranges(record))):
        raise InvalidRecord(f"{what}, whose leader epochs do not start one after the other")
    view.put(REMOTE_SEGMENTS, record)
    is_finished = record.state == SegmentState.COPY_FINISHED
    for part, entry in zip(epoch_ranges(record), record.segment_leader_epochs, strict=True):
        view.put(REMOTE_SEGMENT_EPOCHS, _in_epoch(record, part, is_finished and not entry.unreferenced))


def segment_update(view: View, record: RemoteLogSegmentMetadataUpdateRecord) -> None:
    """A segment gets its next state. If it is in COPY_FINISHED already, it does not replace others again."""
    _check_ids(f"updates remote segment {record.segment_id.hex()}", record.topic_id, record.segment_id)
    key = (record.topic_id, record.partition_id, record.segment_id)
    before = view.get(REMOTE_SEGMENTS, key)
    if before is None or not segment_may_become(before.state, record.state):
        state = None if before is None else before.state
        raise InvalidRecord(
            f"takes remote segment {record.segment_id.hex()} from {segment_state_name(state)} to"
            f" {segment_state_name(record.state)}"
        )
    if record.state == SegmentState.DELETE_FINISHED:
        for part in epoch_ranges(before):
            view.remove(REMOTE_SEGMENT_EPOCHS, (*key[:2], part.leader_epoch, part.start_offset, key[2]))
        view.remove(REMOTE_SEGMENTS, key)
        return
    after = RemoteLogSegmentMetadataRecord()
    after.CopyFrom(before)
    after.state, after.broker_id, after.event_timestamp_ms = record.state, record.broker_id, record.event_timestamp_ms
    if record.HasField("custom_metadata"):
        after.custom_metadata = record.custom_metadata
    if record.state == SegmentState.COPY_FINISHED and before.state != SegmentState.COPY_FINISHED:
        for part in epoch_ranges(after):
            _take_place(view, after, part)
    is_finished = after.state == SegmentState.COPY_FINISHED
    view.put(REMOTE_SEGMENTS, after)
    for part, entry in zip(epoch_ranges(after), after.segment_leader_epochs, strict=True):
        view.put(REMOTE_SEGMENT_EPOCHS, _in_epoch(after, part, is_finished and not entry.unreferenced))


def _in_epoch(record: RemoteLogSegmentMetadataRecord, part: EpochRange, is_referenced: bool) -> SegmentInEpoch:
    return SegmentInEpoch(
        record.topic_id,
        record.partition_id,
        part.leader_epoch,
        part.start_offset,
        record.segment_id,
        part.end_offset,
        is_referenced,
    )


# Consider leader epochs 3, with offsets 0 to 299, and 4, from 300 on. The leader of epoch 3 has copied A, 0 to 99, and
# B, 100 to 199. The leader of epoch 4 has longer segments and copies D, 100 to 349; its part of epoch 3 is 100 to 299.
#
# When D is finished it replaces B in epoch 3: B starts where D does and ends earlier. A starts before D and
# stays. A look-up of (epoch 3, offset 50) finds A, (3, 150) finds D, (4, 320) finds D, (3, 320) finds nothing. B is
# still listed, so that it can be deleted. When D is deleted B does not return: the broker that deletes D has moved the
# log's start past D before.
#
# Now the old leader of epoch 3 finishes a copy late: E, 200 to 279. No copy starts within E, so E replaces none, but
# it starts later than D. So (3, 250) finds E, and (3, 290) finds nothing, although D has it: only the copy that starts
# last at or below the offset is considered (TS-61). Kafka's look-ups do the same.
#
# Kafka differs where the epoch continues after the new copy. Consider A, 0 to 9, B, 10 to 19, and C, 20 to 29, and then
# D, 0 to 19. Here D replaces A and B. Kafka replaces copies only if the new one reaches the epoch's highest offset, 29:
# there D replaces A, which starts at the same offset, and B is still found. Both have the same records.
def _take_place(view: View, finished: RemoteLogSegmentMetadataRecord, part: EpochRange) -> None:
    """Let lookups in that epoch find `finished` from now on, where they found others that it covers (TS-60)."""
    partition = (finished.topic_id, finished.partition_id)
    in_epoch = (*partition, part.leader_epoch)
    # No id is below "": these are all that start within that part, mostly none, of the many that an epoch may have
    # before and after it. A segment that starts after it also ends after it.
    from_start, last_start = (*in_epoch, part.start_offset, ""), max(part.start_offset, part.end_offset)
    within = view.find(REMOTE_SEGMENT_EPOCHS, in_epoch, from_start, end=(*in_epoch, last_start))
    for _, other in list(within):
        is_covered = other.end_offset <= part.end_offset
        if not other.is_referenced or not (is_covered or other.start_offset == part.start_offset):
            continue
        view.put(REMOTE_SEGMENT_EPOCHS, other._replace(is_referenced=False))
        owner = view.get(REMOTE_SEGMENTS, (*partition, other.segment_id))
        if owner is not None:
            copy = RemoteLogSegmentMetadataRecord()
            copy.CopyFrom(owner)
            for entry in copy.segment_leader_epochs:
                entry.unreferenced |= entry.leader_epoch == part.leader_epoch
            view.put(REMOTE_SEGMENTS, copy)
    end = view.get(REMOTE_EPOCH_ENDS, (*partition, part.leader_epoch))
    if end is None or end.highest_offset < part.end_offset:
        view.put(
            REMOTE_EPOCH_ENDS,
            RemoteLogEpochEndRecord(
                topic_id=finished.topic_id,
                partition_id=finished.partition_id,
                leader_epoch=part.leader_epoch,
                highest_offset=part.end_offset,
            ),
        )


def partition_delete(view: View, record: RemotePartitionDeleteMetadataRecord) -> None:
    """The deletion of a partition's remote data advances; at its end, none of the data is left."""
    what = f"takes the deletion of partition {record.partition_id} of topic {record.topic_id.hex()}"
    _check_ids(what, record.topic_id)
    partition = (record.topic_id, record.partition_id)
    before = view.get(REMOTE_PARTITION_DELETES, partition)
    state = None if before is None else before.state
    is_as_it_stood = before is None and record.state == PartitionDeleteState.DELETE_PARTITION_STARTED  # in a snapshot
    if not (is_as_it_stood or partition_may_become(state, record.state)):
        raise InvalidRecord(f"{what} from {partition_state_name(state)} to {partition_state_name(record.state)}")
    if record.state != PartitionDeleteState.DELETE_PARTITION_FINISHED:
        view.put(REMOTE_PARTITION_DELETES, record)
        return
    view.remove_all(REMOTE_SEGMENTS, partition)
    view.remove_all(REMOTE_SEGMENT_EPOCHS, partition)
    view.remove_all(REMOTE_EPOCH_ENDS, partition)
    view.remove_all(REMOTE_PARTITION_DELETES, partition)


def _check_ids(what: str, *ids: bytes) -> None:
    if any(len(value) != ID_BYTES for value in ids):
        raise InvalidRecord(f"{what}, with an id that does not have {ID_BYTES} bytes")
