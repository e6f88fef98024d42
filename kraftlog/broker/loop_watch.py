"""Whether the event loop turns: heartbeats leave in it, and nothing else sends them.

A broker whose loop stands still serves nobody. It sends no heartbeat, and is fenced when its session is over. When the
loop turns again the broker says for how long it did not, and which request has run meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

LOOK_SECONDS: Final = 0.25

SILENT_SECONDS: Final = 1.0
"""A loop that has not turned for so long is reported: a ninth of a session."""

logger = structlog.get_logger(__name__)


class LoopWatch:
    """Notices that it is looked at too late. `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float], longest_request: Callable[[], str | None]) -> None:
        """`longest_request` returns which request has kept the loop for longest since it was called last."""
        self._now = now
        self._longest_request = longest_request
        self._looked_at = now()

    def look(self) -> None:
        """To be called `LOOK_SECONDS` after the last time; says so if it is called much later."""
        now = self._now()
        silent_seconds = now - self._looked_at - LOOK_SECONDS
        self._looked_at = now
        request = self._longest_request()
        if silent_seconds >= SILENT_SECONDS:
            logger.warning(
                f"the event loop did not turn for {silent_seconds:.1f} s: {request or 'no request was handled'}"
            )


async def watch_loop(longest_request: Callable[[], str | None]) -> None:
    """Look for ever."""
    watch = LoopWatch(time.monotonic, longest_request)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        watch.look()
