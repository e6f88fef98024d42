"""What a remote log metadata manager may write, and what is refused without a record."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.remote_log import add_segment, put_partition_delete, update_segment
from kraftpb.v1.metadata_pb2 import MetadataRecord, RemoteLogSegmentMetadataRecord, SegmentLeaderEpoch
from statemachine.words.remote_log_states import PartitionDeleteState, SegmentState
from tests.statemachine.builders import partition, remove_topic, topic
from tests.statemachine.remote_logs import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    MARKED,
    STARTED,
    added,
    copied,
    deleting,
    partition_delete,
    segment,
    update,
    updated,
)
from tests.statemachine.states import Metadata, metadata


def tiered(*records: MetadataRecord) -> Metadata:
    return metadata(topic("a", 1), partition(1), *records)


def in_state(state: SegmentState) -> Metadata:
    """A partition with segment 1 in that state."""
    way = {
        COPY_STARTED: [],
        COPY_FINISHED: [COPY_FINISHED],
        DELETE_STARTED: [COPY_FINISHED, DELETE_STARTED],
        DELETE_FINISHED: [COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED],
    }[state]
    return tiered(added(segment(1, 0, 9)), *(updated(1, step) for step in way))


def marked(*states: PartitionDeleteState) -> Metadata:
    """A deleted topic with a remote segment, and the deletion of its remote data in the last of these states."""
    return tiered(*copied(segment(1, 0, 9)), remove_topic(1), *(deleting(state) for state in states))


# --- add --------------------------------------------------------------------------------------------------------------


def test_a_segment_is_added_once_and_is_there_then() -> None:
    state = tiered()
    request = segment(1, 10, 29, {2: 10, 5: 20}, custom_metadata=b"x" * 128)
    records = add_segment(state, request)
    assert records == [MetadataRecord(remote_log_segment_metadata=request)]
    assert add_segment(state.append(records), request) == []


@pytest.mark.parametrize("other", [segment(1, 0, 8), segment(1, 0, 9, {1: 0}), segment(1, 0, 9, custom_metadata=b"")])
def test_another_segment_under_its_id_is_refused(other: RemoteLogSegmentMetadataRecord) -> None:
    with pytest.raises(ApiError, match="already exists, from 0 to 9 by broker 1") as refused:
        add_segment(tiered(added(segment(1, 0, 9))), other)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("state", [COPY_FINISHED, DELETE_STARTED])
def test_a_segment_that_is_further_on_is_not_added_again(state: SegmentState) -> None:
    with pytest.raises(ApiError, match=f"cannot go from {state.name} to COPY_STARTED"):
        add_segment(in_state(state), segment(1, 0, 9))


@pytest.mark.parametrize("state", [COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED, 9])
def test_a_segment_is_added_in_copy_started_only(state: int) -> None:
    with pytest.raises(ApiError, match="add it in COPY_STARTED"):
        add_segment(tiered(), segment(1, 0, 9, state=state))


@pytest.mark.parametrize(
    ("start", "end", "epochs", "words"),
    [
        (-1, 9, {0: -1}, "from offset -1 to 9"),
        (9, 8, {0: 9}, "from offset 9 to 8"),
        (0, 9, {}, "has 0 leader epochs"),
        (0, 999, {epoch: epoch for epoch in range(501)}, "has 501 leader epochs; give those of its offsets, 1 to 500"),
        (0, 9, {-1: 0}, "first leader epoch -1 begins at 0"),
        (5, 9, {0: 4}, "first leader epoch 0 begins at 4"),
        (5, 9, {0: 6}, "first leader epoch 0 begins at 6"),
        (5, 9, {1: 5, 0: 6}, "both go up"),
        (5, 9, {0: 5, 1: 5}, "leave out epochs without offsets"),
        (5, 9, {0: 5, 1: 8, 2: 7}, "both go up"),
        (5, 9, {0: 5, 1: 10}, "ends with offset 9, but leader epoch 1 begins at 10"),
    ],
)
def test_offsets_and_epochs_that_cannot_be_are_refused(
    start: int, end: int, epochs: Mapping[int, int], words: str
) -> None:
    with pytest.raises(ApiError, match=words) as refused:
        add_segment(tiered(), segment(1, start, end, epochs))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_segment_may_have_500_leader_epochs() -> None:
    assert add_segment(tiered(), segment(1, 0, 999, {epoch: epoch for epoch in range(500)}))


def test_a_segment_of_one_offset_may_be_added() -> None:
    assert add_segment(tiered(), segment(1, 7, 7))


def test_what_else_cannot_be_is_refused() -> None:
    """Custom metadata above 128 bytes among it (TS-43)."""
    unreferenced, twice, negative, short = (segment(1, 0, 9) for _ in range(4))
    unreferenced.segment_leader_epochs[0].unreferenced = True
    twice.segment_leader_epochs.append(SegmentLeaderEpoch(leader_epoch=0, start_offset=5))
    negative.segment_size_bytes = -1
    short.segment_id = b"short"
    for request, words in (
        (unreferenced, "which only snapshots may have"),
        (twice, "both go up"),
        (negative, "has -1 bytes"),
        (short, "the segment id '73686f7274' has 5 bytes"),
        (segment(1, 0, 9, custom_metadata=b"x" * 129), "129 bytes of custom metadata; at most 128"),
    ):
        with pytest.raises(ApiError, match=words) as refused:
            add_segment(tiered(), request)
        assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_the_partition_must_exist_unless_it_is_being_deleted() -> None:
    with pytest.raises(ApiError, match="'a' has no partition 1") as refused:
        add_segment(tiered(), segment(1, 0, 9, partition_id=1))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ApiError, match="no topic with the id") as refused:
        add_segment(tiered(remove_topic(1)), segment(1, 0, 9))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert add_segment(marked(MARKED), segment(2, 10, 19))


# --- update -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (COPY_STARTED, COPY_FINISHED),
        (COPY_STARTED, DELETE_STARTED),
        (COPY_FINISHED, DELETE_STARTED),
        (DELETE_STARTED, DELETE_FINISHED),
    ],
)
def test_legal_transitions_are_written(before: SegmentState, after: SegmentState) -> None:
    assert update_segment(in_state(before), update(1, after)) == [updated(1, after)]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (COPY_STARTED, DELETE_FINISHED, "from COPY_STARTED to DELETE_FINISHED"),
        (COPY_FINISHED, DELETE_FINISHED, "from COPY_FINISHED to DELETE_FINISHED"),
        (DELETE_STARTED, COPY_FINISHED, "from DELETE_STARTED to COPY_FINISHED"),
        (COPY_FINISHED, 9, "from COPY_FINISHED to 9"),
    ],
)
def test_illegal_transitions_are_refused_with_both_states(before: SegmentState, after: int, words: str) -> None:
    with pytest.raises(ApiError, match=f"cannot go {words}") as refused:
        update_segment(in_state(before), update(1, after))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("state", [COPY_FINISHED, DELETE_STARTED])
def test_the_same_state_again_is_written_only_with_other_custom_metadata(state: SegmentState) -> None:
    assert update_segment(in_state(state), update(1, state)) == []
    request = update(1, state, custom_metadata=b"news")
    records = update_segment(in_state(state), request)
    assert records == [MetadataRecord(remote_log_segment_metadata_update=request)]
    assert update_segment(in_state(state).append(records), request) == []


def test_a_segment_is_never_updated_to_copy_started() -> None:
    with pytest.raises(ApiError, match="can only be added"):
        update_segment(in_state(COPY_STARTED), update(1, COPY_STARTED))


def test_an_unknown_segment_is_named() -> None:
    for state, number in ((in_state(COPY_STARTED), 2), (in_state(DELETE_FINISHED), 1)):
        with pytest.raises(ApiError, match=r"RemoteResourceNotFound: remote segment .* of partition 0") as refused:
            update_segment(state, update(number, DELETE_FINISHED))
        assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND


def test_an_update_is_checked_as_an_addition_is() -> None:
    short = update(1, COPY_FINISHED)
    short.topic_id = b""
    for request, words in (
        (short, "the topic id '' has 0 bytes"),
        (update(1, COPY_FINISHED, custom_metadata=b"x" * 129), "129 bytes"),
    ):
        with pytest.raises(ApiError, match=words):
            update_segment(in_state(COPY_STARTED), request)


def test_a_segment_of_a_topic_that_is_gone_can_be_deleted() -> None:
    assert update_segment(marked(MARKED), update(1, DELETE_STARTED)) == [updated(1, DELETE_STARTED)]


# --- partitions -------------------------------------------------------------------------------------------------------


def test_the_deletion_of_a_partition_goes_on_step_by_step() -> None:
    state = marked()
    for step in (MARKED, STARTED, FINISHED):
        records = put_partition_delete(state, partition_delete(step))
        assert records == [deleting(step)]
        state.append(records)
        assert put_partition_delete(state, partition_delete(step)) == []  # its answer was lost
    assert state.remote_segments(segment(1, 0, 9).topic_id, 0) == []


@pytest.mark.parametrize(
    ("states", "after", "words"),
    [
        ([], STARTED, "from none to DELETE_PARTITION_STARTED"),
        ([], FINISHED, "from none to DELETE_PARTITION_FINISHED"),
        ([MARKED], FINISHED, "from DELETE_PARTITION_MARKED to DELETE_PARTITION_FINISHED"),
        ([MARKED, STARTED], MARKED, "from DELETE_PARTITION_STARTED to DELETE_PARTITION_MARKED"),
        ([MARKED, STARTED, FINISHED], STARTED, "from none to DELETE_PARTITION_STARTED"),
        ([MARKED], 9, "from DELETE_PARTITION_MARKED to 9"),
    ],
)
def test_illegal_steps_are_refused(states: list[PartitionDeleteState], after: int, words: str) -> None:
    with pytest.raises(ApiError, match=words) as refused:
        put_partition_delete(marked(*states), partition_delete(after))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_deletion_is_not_finished_while_the_topic_is_there() -> None:
    with pytest.raises(ApiError, match="from none to DELETE_PARTITION_FINISHED") as refused:
        put_partition_delete(tiered(), partition_delete(FINISHED))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_partition_of_a_topic_that_exists_is_not_marked() -> None:
    with pytest.raises(ApiError, match="topic 'a' exists; delete the topic first") as refused:
        put_partition_delete(tiered(*copied(segment(1, 0, 9))), partition_delete(MARKED))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_partition_without_remote_segments_is_not_marked() -> None:
    with pytest.raises(ApiError, match="nothing to delete") as refused:
        put_partition_delete(marked(), partition_delete(MARKED, partition_id=5))
    assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND
    short = partition_delete(MARKED)
    short.topic_id = b"x"
    with pytest.raises(ApiError, match="the topic id '78' has 1 bytes"):
        put_partition_delete(marked(), short)
