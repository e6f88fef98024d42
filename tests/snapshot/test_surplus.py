"""Which snapshots stay (SN-42, SN-53)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.types import Offset
from snapshot.log_start_policy import SNAPSHOTS_KEPT_MAX, surplus
from tests.snapshot.builders import an_id


@pytest.mark.parametrize(
    ("offsets", "start", "expected"),
    [
        ((), 0, ()),
        ((10,), 0, ()),
        ((10, 20, 30, 40), 0, ()),
        ((10, 20, 30, 40, 50), 0, (30,)),
        ((10, 20, 30, 40, 50, 60, 70), 0, (30, 40, 50)),
        ((10, 20, 30, 40), 20, (10,)),
        ((10, 20, 30, 40, 50), 20, (10,)),
        ((10, 20, 30, 40, 50, 60), 20, (10, 40)),
        ((10, 20, 30), 30, (10, 20)),
    ],
)
def test_sn42_those_below_the_log_start_go_and_of_the_others_four_stay(
    offsets: tuple[int, ...], start: int, expected: tuple[int, ...]
) -> None:
    ids = [an_id(offset, 1) for offset in offsets]
    assert surplus(ids, Offset(start)) == tuple(an_id(offset, 1) for offset in expected)


@given(st.sets(st.integers(1, 50)), st.data())
def test_sn53_the_one_at_the_log_start_and_the_newest_stay(offsets: set[int], data: st.DataObject) -> None:
    ids = [an_id(offset, 1) for offset in sorted(offsets)]
    start = data.draw(st.sampled_from([0, *sorted(offsets)]))
    kept = [found for found in ids if found not in surplus(ids, Offset(start))]
    above = [found for found in ids if found.offset >= start]
    assert len(kept) == min(len(above), SNAPSHOTS_KEPT_MAX)
    assert set(above[:2] + above[-2:]) <= set(kept) <= set(above)
    assert not surplus(kept, Offset(start))
