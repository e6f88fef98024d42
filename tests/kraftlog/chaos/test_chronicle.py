"""The chronicle has a span for each process and each ailment."""

from __future__ import annotations

import math

from kraftbase.types import NodeId
from kraftlog.chaos.chronicle import Chronicle, Span

ONE, OTHER = NodeId(1), NodeId(2)


def test_a_life_ends_before_the_signal_or_when_it_was_last_seen() -> None:
    times = iter(range(100))
    chronicle = Chronicle(lambda: next(times))
    chronicle.begin(ONE)
    chronicle.see(ONE)
    chronicle.begin(OTHER)
    chronicle.end(ONE, by_itself=True)
    chronicle.end(OTHER)
    chronicle.end(OTHER)
    chronicle.begin(OTHER)
    assert chronicle.lives == [Span(ONE, 0, 1), Span(OTHER, 2, 3), Span(OTHER, 4, math.inf)]


def test_an_ailment_lasts_until_the_node_is_not_named() -> None:
    times = iter(range(100))
    chronicle = Chronicle(lambda: next(times))
    chronicle.note_ailing({ONE})
    chronicle.note_ailing({ONE, OTHER})
    chronicle.note_ailing({OTHER})
    assert chronicle.ailments == [Span(ONE, 0, 2), Span(OTHER, 1, math.inf)]
