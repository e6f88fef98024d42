"""The plain model of tiered storage: step by step, and against the tables after any history."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from kraftlog.sim.quorum.invariants.metadata_rows import rows_in, tiering_rows
from kraftlog.sim.quorum.model.keys import Contradiction
from kraftlog.sim.quorum.model.tiering import (
    DELETED,
    DELETING,
    FINISHED,
    MARKED,
    REMOVAL_FINISHED,
    REMOVAL_STARTED,
    STARTED,
    TieringModel,
)
from kraftpb.v1.metadata_pb2 import (
    MetadataRecord,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpoch,
)
from tests.effort import examples
from tests.statemachine.replay.test_replay_tiering import PARTITION, Model, histories
from tests.statemachine.states import metadata

KEY = (b"t" * 16, 0)


class Story:
    """One partition's segments; each is called by its number."""

    def __init__(self) -> None:
        self.tiering = TieringModel()

    def copy(self, number: int, end_offset: int, starts: dict[int, int]) -> None:
        """`starts` says where each leader epoch begins in it; the segment, where the first one does."""
        begun = RemoteLogSegmentMetadataRecord(
            topic_id=KEY[0],
            segment_id=_id(number),
            start_offset=min(starts.values(), default=0),
            end_offset=end_offset,
            segment_leader_epochs=[SegmentLeaderEpoch(leader_epoch=key, start_offset=at) for key, at in starts.items()],
        )
        self.tiering.begin_copy(0, begun)
        self.update(number, FINISHED)

    def update(self, number: int, state: int, custom_metadata: bytes | None = None) -> None:
        update = RemoteLogSegmentMetadataUpdateRecord(
            topic_id=KEY[0], segment_id=_id(number), state=state, custom_metadata=custom_metadata
        )
        self.tiering.update_copy(0, update)

    def remove(self, state: int) -> None:
        self.tiering.remove_partition(0, RemotePartitionDeleteMetadataRecord(topic_id=KEY[0], state=state))

    def found(self, leader_epoch: int) -> dict[int, int]:
        index = self.tiering.indexes[*KEY, leader_epoch]
        return {start: int.from_bytes(place[2], "big") for start, (place, _) in index.found.items()}

    def highest(self, leader_epoch: int) -> int | None:
        return self.tiering.indexes[*KEY, leader_epoch].highest_offset


def _id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_a_copy_takes_the_place_of_what_it_covers_in_an_epoch_and_of_what_begins_there() -> None:
    story = Story()
    story.copy(1, 9, {0: 0})
    story.copy(2, 19, {0: 10})
    story.copy(3, 29, {0: 20})
    story.copy(4, 19, {0: 0, 1: 15})  # in epoch 0 up to 14: what begins at 10 goes further
    assert (story.found(0), story.found(1)) == ({0: 4, 10: 2, 20: 3}, {15: 4})
    story.copy(5, 39, {0: 10})
    assert (story.found(0), story.highest(0)) == ({0: 4, 10: 5}, 39)
    story.copy(6, 9, {0: 0})
    assert (story.found(0), story.found(1), story.highest(0)) == ({0: 6, 10: 5}, {15: 4}, 39)
    assert {(int.from_bytes(place[2], "big"), epoch) for place, epoch in story.tiering.replaced} == {
        (1, 0),
        (2, 0),
        (3, 0),
        (4, 0),
    }


def test_what_is_deleted_is_not_found_and_what_it_replaced_does_not_come_back() -> None:
    story = Story()
    story.copy(1, 9, {0: 0})
    story.copy(2, 9, {0: 0})
    story.update(2, DELETING)
    story.update(1, FINISHED, b"anew")
    assert (story.found(0), story.highest(0)) == ({}, 9)
    assert [one.custom_metadata for one in story.tiering.segments.values()] == [b"anew", None]
    story.update(2, DELETED)
    assert [int.from_bytes(place[2], "big") for place in story.tiering.segments] == [1]


def test_with_the_partition_everything_goes_and_with_the_topic_how_far_it_was_copied() -> None:
    story = Story()
    story.copy(1, 9, {0: 0})
    story.tiering.remove_topic(KEY[0])
    assert (story.found(0), story.highest(0)) == ({0: 1}, None)
    story.remove(MARKED)
    story.remove(REMOVAL_STARTED)
    assert story.tiering.removals[KEY].state == REMOVAL_STARTED
    story.remove(REMOVAL_FINISHED)
    assert not any(tiering_rows(story.tiering).values())


@pytest.mark.parametrize("starts", [{}, {0: 0, 1: 0}, {0: 5, 1: 3}])
def test_a_segment_whose_epochs_cannot_be_is_found(starts: dict[int, int]) -> None:
    with pytest.raises(Contradiction):
        Story().copy(1, 9, starts)


def test_a_deletion_that_skips_a_state_is_found() -> None:
    story = Story()
    with pytest.raises(Contradiction):
        story.remove(REMOVAL_STARTED)


@settings(max_examples=examples(100), deadline=None)
@given(histories())
def test_the_tables_say_the_same_after_any_history(history: tuple[list[MetadataRecord], Model]) -> None:
    records = [record for record in history[0] if not _begins_again(record)]
    tiering = TieringModel()
    for record in records:
        match record.WhichOneof("record"):
            case "remote_log_segment_metadata":
                tiering.begin_copy(0, record.remote_log_segment_metadata)
            case "remote_log_segment_metadata_update":
                tiering.update_copy(0, record.remote_log_segment_metadata_update)
            case _:
                tiering.remove_partition(0, record.remote_partition_delete_metadata)
    expected = tiering_rows(tiering)
    state = metadata(*PARTITION, *records)
    found = rows_in(state.connection)
    assert {name: found[name] for name in expected} == expected


def _begins_again(record: MetadataRecord) -> bool:
    """Replay takes an update to STARTED, and no controller writes one: for the model it is a contradiction."""
    return (
        record.HasField("remote_log_segment_metadata_update")
        and record.remote_log_segment_metadata_update.state == STARTED
    )
