"""Where reading begins and ends, in the user's notation: `beginning`, `end`, an offset, or a time. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

OFFSET_MAX: Final = 2**63 - 1
MILLISECOND: Final = timedelta(milliseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FORMS: Final = "beginning|end|OFFSET|TIME"

_MILLISECONDS: Final = re.compile(r"([0-9]{1,19})ms")
_OFFSET: Final = re.compile(r"[0-9]{1,19}")


class PositionKind(StrEnum):
    """What a position is relative to."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in each partition."""

    kind: PositionKind
    number: int = 0
    """The offset, or the time in milliseconds since 1970."""


BEGINNING: Final = Position(PositionKind.BEGINNING)
END: Final = Position(PositionKind.END)


def parse_position(text: str) -> Position:
    """`beginning`, `end`, `42`, `1764000000000ms` or `2026-11-24T03:15:00Z`. Raises ValueError."""
    if text == PositionKind.BEGINNING:
        return BEGINNING
    if text == PositionKind.END:
        return END
    if _OFFSET.fullmatch(text) and int(text) <= OFFSET_MAX:
        return Position(PositionKind.OFFSET, int(text))
    written_ms = _MILLISECONDS.fullmatch(text)
    timestamp_ms = int(written_ms[1]) if written_ms else _timestamp_ms(text)
    if not 0 <= timestamp_ms <= OFFSET_MAX:
        raise ValueError(f"{text!r} is before 1970, or too far away; give another time")
    return Position(PositionKind.TIME, timestamp_ms)


def _timestamp_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text) if "-" in text else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(
            f"{text!r} is not a position in a partition; write beginning, end, an offset up to {OFFSET_MAX},"
            " milliseconds"
            " since 1970 such as 1764000000000ms, or a time such as 2026-11-24T03:15:00Z"
        )
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; add it, such as Z or +01:00")
    return (moment - EPOCH) // MILLISECOND
