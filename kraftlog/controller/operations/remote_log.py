"""The records of a remote log metadata manager (KIP-405, TS-56 to TS-58): from a record that it sends and the latest
state to the records to append. Nothing changes here; a refused record yields none (TS-59). A retried record, which
changes nothing, yields none either. Which broker sends a record is not checked, nor whether it is registered: a broker
that has lost the leadership finishes its copy (TS-30).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from kraftbase.errors import ApiError, ErrorCode, invalid_request
from kraftbase.ids import ID_BYTES, id_to_text
from kraftpb.v1.metadata_pb2 import (
    MetadataRecord,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpoch,
)
from statemachine.metadata.state import MetadataState
from statemachine.words.names import quoted
from statemachine.words.remote_log_states import (
    PartitionDeleteState,
    SegmentState,
    partition_may_become,
    partition_state_name,
    segment_may_become,
    segment_state_name,
)

CUSTOM_METADATA_BYTES_MAX: Final = 128
"""Kafka's remote.log.metadata.custom.metadata.max.bytes, by its default (TS-43)."""

LEADER_EPOCHS_MAX: Final = 500
"""At most this many leader epochs per segment: each is a row."""


# --- segments ---------------------------------------------------------------------------------------------------------


def add_segment(state: MetadataState, request: RemoteLogSegmentMetadataRecord) -> list[MetadataRecord]:
    """The record that the copy of a segment has begun.

    A partition that is being deleted still accepts segments, so that a late copy is found and deleted. Nothing is kept
    of a segment whose deletion is finished: a late attempt to add it adds it again, as an unfinished copy, which a
    broker has to delete again. Raises ApiError: INVALID_REQUEST for a state other than COPY_STARTED, for offsets,
    epochs, sizes or ids that are not valid, and for another segment under a known id; UNKNOWN_TOPIC_ID or
    UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist.
    """
    what = _segment_name(request)
    if request.state != SegmentState.COPY_STARTED:
        raise invalid_request(
            f"{what} is added in state {segment_state_name(request.state)}; add it in COPY_STARTED, then update it"
        )
    _check_offsets(what, request)
    _check_leader_epochs(what, request)
    _check_custom_metadata(what, request)
    _check_partition(state, request.topic_id, request.partition_id)
    before = state.remote_segment(request.topic_id, request.partition_id, request.segment_id)
    if before is None:
        return [MetadataRecord(remote_log_segment_metadata=request)]
    if not segment_may_become(before.state, request.state):
        raise _illegal_transition(what, segment_state_name(before.state), segment_state_name(request.state))
    if before != request:
        raise invalid_request(
            f"{what} already exists, from {before.start_offset} to {before.end_offset} by broker {before.broker_id},"
            " and differs; give each copy, and each further attempt, an id of its own"
        )
    return []


def update_segment(state: MetadataState, request: RemoteLogSegmentMetadataUpdateRecord) -> list[MetadataRecord]:
    """The record that sets a segment's next state, or gives it other custom metadata in the same state.

    Without custom metadata it keeps its present one. Raises ApiError: RESOURCE_NOT_FOUND (Kafka's
    RemoteResourceNotFoundException) for an unknown segment; when its deletion is finished it is unknown, also for a
    repeated request. INVALID_REQUEST for COPY_STARTED, for a state that cannot follow its present one, and for ids or
    custom metadata that are not valid.
    """
    what = _segment_name(request)
    if request.state == SegmentState.COPY_STARTED:
        raise invalid_request(f"{what} is updated to COPY_STARTED, in which a segment can only be added")
    _check_custom_metadata(what, request)
    before = state.remote_segment(request.topic_id, request.partition_id, request.segment_id)
    if before is None:
        raise ApiError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"RemoteResourceNotFound: {what} is not known: it was never added, or its deletion is finished",
        )
    if not segment_may_become(before.state, request.state):
        raise _illegal_transition(what, segment_state_name(before.state), segment_state_name(request.state))
    is_news = request.HasField("custom_metadata") and request.custom_metadata != before.custom_metadata
    if before.state == request.state and not is_news:
        return []
    return [MetadataRecord(remote_log_segment_metadata_update=request)]


def _check_offsets(what: str, segment: RemoteLogSegmentMetadataRecord) -> None:
    if not 0 <= segment.start_offset <= segment.end_offset:
        raise invalid_request(
            f"{what} goes from offset {segment.start_offset} to {segment.end_offset}; both must be at least 0, and the"
            " last, which is in the segment, no less than the first"
        )
    if segment.segment_size_bytes < 0:
        raise invalid_request(f"{what} has {segment.segment_size_bytes} bytes; give its size, at least 0")


