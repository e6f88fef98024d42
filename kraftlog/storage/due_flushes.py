"""Flushes the logs of one directory whose `flush.ms` has passed, with one timer for the log that is due first.

A log is in the queue at most once, from its first unflushed append until it is due. So there is at most one entry for
each log with `flush.ms`; logs without it, which is the default, cost nothing here.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Final

from kraftbase.runtime import Runtime, Timer
from kraftlog.storage.config import NO_LIMIT
from kraftlog.storage.group_commit import GroupCommit
from kraftlog.storage.partition_log import PartitionLog

DELAY_MAX_MS: Final = 86_400_000
"""The longest delay of the timer, since event loops limit delays; a longer wait takes several timers."""


class DueFlushes:
    """The times at which logs are due to be flushed. For one thread."""

    def __init__(self, runtime: Runtime, commits: GroupCommit) -> None:
        self._runtime = runtime
        self._commits = commits
        self._queue: list[tuple[int, int, PartitionLog]] = []
        self._queued: set[PartitionLog] = set()
        self._order = itertools.count()
        self._timer: Timer | None = None
        self._timer_due_ms = 0

    def appended(self, log: PartitionLog) -> None:
        """Queue a log that has unflushed appends, if it has `flush.ms`."""
        if log.config.flush_ms != NO_LIMIT and log not in self._queued:
            self._add(log)
            self._set_timer()

    def remove(self, log: PartitionLog) -> None:
        """Remove a log that is deleted from the queue."""
        if log in self._queued:
            self._queued.discard(log)
            self._queue = [entry for entry in self._queue if entry[2] is not log]
            heapq.heapify(self._queue)

    def stop(self) -> None:
        """Stop flushing: the directory is offline, or closed."""
        self._queue.clear()
        self._queued.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _add(self, log: PartitionLog) -> None:
        due_ms = log.durability.flush_due_ms(log.config)
        if due_ms is not None:
            self._queued.add(log)
            heapq.heappush(self._queue, (due_ms, next(self._order), log))

    def _set_timer(self) -> None:
        if not self._queue or (self._timer is not None and self._timer_due_ms <= self._queue[0][0]):
            return  # a timer that fires too early finds nothing due, and is set again
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = self._queue[0][0]
        delay_ms = min(max(1, self._timer_due_ms - self._runtime.wall_clock_ms()), DELAY_MAX_MS)
        self._timer = self._runtime.call_later(delay_ms, self._flush_due)

    def _flush_due(self) -> None:
        self._timer = None
        now_ms = self._runtime.wall_clock_ms()
        later: list[PartitionLog] = []
        while self._queue and self._queue[0][0] <= now_ms:
            _, _, log = heapq.heappop(self._queue)
            self._queued.discard(log)
            if log.durability.is_flush_due(log.config, now_ms):
                self._commits.wait(log, log.log_end_offset, lambda error: None)
            else:
                later.append(log)  # since it was queued it was flushed, and appended to again
        for log in later:
            if log.config.flush_ms != NO_LIMIT:
                self._add(log)
        self._set_timer()
