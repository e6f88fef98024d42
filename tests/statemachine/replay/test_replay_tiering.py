"""Replay of the records of tiered storage: TS-60 rule by rule, and any history against a naive index like Kafka's."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpb.v1.metadata_pb2 import MetadataRecord, RemoteLogSegmentMetadataRecord
from statemachine.query.remote_log_queries import find_segment, highest_offset, list_segments, size_bytes
from statemachine.replay.replay import ReplayError
from statemachine.store.store import MetadataStore
from statemachine.tables.catalogue import TABLES
from statemachine.tables.remote_log_tables import (
    REMOTE_EPOCH_ENDS,
    REMOTE_PARTITION_DELETES,
    REMOTE_SEGMENT_EPOCHS,
    REMOTE_SEGMENTS,
)
from tests.effort import examples
from tests.statemachine.builders import CLUSTER_ID, an_id, log_of, partition, remove_topic, topic
from tests.statemachine.remote_logs import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    MARKED,
    STARTED,
    TOPIC_ID,
    added,
    copied,
    deleting,
    segment,
    updated,
)
from tests.statemachine.snapshots import filled, load, posix_snapshots, snapshot_of
from tests.statemachine.states import Metadata, database_of, metadata

PARTITION = (topic("a", 1), partition(1))
TIERED = (REMOTE_SEGMENTS, REMOTE_SEGMENT_EPOCHS, REMOTE_EPOCH_ENDS, REMOTE_PARTITION_DELETES)


def after(*records: MetadataRecord | list[MetadataRecord]) -> sqlite3.Connection:
    """A database with `records` committed, on the partition of a topic."""
    flat = [one for some in records for one in (some if isinstance(some, list) else [some])]
    return database_of(*PARTITION, *flat)


def found(connection: sqlite3.Connection, epoch: int, offset: int) -> int | None:
    """The number of the segment that a lookup finds."""
    segment = find_segment(connection, TOPIC_ID, 0, epoch, offset)
    return None if segment is None else number_of(segment)


def listed(connection: sqlite3.Connection, epoch: int | None = None) -> list[int]:
    return [number_of(segment) for segment in list_segments(connection, TOPIC_ID, 0, epoch)]


def number_of(segment: RemoteLogSegmentMetadataRecord) -> int:
    return int.from_bytes(segment.segment_id, "big") - int.from_bytes(an_id(300), "big")


def rows(view: Any) -> dict[str, list[Any]]:
    """Everything of tiered storage, in a database or a view."""
    if isinstance(view, sqlite3.Connection):
        return {table.name: [record for _, record in table.find(view)] for table in TIERED}
    return {table.name: [record for _, record in view.find(table)] for table in TIERED}


def reloaded(connection: sqlite3.Connection) -> Metadata:
    """The same after a snapshot of the database is loaded."""
    kept = [table for table in TABLES if table.kind is not None]
    return Metadata().commit(*(table.to_record(record) for table in kept for _, record in table.find(connection)))


# --- TS-60, rule by rule ----------------------------------------------------------------------------------------------


def test_a_copy_that_has_begun_is_listed_and_not_found() -> None:
    connection = after(added(segment(1, 0, 9)))
    assert (found(connection, 0, 5), listed(connection)) == (None, [1])
    assert highest_offset(connection, TOPIC_ID, 0, 0) is None


def test_a_finished_copy_is_found_in_each_of_its_epochs_where_that_epoch_has_offsets() -> None:
    connection = after(copied(segment(1, 10, 29, {1: 10, 3: 20})))
    assert [found(connection, 1, offset) for offset in (9, 10, 19, 20)] == [None, 1, 1, None]
    assert [found(connection, 3, offset) for offset in (19, 20, 29, 30)] == [None, 1, 1, None]
    assert found(connection, 2, 15) is None
    assert [highest_offset(connection, TOPIC_ID, 0, epoch) for epoch in (1, 2, 3)] == [19, None, 29]


def test_a_finished_copy_takes_the_place_of_those_within_it() -> None:
    connection = after(copied(segment(1, 10, 19)), copied(segment(2, 20, 29)), copied(segment(3, 10, 29)))
    assert {found(connection, 0, offset) for offset in range(10, 30)} == {3}
    assert listed(connection, 0) == [1, 3, 2]


def test_it_takes_no_place_of_one_that_goes_further_or_begins_before() -> None:
    connection = after(copied(segment(1, 0, 14)), copied(segment(2, 20, 39)), copied(segment(3, 10, 29)))
    assert [found(connection, 0, offset) for offset in (9, 10, 19, 20, 39)] == [1, 3, 3, 2, 2]


def test_it_takes_the_place_of_a_longer_one_that_begins_at_the_same_offset() -> None:
    connection = after(copied(segment(1, 0, 19)), copied(segment(2, 0, 9)))
    assert [found(connection, 0, offset) for offset in (5, 15)] == [2, None]
    assert highest_offset(connection, TOPIC_ID, 0, 0) == 19


def test_it_takes_places_in_its_own_epochs_only() -> None:
    connection = after(copied(segment(1, 0, 19, {0: 0, 1: 10})), copied(segment(2, 0, 19, {0: 0})))
    assert (found(connection, 0, 5), found(connection, 1, 15)) == (2, 1)


def test_a_copy_that_has_only_begun_takes_no_place_and_loses_none() -> None:
    connection = after(added(segment(1, 0, 9)), copied(segment(2, 0, 9)), updated(1, COPY_FINISHED))
    assert found(connection, 0, 5) == 1


def test_a_segment_that_is_deleted_is_listed_until_that_is_finished_and_the_highest_offset_stays() -> None:
    records = [*copied(segment(1, 0, 9)), updated(1, DELETE_STARTED)]
    connection = after(records)
    assert (found(connection, 0, 5), listed(connection), listed(connection, 0)) == (None, [1], [1])
    connection = after(records, updated(1, DELETE_FINISHED))
    assert (listed(connection), listed(connection, 0)) == ([], [])
    assert highest_offset(connection, TOPIC_ID, 0, 0) == 9


def test_a_copy_that_failed_is_deleted_without_ever_being_found() -> None:
    connection = after(added(segment(1, 0, 9)), updated(1, DELETE_STARTED), updated(1, DELETE_FINISHED))
    assert rows(connection) == {table.name: [] for table in TIERED}


def test_those_whose_place_was_taken_do_not_come_back() -> None:
    connection = after(copied(segment(1, 0, 9)), copied(segment(2, 0, 9)), updated(2, DELETE_STARTED))
    assert (found(connection, 0, 5), size_bytes(connection, TOPIC_ID, 0)) == (None, 100)


def test_finishing_a_finished_copy_again_takes_no_place_again() -> None:
    connection = after(copied(segment(1, 0, 9)), copied(segment(2, 0, 9)), updated(1, COPY_FINISHED))
    assert found(connection, 0, 5) == 2


def test_an_update_keeps_the_custom_metadata_unless_it_has_its_own() -> None:
    first = segment(1, 0, 9, custom_metadata=b"here")
    with_other = updated(1, COPY_FINISHED)
    with_other.remote_log_segment_metadata_update.custom_metadata = b"there"
    for records, expected in (([updated(1, COPY_FINISHED)], b"here"), ([with_other], b"there")):
        (kept,) = list_segments(after(added(first), *records), TOPIC_ID, 0)
        assert (kept.custom_metadata, kept.broker_id, kept.event_timestamp_ms) == (expected, 2, 7)


# --- partitions -------------------------------------------------------------------------------------------------------


def test_segments_outlive_their_topic_until_the_deletion_of_the_partition_is_finished() -> None:
    state = metadata(
        *PARTITION, topic("b", 2), partition(2), *copied(segment(1, 0, 9)), *copied(segment(2, 0, 9, topic=2))
    )
    state.commit(remove_topic(1), deleting(MARKED))
    assert listed(state.connection) == [1]
    state.commit(deleting(STARTED), updated(1, DELETE_STARTED), deleting(FINISHED))
    assert listed(state.connection) == []
    assert {name: len(found) for name, found in rows(state.connection).items()} == {
        "remote_segments": 1,
        "remote_segment_epochs": 1,
        "remote_epoch_ends": 1,
        "remote_partition_deletes": 0,
    }


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([updated(1, COPY_FINISHED)], "from none to COPY_FINISHED"),
        ([*copied(segment(1, 0, 9)), updated(1, COPY_STARTED)], "from COPY_FINISHED to COPY_STARTED"),
        ([*copied(segment(1, 0, 9)), updated(1, DELETE_FINISHED)], "from COPY_FINISHED to DELETE_FINISHED"),
        ([*copied(segment(1, 0, 9)), updated(1, 9)], "from COPY_FINISHED to 9"),
        ([*copied(segment(1, 0, 9)), added(segment(1, 0, 9))], "another with that id is in state COPY_FINISHED"),
        ([added(segment(1, 0, 9)), added(segment(1, 0, 8))], "another with that id is in state COPY_STARTED"),
        ([added(segment(1, 0, 9, state=DELETE_FINISHED))], "in state DELETE_FINISHED, in which no segment begins"),
        ([added(segment(1, 0, 9, {0: 5, 1: 5}))], "do not start one after the other"),
        ([added(RemoteLogSegmentMetadataRecord(topic_id=TOPIC_ID, segment_id=b"x"))], "does not have 16 bytes"),
        ([deleting(FINISHED)], "from none to DELETE_PARTITION_FINISHED"),
        ([deleting(7)], "from none to 7"),
        ([deleting(MARKED), deleting(FINISHED)], "from DELETE_PARTITION_MARKED to DELETE_PARTITION_FINISHED"),
    ],
)
def test_what_cannot_be_is_refused(records: list[MetadataRecord], words: str) -> None:
    with pytest.raises(ReplayError, match=words):
        after(records)


# --- any history ------------------------------------------------------------------------------------------------------


@dataclass
class EpochIndex:
    """Kafka's RemoteLogLeaderEpochState as TS-60 describes it."""

    referenced: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By start offset: the end offset and the number of the segment."""
    unreferenced: set[int] = field(default_factory=set)
    highest: int | None = None

    def finish(self, start: int, end: int, number: int) -> None:
        for key, (its_end, other) in list(self.referenced.items()):
            if key == start or (key >= start and its_end <= end):
                del self.referenced[key]
                self.unreferenced.add(other)
        self.referenced[start] = (end, number)
        self.unreferenced.discard(number)
        self.highest = end if self.highest is None else max(self.highest, end)

    def begin_delete(self, start: int, number: int) -> None:
        if start in self.referenced and self.referenced[start][1] == number:
            del self.referenced[start]
        self.unreferenced.add(number)

    def find(self, offset: int) -> int | None:
        floor = max((start for start in self.referenced if start <= offset), default=None)
        if floor is None or offset > self.referenced[floor][0]:
            return None
        return self.referenced[floor][1]


class Model:
    """The remote segments of one partition, kept in the simplest possible way."""

    def __init__(self) -> None:
        self.epochs: dict[int, EpochIndex] = {}
        self.states: dict[int, int] = {}

    def become(self, record: RemoteLogSegmentMetadataRecord, state: int) -> None:
        number, before = number_of(record), self.states.get(number_of(record))
        starts = [(entry.leader_epoch, entry.start_offset) for entry in record.segment_leader_epochs]
        ends = [start - 1 for _, start in starts[1:]] + [record.end_offset]
        for (epoch, start), end in zip(starts, ends, strict=True):
            index = self.epochs.setdefault(epoch, EpochIndex())
            if state == COPY_STARTED:
                index.unreferenced.add(number)
            elif state == COPY_FINISHED and before != COPY_FINISHED:
                index.finish(start, end, number)
            elif state == DELETE_STARTED:
                index.begin_delete(start, number)
            elif state == DELETE_FINISHED:
                index.unreferenced.discard(number)
        self.states[number] = state
        if state == DELETE_FINISHED:
            del self.states[number]

    def clear(self) -> None:
        self.epochs.clear()
        self.states.clear()


EPOCHS, OFFSETS = range(7), range(22)


@st.composite
def copies(draw: st.DrawFn, number: int) -> RemoteLogSegmentMetadataRecord:
    start = draw(st.integers(0, 12))
    end = draw(st.integers(start, start + 8))
    cuts = draw(st.sets(st.integers(start + 1, end), max_size=2)) if end > start else set()
    epoch = draw(st.integers(0, 2))
    epochs = {}
    for at in (start, *sorted(cuts)):
        epochs[epoch] = at
        epoch += draw(st.integers(1, 2))
    return segment(number, start, end, epochs)


NEXT_STATES: Final[dict[int | None, list[int]]] = {
    None: [COPY_STARTED],
    COPY_STARTED: [COPY_FINISHED, COPY_FINISHED, COPY_FINISHED, COPY_STARTED, DELETE_STARTED],
    COPY_FINISHED: [DELETE_STARTED, COPY_FINISHED],
    DELETE_STARTED: [DELETE_FINISHED, DELETE_STARTED],
}


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[MetadataRecord], Model]:
    segments = [draw(copies(number)) for number in range(draw(st.integers(1, 6)))]
    model, records = Model(), []
    for _ in range(draw(st.integers(1, 24))):
        if draw(st.integers(0, 40)) == 0:
            records += [deleting(MARKED), deleting(MARKED), deleting(STARTED), deleting(FINISHED)]
            model.clear()
            continue
        chosen = draw(st.sampled_from(segments))
        before = model.states.get(number_of(chosen))
        state = draw(st.sampled_from(NEXT_STATES[before]))
        records.append(added(chosen) if before is None else updated(number_of(chosen), state))
        model.become(chosen, state)
    return records, model


def check_lookups(connection: sqlite3.Connection, model: Model) -> None:
    for epoch in EPOCHS:
        index = model.epochs.get(epoch, EpochIndex())
        assert [found(connection, epoch, offset) for offset in OFFSETS] == [index.find(offset) for offset in OFFSETS]
        assert highest_offset(connection, TOPIC_ID, 0, epoch) == index.highest
        known = index.unreferenced | {number for _, number in index.referenced.values()}
        assert set(listed(connection, epoch)) == known
    assert set(listed(connection)) == set(model.states)


@settings(max_examples=examples(300), deadline=None)
@given(histories(), st.integers(0, 24), st.integers(1, 5))
def test_lookups_are_kafkas_after_any_history_however_it_is_taken_in(
    history: tuple[list[MetadataRecord], Model], committed: int, run: int
) -> None:
    records, model = history
    by_changes = metadata(*PARTITION, *records)
    check_lookups(by_changes.connection, model)

    by_overlay = metadata(*PARTITION, *records[:committed])
    for index in range(committed, len(records), run):
        by_overlay.append(records[index : index + run])
    assert rows(by_overlay.overlay) == rows(by_changes.connection)

    in_runs = metadata(*PARTITION)
    for index in range(0, len(records), run):
        in_runs.commit(*records[index : index + run])
    assert rows(in_runs.connection) == rows(by_changes.connection)

    loaded = reloaded(by_changes.connection)
    check_lookups(loaded.connection, model)
    assert rows(loaded.connection) == rows(by_changes.connection)


@settings(max_examples=examples(100), deadline=None)
@given(histories(), st.integers(0, 24))
def test_a_snapshot_in_the_middle_makes_no_difference(history: tuple[list[MetadataRecord], Model], before: int) -> None:
    records, model = history
    earlier = metadata(*PARTITION, *records[:before])
    resumed = reloaded(earlier.connection).commit(*records[before:])
    check_lookups(resumed.connection, model)


def test_a_snapshot_file_keeps_what_lookups_find(tmp_path: Path) -> None:
    runs = [
        [*PARTITION, *copied(segment(1, 0, 19, {0: 0, 1: 10})), *copied(segment(2, 0, 9)), added(segment(3, 20, 29))],
        [*copied(segment(4, 30, 39)), updated(4, DELETE_STARTED), updated(4, DELETE_FINISHED)],
    ]
    snapshots = posix_snapshots(tmp_path / "snapshots")
    with (
        closing(filled(tmp_path / "old.db", log_of(runs))) as old,
        closing(MetadataStore.open(tmp_path / "new.db", CLUSTER_ID)) as new,
    ):
        with snapshots.open(snapshot_of(old, snapshots)) as reader:
            load(new, reader)
        assert rows(new.reader) == rows(old.reader)
        assert [found(new.reader, epoch, offset) for epoch, offset in ((0, 5), (1, 15), (0, 25))] == [2, 1, None]
        assert highest_offset(new.reader, TOPIC_ID, 0, 0) == 39
