"""The timer by which the replica learns that time has passed."""

from __future__ import annotations

from collections.abc import Callable

from kraftbase.runtime import Runtime, Timer


class DeadlineTimer:
    """Calls back when the replica's next deadline has passed; the deadline moves at almost every step."""

    def __init__(
        self, runtime: Runtime, next_deadline_ms: Callable[[], int | None], on_due: Callable[[], None]
    ) -> None:
        """`on_due` is called, and must call `set` again, as every step of the shell does."""
        self._runtime = runtime
        self._next_deadline_ms = next_deadline_ms
        self._on_due = on_due
        self._timer: Timer | None = None
        self._timer_at_ms = 0

    def set(self) -> None:
        """Make sure that the timer fires at the next deadline, or before."""
        deadline_ms = self._next_deadline_ms()
        if deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return  # it fires early and is then set again: cheaper than moving it at every step
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_ms = max(0, deadline_ms - int(self._runtime.now_ms()) + 1)
        self._timer = self._runtime.call_later(delay_ms, self._fired)

    def cancel(self) -> None:
        """Stop the timer for good."""
        if self._timer is not None:
            self._timer.cancel()

    def _fired(self) -> None:
        self._timer = None
        deadline_ms = self._next_deadline_ms()
        if deadline_ms is not None and int(self._runtime.now_ms()) >= deadline_ms:
            self._on_due()
        else:
            self.set()
