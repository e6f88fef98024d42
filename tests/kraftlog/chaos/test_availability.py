"""Windows in which service was owed, and what was acknowledged in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.chaos.availability import Window, longest_gap, windows

MOMENTS = st.lists(st.floats(0, 60), max_size=80).map(sorted)


def test_no_window_fits_an_interval_that_is_too_short() -> None:
    assert windows([(0, 9.9), (20, 29.9)], [1.0, 2.0]) == []


def test_an_interval_of_ten_seconds_is_one_window() -> None:
    assert windows([(5, 15)], [4.9, 5.0, 14.9, 15.0]) == [Window(5, 2)]


def test_windows_begin_each_second() -> None:
    assert [window.start for window in windows([(5, 17.5)], [])] == [5, 6, 7]


@pytest.mark.parametrize(("count", "served"), [(0, False), (9, False), (10, True)])
def test_ten_acknowledgements_are_owed(count: int, served: bool) -> None:
    (window,) = windows([(0, 10)], [float(number) / 2 for number in range(count)])
    assert window.is_served is served


@given(MOMENTS)
def test_every_window_counts_what_is_in_it(moments: list[float]) -> None:
    found = windows([(0, 25), (30, 60)], moments)
    assert len(found) == 16 + 21
    for window in found:
        assert window.acknowledged == sum(window.start <= moment < window.start + 10 for moment in moments)


def test_a_gap_has_the_ends_of_its_interval_as_bounds() -> None:
    assert longest_gap([(0, 10), (20, 22)], [1.0, 4.0, 15.0]) == (4.0, 6.0)
    assert longest_gap([(0, 10)], []) == (0.0, 10.0)
    assert longest_gap([], [1.0]) == (0.0, 0.0)
