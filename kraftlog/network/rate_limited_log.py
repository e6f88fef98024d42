"""Log lines about clients' connections: a client cannot make them longer or more frequent than the bounds."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, Final

import structlog

from kraftbase.line_rate import TEXT_CHARACTERS_MAX, LineRate
from kraftlog.network.counters import Closed

TRACEBACK_FRAMES_MAX: Final = 8
TRACEBACK_CHARACTERS_MAX: Final = 2_000

logger = structlog.get_logger(__name__)


class RateLimitedLog:
    """Logs why connections are closed. `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._rate = LineRate(now)

    def log(self, reason: Closed, address: str, error: BaseException | None = None, **more: Any) -> None:
        """Log why a connection is closed, with the error that caused it; too frequent lines are counted, not logged."""
        left_out = self._rate.left_out(reason)
        if left_out is None:
            return
        if left_out:
            more["left_out_before"] = left_out
        if error is not None:
            more["error"] = f"{type(error).__name__}: {error}"[:TEXT_CHARACTERS_MAX]
            if reason is Closed.FAILED:
                more["traceback"] = _end_of_traceback(error)
        logger.warning("client connection closed", reason=str(reason), address=address, **more)


def _end_of_traceback(error: BaseException) -> str:
    """Return the traceback's last frames: a client may be able to cause a traceback of any length."""
    return "".join(traceback.format_tb(error.__traceback__, -TRACEBACK_FRAMES_MAX))[-TRACEBACK_CHARACTERS_MAX:]
