"""Checks that the event loop turns: heartbeats are sent from it, and from nowhere else.

A broker whose loop stands still serves no client. It sends no heartbeat, and is fenced when its session expires. When
the loop turns again, the broker logs for how long it did not, and which request ran in that time.

With `loop.report.interval.ms` the broker checks more often, and logs how long the turns of the loop take.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

LOOK_SECONDS: Final = 0.25
REPORTED_LOOK_SECONDS: Final = 0.005
"""How often the loop is checked for a report."""

SILENT_SECONDS: Final = 1.0
"""A loop that has not turned for this long is reported: a ninth of a session."""

REPORT: Final = "event loop turn times"
"""The log event of a report."""

logger = structlog.get_logger(__name__)


class LoopReport:
    """Reports how long turns took. The clocks are in seconds; `processor_now` is the processor time of this thread."""

    def __init__(
        self, interval_seconds: float, now: Callable[[], float], processor_now: Callable[[], float] = time.thread_time
    ) -> None:
        self._interval_seconds = interval_seconds
        self._now = now
        self._processor_now = processor_now
        self._reported_at = self._looked_at = now()
        self._processor_at = processor_now()
        self._longest_processor_seconds = 0.0
        self._late_ms: Counter[int] = Counter()

    def check(self) -> None:
        """Call this `REPORTED_LOOK_SECONDS` after the last call; it logs a report when one is due."""
        now, processor = self._now(), self._processor_now()
        self._late_ms[max(0, round(1_000 * (now - self._looked_at - REPORTED_LOOK_SECONDS)))] += 1
        self._longest_processor_seconds = max(self._longest_processor_seconds, processor - self._processor_at)
        self._looked_at, self._processor_at = now, processor
        if now - self._reported_at >= self._interval_seconds:
            # A warning: lower levels are not logged by default, and the interval was set to see these lines.
            logger.warning(
                REPORT,
                longest_processor_ms=round(1_000 * self._longest_processor_seconds, 1),
                late_ms=dict(sorted(self._late_ms.items())),
            )
            self._reported_at = now
            self._longest_processor_seconds = 0.0
            self._late_ms.clear()


class LoopWatch:
    """Notices that it is called too late. `now` is a clock in seconds."""

    def __init__(
        self,
        now: Callable[[], float],
        longest_request: Callable[[], str | None],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`longest_request` returns the request that took longest since its last call, if any."""
        self._now = now
        self._longest_request = longest_request
        self._look_seconds = look_seconds
        self._looked_at = now()

    def check(self) -> None:
        """Call this `look_seconds` after the last call; it logs a warning if the call comes much later."""
        now = self._now()
        silent_seconds = now - self._looked_at - self._look_seconds
        self._looked_at = now
        request = self._longest_request()
        if silent_seconds >= SILENT_SECONDS:
            logger.warning(
                f"the event loop did not turn for {silent_seconds:.1f} s: {request or 'no request was handled'}"
            )
