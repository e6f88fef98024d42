"""A machine's clocks: a monotonic one that may run fast or slow, and a wall clock that may jump."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS

START_OF_TIME_MS: Final = 1_700_000_000_000
"""What a correct wall clock shows when the world begins, in milliseconds since 1970."""


class Clock:
    """The clocks of one machine. The protocol must not depend on the clocks of two machines agreeing."""

    def __init__(self, offset_ms: float) -> None:
        """`offset_ms`: the first value of the monotonic clock, different on every machine."""
        self.rate = 1.0
        self.wall_offset_ms = 0
        """How far the wall clock is from the correct time."""
        self._since_us = 0
        self._since_ms = offset_ms

    def now_ms(self, world_us: int) -> float:
        """Return the value of the monotonic clock, in milliseconds."""
        return self._since_ms + (world_us - self._since_us) * self.rate / MICROSECONDS_PER_MS

    def world_delay_us(self, delay_ms: float) -> int:
        """Return how much of the world's time passes while `delay_ms` pass on this machine's monotonic clock."""
        return int(delay_ms * MICROSECONDS_PER_MS / self.rate)

    def wall_clock_ms(self, world_us: int) -> int:
        """Return the value of the wall clock, in milliseconds since 1970."""
        return START_OF_TIME_MS + self.wall_offset_ms + world_us // MICROSECONDS_PER_MS

    def drift(self, world_us: int, rate: float) -> None:
        """From now on, run at `rate` times the world's time. Timers that are already set keep their time."""
        self._since_ms = self.now_ms(world_us)
        self._since_us = world_us
        self.rate = rate

    def jump(self, forward_ms: float) -> None:
        """Move the monotonic clock forward, as when a machine slept."""
        self._since_ms += forward_ms
