"""What a finished copy costs: the segments within it, of the many that its epoch has (TS-60)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.replay.changes import Changes
from statemachine.replay.replay import replay
from statemachine.tables.remote_log_tables import REMOTE_SEGMENT_EPOCHS
from statemachine.tables.table import Key, key_to_sql
from tests.statemachine.builders import an_id, partition, topic
from tests.statemachine.reading import rows_read
from tests.statemachine.remote_logs import COPY_FINISHED, TOPIC_ID, added, copied, segment, updated
from tests.statemachine.states import Metadata, metadata

SEGMENTS, LATE = 200, 999
OFFSETS_EACH = 10
IN_EPOCH = (TOPIC_ID, 0, 0)


def tiered(number: int) -> list[MetadataRecord]:
    """The records of the segment with that number, counted from the start of the epoch."""
    return copied(segment(number, number * OFFSETS_EACH, (number + 1) * OFFSETS_EACH - 1))


def full(*more: MetadataRecord) -> Metadata:
    """An epoch with many segments, committed."""
    tiers = [record for number in range(SEGMENTS) for record in tiered(number)]
    return metadata(topic("a", 1), partition(1), *tiers, *more)


@pytest.mark.parametrize("taken_in", [Metadata.commit, lambda state, record: state.append([record])])
def test_a_late_copy_of_old_offsets_reads_none_of_the_later_segments(taken_in: Callable[..., Metadata]) -> None:
    state = full(added(segment(LATE, 10, 29)))
    with rows_read() as read:
        taken_in(state, updated(LATE, COPY_FINISHED))
    assert read["remote_segment_epochs"] == 3  # two that it covers, and its own
    entries = [entry for _, entry in state.overlay.find(REMOTE_SEGMENT_EPOCHS, IN_EPOCH)]
    assert [entry.segment_id for entry in entries if not entry.is_referenced] == [an_id(301), an_id(302)]


def test_nor_does_it_among_what_is_not_committed() -> None:
    state = metadata(topic("a", 1), partition(1))
    state.append([record for number in range(SEGMENTS) for record in tiered(number)])
    state.append([added(segment(LATE, 10, 29))])
    view = Counting(state.overlay)
    replay(view, [updated(LATE, COPY_FINISHED)], 0)
    assert view.given == 3


class Counting:
    """A view that counts what it returns."""

    def __init__(self, view: Any) -> None:
        self._view = view
        self.given = 0

    def find(self, *arguments: Any, **named: Any) -> Any:
        for entry in self._view.find(*arguments, **named):
            self.given += 1
            yield entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


BOUNDS: Final[list[tuple[Key, Key | None, Key | None]]] = [
    (IN_EPOCH, None, (*IN_EPOCH, 30)),
    (IN_EPOCH, (*IN_EPOCH, 20, ""), (*IN_EPOCH, 40)),
    (IN_EPOCH, (*IN_EPOCH, 20, an_id(302)), (*IN_EPOCH, 40, an_id(304))),
    (IN_EPOCH, (*IN_EPOCH, 20, ""), (*IN_EPOCH, 19)),
    (IN_EPOCH[:2], None, IN_EPOCH),
    (IN_EPOCH, None, IN_EPOCH),
    ((), None, (TOPIC_ID, 0, 0, 50)),
]


@pytest.mark.parametrize(("prefix", "after", "end"), BOUNDS)
def test_what_is_found_ends_with_what_begins_with_the_end(prefix: Key, after: Key | None, end: Key | None) -> None:
    """In the database, and with every other row above it: touched by a run, or not committed."""
    state = full()
    committed = state.connection
    of_all = [key for key, _ in REMOTE_SEGMENT_EPOCHS.find(committed)]
    expected = [key for key in of_all if key[: len(prefix)] == prefix and is_within(key, after, end)]
    assert [key for key, _ in REMOTE_SEGMENT_EPOCHS.find(committed, prefix, after, end=end)] == expected
    some = metadata(topic("a", 1), partition(1))
    some.commit(*(record for number in range(0, SEGMENTS, 2) for record in tiered(number)))
    others = [record for number in range(1, SEGMENTS, 2) for record in tiered(number)]
    changes = Changes(some.connection)
    changes.replay(others, some.end_offset)
    some.append(others)
    for view in (changes, some.overlay):
        assert [key for key, _ in view.find(REMOTE_SEGMENT_EPOCHS, prefix, after, end=end)] == expected
        assert [key for key, _ in view.find(REMOTE_SEGMENT_EPOCHS, prefix, after, 3, end)] == expected[:3]


def is_within(key: Key, after: Key | None, end: Key | None) -> bool:
    key_sql = key_to_sql(key)
    is_above = after is None or key_sql > key_to_sql(after)
    return is_above and (end is None or key_sql[: len(end)] <= key_to_sql(end))
