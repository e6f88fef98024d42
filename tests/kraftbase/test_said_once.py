"""A lasting condition is news when it begins, and when it ends."""

from __future__ import annotations

from kraftbase.said_once import SaidOnce


def test_it_is_news_once_until_it_is_over() -> None:
    said = SaidOnce()
    assert not said.ends()
    assert [said.begins() for _ in range(3)] == [True, False, False]
    assert said.count == 3
    assert (said.ends(), said.ends(), said.count) == (True, False, 0)
    assert said.begins()