def _check_leader_epochs(what: str, segment: RemoteLogSegmentMetadataRecord) -> None:
    """Every offset has one leader epoch, and every epoch has an offset: lookups depend on that (TS-51)."""
    epochs = segment.segment_leader_epochs
    if not 0 < len(epochs) <= LEADER_EPOCHS_MAX:
        raise invalid_request(
            f"{what} has {len(epochs)} leader epochs; give those of its offsets, 1 to {LEADER_EPOCHS_MAX}"
        )
    if any(entry.unreferenced for entry in epochs):
        raise invalid_request(f"{what} has leader epochs marked unreferenced, which only snapshots may have")
    first, last = epochs[0], epochs[-1]
    if first.leader_epoch < 0 or first.start_offset != segment.start_offset:
        raise invalid_request(
            f"{what} begins at offset {segment.start_offset}, but its first leader epoch {_entry(first)}; the epoch of"
            " the first offset must begin right there, and be at least 0"
        )
    for entry, later in pairwise(epochs):
        if entry.leader_epoch >= later.leader_epoch or entry.start_offset >= later.start_offset:
            raise invalid_request(
                f"{what}: leader epoch {_entry(entry)} and the next one {_entry(later)}; epochs and offsets must both"
                " go up; leave out epochs without offsets"
            )
    if last.start_offset > segment.end_offset:
        raise invalid_request(
            f"{what} ends with offset {segment.end_offset}, but leader epoch {_entry(last)}, after that"
        )


def _entry(entry: SegmentLeaderEpoch) -> str:
    return f"{entry.leader_epoch} begins at {entry.start_offset}"


def _check_custom_metadata(
    what: str, request: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord
) -> None:
    if len(request.custom_metadata) > CUSTOM_METADATA_BYTES_MAX:
        raise invalid_request(
            f"{what} has {len(request.custom_metadata)} bytes of custom metadata; at most"
            f" {CUSTOM_METADATA_BYTES_MAX} are accepted: keep the rest with the segment"
        )


def _segment_name(request: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord) -> str:
    """The name that messages use for the segment. Raises ApiError(INVALID_REQUEST) for ids that are not valid."""
    _check_id("segment", request.segment_id)
    where = _partition_name(request.topic_id, request.partition_id)
    return f"remote segment {id_to_text(request.segment_id)} of {where}"


# --- partitions -------------------------------------------------------------------------------------------------------


def put_partition_delete(state: MetadataState, request: RemotePartitionDeleteMetadataRecord) -> list[MetadataRecord]:
    """The record that sets the next state of the deletion of a partition's remote data.

    A partition is marked when its topic is deleted (TS-71): one that exists cannot be. A request that finishes a
    deletion may be repeated (TS-58); nothing is left of the first one, so it is accepted for any unknown partition.
    Raises ApiError: INVALID_REQUEST for a partition that exists, for a state that cannot follow the present one and for
    an id that is not valid; RESOURCE_NOT_FOUND if the partition to be marked has nothing in remote storage.
    """
    what = f"the deletion of {_partition_name(request.topic_id, request.partition_id)}"
    before = state.remote_partition_delete(request.topic_id, request.partition_id)
    current = None if before is None else before.state
    if current is None and request.state == PartitionDeleteState.DELETE_PARTITION_FINISHED and _is_gone(state, request):
        return []
    if not partition_may_become(current, request.state):
        raise _illegal_transition(what, partition_state_name(current), partition_state_name(request.state))
    if current == request.state:
        return []
    if current is None:
        _check_may_be_marked(state, request)
    return [MetadataRecord(remote_partition_delete_metadata=request)]


def _is_gone(state: MetadataState, request: RemotePartitionDeleteMetadataRecord) -> bool:
    """Whether neither the topic nor any of the partition's data in remote storage is left."""
    return state.topic_name(request.topic_id) is None and not state.remote_segments(
        request.topic_id, request.partition_id, limit=1
    )


def _check_may_be_marked(state: MetadataState, request: RemotePartitionDeleteMetadataRecord) -> None:
    where = _partition_name(request.topic_id, request.partition_id)
    if state.partition(request.topic_id, request.partition_id) is not None:
        name = quoted(state.topic_name(request.topic_id) or "")
        raise invalid_request(
            f"{where} cannot become {PartitionDeleteState.DELETE_PARTITION_MARKED.name}: topic {name} exists;"
            " delete the topic first, or delete single segments"
        )
    if not state.remote_segments(request.topic_id, request.partition_id, limit=1):
        raise ApiError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"RemoteResourceNotFound: {where} has no remote segments; there is nothing to delete",
        )


def _check_partition(state: MetadataState, topic_id: bytes, partition_id: int) -> None:
    if (
        state.partition(topic_id, partition_id) is not None
        or state.remote_partition_delete(topic_id, partition_id) is not None
    ):
        return
    name = state.topic_name(topic_id)
    if name is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {id_to_text(topic_id)}")
    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {quoted(name)} has no partition {partition_id}")


def _partition_name(topic_id: bytes, partition_id: int) -> str:
    """The name that messages use for the partition. Raises ApiError(INVALID_REQUEST) for an id that is not valid."""
    _check_id("topic", topic_id)
    return f"partition {partition_id} of topic {id_to_text(topic_id)}"


def _check_id(what: str, value: bytes) -> None:
    if len(value) != ID_BYTES:
        raise invalid_request(f"the {what} id {value[:32].hex()!r} has {len(value)} bytes; ids have {ID_BYTES}")


def _illegal_transition(what: str, before: str, after: str) -> ApiError:
    return invalid_request(f"{what} cannot go from {before} to {after}")
