"""When a leader that can write nothing, such as one whose disk is full, resigns in favor of another voter (CT-29)."""

from __future__ import annotations

import math
from typing import Final

STUCK_MS: Final = 5_000
"""How long the leader may be unable to write: a log roll, or a reader that holds the database, is often shorter."""
PAUSE_MS: Final = 60_000
"""The pause between two resignations. It doubles each time, up to `PAUSE_MS_MAX`, until something can be written again:
if all voters are stuck, each election uses some of the room that is kept for the records of new leaders.
"""
PAUSE_MS_MAX: Final = 3_600_000


class HandOver:
    """For one node, whether it leads or not. Time is an argument, in milliseconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._stuck_since_ms: float | None = None
        self._not_before_ms = -math.inf
        self._pause_ms = PAUSE_MS

    def begin(self) -> None:
        """The node leads from now on."""
        self._stuck_since_ms = None

    def is_due(self, is_stuck: bool, now_ms: float) -> bool:
        """Whether to resign now, given whether the leader can write nothing. To be called about every second."""
        if not is_stuck:
            self._stuck_since_ms, self._pause_ms = None, PAUSE_MS
            return False
        if self._stuck_since_ms is None:
            self._stuck_since_ms = now_ms
        if now_ms - self._stuck_since_ms < STUCK_MS or now_ms < self._not_before_ms:
            return False
        self._not_before_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)
        return True
