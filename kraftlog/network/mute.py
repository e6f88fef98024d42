"""How long a connection is not read because its client is throttled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """What a loop's `call_at` returns."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class Mute:
    """The mute time of one connection. It uses one timer, however often the time is extended."""

    def __init__(
        self,
        call_at: Callable[[float, Callable[[], None]], Timer],
        now: Callable[[], float],
        on_end: Callable[[], None],
    ) -> None:
        """`call_at` and `now` are those of the event loop, in seconds; `on_end` is called when the time is over."""
        self.is_on = False
        self._call_at = call_at
        self._now = now
        self._on_end = on_end
        self._until = 0.0
        self._timer: Timer | None = None

    def extend(self, throttle_ms: int) -> None:
        """Mute the connection for `throttle_ms` from now on; a longer time that was set before stays."""
        self._until = max(self._until, self._now() + throttle_ms / 1000)
        if not self.is_on:
            self.is_on = True
            self._timer = self._call_at(self._until, self._expire)

    def cancel(self) -> None:
        """The connection is closed: do not call `on_end`."""
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        if self._now() < self._until:
            self._timer = self._call_at(self._until, self._expire)
            return
        self.is_on = False
        self._on_end()
