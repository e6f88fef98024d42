"""Marks the end of a burst of appends in the log, so that a restart knows how far it was durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftbase.runtime import Runtime, Timer
from raft.storage.segmented_log import SegmentedLog

MARKER_IDLE_MS: Final = 100
"""How long after a flush a burst of appends counts as ended: then a marker records that all of it is durable."""


class BurstMarker:
    """See the module."""

    def __init__(self, log: SegmentedLog, runtime: Runtime, on_fatal: Callable[[BaseException], None]) -> None:
        self._log = log
        self._runtime = runtime
        self._on_fatal = on_fatal
        self._timer: Timer | None = None

    def flushed(self) -> None:
        """The log was flushed: write a marker if no append follows for a while."""
        if self._timer is None:
            self._timer = self._runtime.call_later(MARKER_IDLE_MS, self._end_burst)

    def cancel(self) -> None:
        """Write no marker."""
        if self._timer is not None:
            self._timer.cancel()

    def _end_burst(self) -> None:
        self._timer = None
        try:
            if self._log.flushed_end_offset == self._log.log_end_offset:  # else the next flush comes here again
                self._log.write_marker()
        except BaseException as error:
            self._on_fatal(error)
