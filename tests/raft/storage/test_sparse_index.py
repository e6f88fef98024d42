"""The sparse index of a segment."""

from __future__ import annotations

from kraftbase.types import Offset
from raft.storage.segment import INDEX_INTERVAL_BYTES, SparseIndex

FRAME_BYTES = 100


def test_a_read_begins_at_most_an_interval_before_its_batch_and_never_behind_it() -> None:
    index = SparseIndex()
    for offset in range(200):
        index.note(Offset(offset), offset * FRAME_BYTES)
    for offset in range(200):
        distance = offset * FRAME_BYTES - index.position_before(Offset(offset))
        assert 0 <= distance < INDEX_INTERVAL_BYTES + FRAME_BYTES


def test_entries_that_were_cut_are_forgotten() -> None:
    index = SparseIndex()
    for offset in range(200):
        index.note(Offset(offset), offset * FRAME_BYTES)
    index.truncate(Offset(50))
    assert index.position_before(Offset(199)) <= 49 * FRAME_BYTES
