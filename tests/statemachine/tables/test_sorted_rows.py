"""The cost of a search among rows in memory: only that of the rows found, however many there are and how they came."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from kraftbase.types import Offset
from kraftlog.controller.layer import Layer
from statemachine.replay.changes import Changes
from statemachine.tables.database import create_in
from statemachine.tables.remote_log_tables import REMOTE_SEGMENT_EPOCHS, SegmentInEpoch
from statemachine.tables.sorted_rows import SortedRows
from tests.statemachine.builders import CLUSTER_ID, an_id
from tests.statemachine.counted import Comparisons
from tests.statemachine.remote_logs import TOPIC_ID

ROWS = 1_000
COMPARISONS_EACH = 200
"""Per row: several for each of the few steps of a search. To read all rows once for each is a thousand."""


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        create_in(empty, CLUSTER_ID)
        yield empty


def test_to_remove_what_begins_with_a_key_does_not_go_through_what_is_uncommitted() -> None:
    layer, comparisons = Layer(), Comparisons()
    for number in range(ROWS):
        layer.put((comparisons.number(number), 0), "record", Offset(1))
    for number in range(ROWS):
        layer.remove_all((comparisons.number(ROWS + number),), Offset(2))
    assert len(layer.entries) == len(layer.removed) == ROWS
    for number in range(ROWS):
        layer.remove_all((comparisons.number(number),), Offset(3))
    assert not layer.entries
    assert 0 < comparisons.count <= 3 * ROWS * COMPARISONS_EACH


def test_what_was_removed_is_forgotten_when_the_last_append_that_did_it_is_applied() -> None:
    layer = Layer()
    for end_offset in (1, 2, 3):
        layer.remove_all(("a",), Offset(end_offset))
    layer.remove_all(("b",), Offset(4))
    layer.drain(Offset(2))
    assert (layer.is_removed(("a", 1)), layer.is_removed(("b", 1))) == (True, True)
    layer.drain(Offset(3))
    assert (layer.is_removed(("a", 1)), layer.is_removed(("b", 1))) == (False, True)


@pytest.mark.parametrize("partitions", [1, ROWS])
@pytest.mark.parametrize("step", [1, -1], ids=["forwards", "backwards"])
def test_to_find_rows_of_a_run_does_not_go_through_all_that_it_touched(
    connection: sqlite3.Connection, partitions: int, step: int
) -> None:
    """Segments of one partition, or of as many as there are segments. Each segment searches for those after it."""
    changes, comparisons = Changes(connection), Comparisons()
    for number in range(ROWS):
        start = comparisons.number(number * step)
        partition_id = comparisons.number(number % partitions)
        changes.put(REMOTE_SEGMENT_EPOCHS, SegmentInEpoch(TOPIC_ID, partition_id, 0, start, an_id(number), 0, True))
        prefix = (TOPIC_ID, partition_id, 0)
        _, found = next(changes.find(REMOTE_SEGMENT_EPOCHS, prefix, (*prefix, start, "")))
        assert found.segment_id == an_id(number)
    assert 0 < comparisons.count <= ROWS * COMPARISONS_EACH


def test_to_remove_what_begins_with_a_key_does_not_go_through_all_that_a_run_touched(
    connection: sqlite3.Connection,
) -> None:
    changes, comparisons = Changes(connection), Comparisons()
    for number in range(ROWS):
        part: Any = comparisons.number(number)
        changes.put(REMOTE_SEGMENT_EPOCHS, SegmentInEpoch(part, 0, 0, 0, an_id(1), 0, True))
    for number in range(ROWS):
        changes.remove_all(REMOTE_SEGMENT_EPOCHS, (comparisons.number(ROWS + number),))
    assert 0 < comparisons.count <= ROWS * COMPARISONS_EACH


def test_many_new_rows_are_sorted_and_a_few_are_put_into_their_place() -> None:
    rows, comparisons = SortedRows[None](), Comparisons()
    for number in range(ROWS):
        rows.put((comparisons.number(-number),), None)
    assert len(list(rows.behind((), None))) == ROWS
    at_once, comparisons.count = comparisons.count, 0
    for number in (0.5, 1.5, 2.5):
        rows.put((number,), None)
    assert [key for key, _ in rows.behind((), (0,))] == [(0.5,), (1.5,), (2.5,)]
    assert at_once <= ROWS * COMPARISONS_EACH
    assert comparisons.count <= ROWS / 2
