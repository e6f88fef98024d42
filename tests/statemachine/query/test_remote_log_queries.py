"""Lookups of remote segments: TS-61 and TS-62, in one partition among others."""

from __future__ import annotations

import sqlite3

import pytest

from statemachine.query.remote_log_queries import find_segment, highest_offset, list_segments, size_bytes
from tests.statemachine.builders import an_id, partition, topic
from tests.statemachine.remote_logs import (
    DELETE_STARTED,
    TOPIC_ID,
    added,
    copied,
    segment,
    updated,
)
from tests.statemachine.states import database_of


@pytest.fixture
def connection() -> sqlite3.Connection:
    """Five segments of partition 0 in all states, and others of another partition and another topic."""
    return database_of(
        topic("a", 1),
        partition(1),
        partition(1, 1),
        topic("b", 2),
        partition(2),
        *copied(segment(1, 0, 19, {0: 0, 2: 10})),
        *copied(segment(3, 40, 59, {3: 40})),
        *copied(segment(2, 20, 39, {2: 20, 3: 30})),
        added(segment(4, 60, 69, {3: 60})),
        *copied(segment(5, 5, 9, {0: 5})),
        updated(5, DELETE_STARTED),
        *copied(segment(6, 0, 99, partition_id=1)),
        *copied(segment(7, 0, 199, topic=2)),
    )


def found(connection: sqlite3.Connection, epoch: int, offset: int) -> bytes | None:
    segment = find_segment(connection, TOPIC_ID, 0, epoch, offset)
    return None if segment is None else segment.segment_id


def test_a_segment_is_found_within_its_part_of_the_epoch(connection: sqlite3.Connection) -> None:
    assert [found(connection, 2, offset) for offset in (9, 10, 20, 29, 30)] == [
        None,
        an_id(301),
        an_id(302),
        an_id(302),
        None,
    ]
    assert [found(connection, 3, offset) for offset in (29, 30, 40, 59, 60)] == [
        None,
        an_id(302),
        an_id(303),
        an_id(303),
        None,
    ]
    assert found(connection, 1, 15) is None


def test_only_the_copy_that_starts_last_is_asked() -> None:
    connection = database_of(topic("a", 1), *copied(segment(1, 0, 19)), *copied(segment(2, 5, 9)))
    assert [found(connection, 0, offset) for offset in (4, 9, 10)] == [an_id(301), an_id(302), None]


def test_the_whole_segment_is_given(connection: sqlite3.Connection) -> None:
    segment = find_segment(connection, TOPIC_ID, 0, 2, 15)
    assert segment is not None
    assert (segment.start_offset, segment.end_offset, segment.segment_size_bytes, segment.broker_id) == (0, 19, 200, 2)
    assert [(entry.leader_epoch, entry.start_offset) for entry in segment.segment_leader_epochs] == [(0, 0), (2, 10)]


def test_the_highest_offset_is_that_of_the_epoch(connection: sqlite3.Connection) -> None:
    assert [highest_offset(connection, TOPIC_ID, 0, epoch) for epoch in range(4)] == [9, None, 29, 59]
    assert highest_offset(connection, an_id(2), 0, 0) == 199


def test_all_that_are_not_gone_are_listed_by_start_offset(connection: sqlite3.Connection) -> None:
    """TS-62 and TS-63: segment 5 is being deleted, segment 4 not finished."""

    def listed(partition_id: int, epoch: int | None = None) -> list[bytes]:
        return [segment.segment_id for segment in list_segments(connection, TOPIC_ID, partition_id, epoch)]

    assert listed(0) == [an_id(number) for number in (301, 305, 302, 303, 304)]
    assert listed(0, 0) == [an_id(301), an_id(305)]
    assert listed(0, 3) == [an_id(302), an_id(303), an_id(304)]
    assert (listed(0, 1), listed(1), listed(2)) == ([], [an_id(306)], [])


def test_only_finished_copies_have_a_size(connection: sqlite3.Connection) -> None:
    """TS-46, as far as remote storage goes."""
    assert size_bytes(connection, TOPIC_ID, 0) == 600
    assert [size_bytes(connection, TOPIC_ID, 0, epoch) for epoch in range(4)] == [200, 0, 400, 400]
    assert size_bytes(connection, TOPIC_ID, 7) == 0


def test_lookups_read_no_more_than_they_need(connection: sqlite3.Connection) -> None:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    find_segment(connection, TOPIC_ID, 0, 2, 15)
    list(list_segments(connection, TOPIC_ID, 0, 2))
    connection.set_trace_callback(None)
    for sql in statements:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
        assert not any("SCAN" in step for step in plan), plan


def test_an_id_that_is_none_is_an_error(connection: sqlite3.Connection) -> None:
    with pytest.raises(ValueError, match="16"):
        find_segment(connection, b"x", 0, 0, 0)
