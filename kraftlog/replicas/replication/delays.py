"""Partitions that are fetched again after a pause (DB-36).

Kafka waits `replica.fetch.backoff.ms` after every error. But consider a new leader that applies the metadata a moment
after its followers have. Their first fetches get UNKNOWN_LEADER_EPOCH, and no acks=all is answered until the next ones:
for a whole second. So after an error that happens in a healthy cluster the first pause is short, and doubles each time.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Final

from kraftbase.runtime import Runtime, Timer
from kraftlog.replicas.replication.followed_partition import FollowedPartition

EXPECTED_PAUSE_MS: Final = 10
"""The first pause after an error that is expected in a healthy cluster."""


class Delays:
    """Calls `resume` for each partition when its pause is over; with one timer for all."""

    def __init__(self, runtime: Runtime, backoff_ms: int, resume: Callable[[FollowedPartition], object]) -> None:
        self._runtime = runtime
        self._backoff_ms = backoff_ms
        self._resume = resume
        self._order = itertools.count()
        self._due: list[tuple[float, int, FollowedPartition]] = []
        self._current: dict[FollowedPartition, int] = {}
        """The number of each partition's present pause; other entries in the heap are obsolete."""
        self._timer: Timer | None = None
        self._timer_due_ms = 0.0

    def add(self, followed: FollowedPartition, *, is_expected: bool) -> None:
        """Begin a partition's pause, which replaces an earlier one."""
        pause_ms = self._backoff_ms
        if is_expected:
            pause_ms = min(pause_ms, EXPECTED_PAUSE_MS << min(followed.expected_errors, 16))
            followed.expected_errors += 1
        number = self._current[followed] = next(self._order)
        heapq.heappush(self._due, (self._runtime.now_ms() + pause_ms, number, followed))
        self._set_timer()

    def drop(self, followed: FollowedPartition) -> None:
        """Cancel a partition's pause: do not resume it."""
        self._current.pop(followed, None)

    def wait_max_ms(self, wait_ms: int) -> int:
        """Return how long a request may be parked: until the next pause is over, and at most `wait_ms`."""
        self._drop_past()
        if not self._due:
            return wait_ms
        return min(wait_ms, max(1, int(self._due[0][0] - self._runtime.now_ms())))

    def _drop_past(self) -> None:
        while self._due and self._current.get(self._due[0][2]) != self._due[0][1]:
            heapq.heappop(self._due)

    def _set_timer(self) -> None:
        self._drop_past()
        if not self._due or (self._timer is not None and self._timer_due_ms <= self._due[0][0]):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = self._due[0][0]
        self._timer = self._runtime.call_later(max(0, self._timer_due_ms - self._runtime.now_ms()), self._resume_due)

    def _resume_due(self) -> None:
        self._timer = None
        now_ms = self._runtime.now_ms()
        while self._due and self._due[0][0] <= now_ms:
            _, number, followed = heapq.heappop(self._due)
            if self._current.get(followed) == number:
                del self._current[followed]
                self._resume(followed)
        self._set_timer()

    def stop(self) -> None:
        """Cancel all pauses."""
        self._due.clear()
        self._current.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
