"""Attempts one after the other, with a pause after each that an event can cut short."""

from __future__ import annotations

import math
from collections.abc import Callable

from kraftbase.runtime import Runtime, Timer


class Attempts:
    """Repeated attempts. Not thread-safe. Each must end with a call of `pause` or `pause_before_retry` to continue."""

    def __init__(self, runtime: Runtime, retry_ms: float, attempt: Callable[[], None]) -> None:
        """`attempt` begins an attempt; `retry_ms` is the pause after one that failed."""
        self._runtime = runtime
        self._retry_ms = retry_ms
        self._attempt = attempt
        self._timer: Timer | None = None
        self._on_wake: Callable[[], None] | None = None
        """Cuts the pause short; None if there is no pause."""
        self._is_due = False
        """Whether a pause was cut short, and the next attempt is about to begin."""
        self._is_woken = False
        """Whether to cut the next pause short as it begins."""
        self._retried_early_at_ms = -math.inf
        """When the last pause before a retry was cut short."""
        self._is_stopped = False

    def stop(self) -> None:
        """Begin no further attempt."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def wake(self) -> None:
        """Cut the pause short; during an attempt, cut short the pause that follows it."""
        if self._is_due:
            return
        on_wake, self._on_wake = self._on_wake, None
        if on_wake is None:
            self._is_woken = True
            return
        if self._timer is not None:
            self._timer.cancel()
        on_wake()

    def pause(self, pause_ms: float) -> None:
        """Begin the next attempt after `pause_ms`, or when woken."""
        self._wait(pause_ms, self._at_once)

    def pause_before_retry(self) -> None:
        """Begin the next attempt after `retry_ms`, or when woken, but woken at most once in `retry_ms`."""
        self._wait(self._retry_ms, self._retry_early)

    def _wait(self, pause_ms: float, on_wake: Callable[[], None]) -> None:
        if self._is_stopped:
            return
        if self._is_woken:
            self._is_woken = False
            on_wake()
            return
        self._on_wake = on_wake
        self._after(pause_ms, self._begin)

    def _at_once(self) -> None:
        self._is_due = True
        self._after(0, self._begin)

    def _retry_early(self) -> None:
        self._is_due = True
        self._after(max(0.0, self._retried_early_at_ms + self._retry_ms - self._runtime.now_ms()), self._begin_early)

    def _begin_early(self) -> None:
        self._retried_early_at_ms = self._runtime.now_ms()
        self._begin()

    def _after(self, delay_ms: float, begin: Callable[[], None]) -> None:
        if not self._is_stopped:
            self._timer = self._runtime.call_later(delay_ms, begin)

    def _begin(self) -> None:
        self._timer = self._on_wake = None
        self._is_due = False
        if not self._is_stopped:
            self._attempt()
