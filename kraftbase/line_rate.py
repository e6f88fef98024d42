"""How many lines clients may cause in the log: a number for each reason in an interval."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

LINES_MAX: Final = 10
"""Lines for each reason in an interval; the first line of the next interval has the number of lines left out."""

INTERVAL_SECONDS: Final = 60.0
TEXT_CHARACTERS_MAX: Final = 300
"""The logged length of a text that a client influences."""


class LineRate:
    """Counts the lines of each reason, of which there are few. `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: dict[Hashable, float] = {}
        self._lines: dict[Hashable, int] = {}

    def left_out(self, reason: Hashable) -> int | None:
        """None if a line must be left out; else the number of lines left out in the previous interval."""
        now = self._now()
        left_out = 0
        if now - self._since.get(reason, -INTERVAL_SECONDS) >= INTERVAL_SECONDS:
            left_out = max(0, self._lines.get(reason, 0) - LINES_MAX)
            self._since[reason] = now
            self._lines[reason] = 0
        self._lines[reason] += 1
        return None if self._lines[reason] > LINES_MAX else left_out
