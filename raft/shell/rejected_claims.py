"""Rejected claims of peers: counted, and logged at a bounded rate."""

from __future__ import annotations

from typing import Final

import structlog

from kraftbase.runtime import Runtime

REPORT_INTERVAL_MS: Final = 10_000
"""At most one log line in this time: an unknown process may send thousands of messages a second."""

logger = structlog.get_logger(__name__)


class RejectedClaims:
    """The claims that one replica has refused."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._told_at_ms: float | None = None
        self._count = 0
        self._told_count = 0

    def note(self, reason: str) -> None:
        """Count a claim. Logs how many there were since the last line; the first one is logged at once."""
        self._count += 1
        now_ms = self._runtime.now_ms()
        if self._told_at_ms is not None and now_ms - self._told_at_ms < REPORT_INTERVAL_MS:
            return
        others = self._count - self._told_count - 1
        self._told_at_ms, self._told_count = now_ms, self._count
        logger.warning(
            "a peer's claim is rejected; look for a node of another cluster, or one with a copy of another node's"
            " configuration",
            reason=reason,
            others_not_told=others,
            count=self._count,
        )
