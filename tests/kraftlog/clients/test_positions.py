"""Where reading begins and ends, as users write it."""

from __future__ import annotations

import pytest

from kraftlog.clients.positions import BEGINNING, END, Position, PositionKind, parse_position


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", BEGINNING),
        ("end", END),
        ("0", Position(PositionKind.OFFSET, 0)),
        (str(2**63 - 1), Position(PositionKind.OFFSET, 2**63 - 1)),
        ("0ms", Position(PositionKind.TIME, 0)),
        ("1764000000000ms", Position(PositionKind.TIME, 1_764_000_000_000)),
        ("1970-01-01T00:00:01.5Z", Position(PositionKind.TIME, 1_500)),
        ("1970-01-01T01:00+01:00", Position(PositionKind.TIME, 0)),
    ],
)
def test_positions_are_read(text: str, position: Position) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a position in a partition"),
        ("now", "is not a position in a partition"),
        ("-1", "is not a position in a partition"),
        ("+1", "is not a position in a partition"),
        ("\u0661", "is not a position in a partition"),
        (str(2**63), "is not a position in a partition"),
        (f"{2**63}ms", "too far away"),
        ("20261124T031500Z", "is not a position in a partition"),
        ("2026-11-24T03:15:00", "has no time zone"),
        ("2026-11-24", "has no time zone"),
        ("2026-13-24T03:15:00Z", "is not a position in a partition"),
        ("1969-12-31T23:59:59Z", "before 1970"),
    ],
)
def test_what_is_no_position_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_position(text)
