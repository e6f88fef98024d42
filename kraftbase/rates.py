"""A rate over the last seconds, as Kafka measures what has a quota (DB-92).

Amounts are summed up in samples, one for each window of time. The rate is the sum of all samples divided by the time
since the oldest one began, but at least by the length of all windows but one: a client that begins with a burst is not
assumed to continue at that rate. One sample more than the number of windows is kept: the oldest may have begun before
the time that counts.

Time is an argument, in milliseconds that never decrease.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

WINDOW_COUNT: Final = 11
"""Kafka's default of `quota.window.num`."""

WINDOW_MS: Final = 1_000
"""Kafka's default of `quota.window.size.seconds`."""

THROTTLE_MAX_MS: Final = 2**31 - 1
"""The longest time that fits the response's field: 24 days."""


@dataclass(slots=True)
class _Sample:
    began_ms: float
    last_ms: float
    total: float = 0.0

    def restart(self, now_ms: float) -> None:
        self.began_ms = self.last_ms = now_ms
        self.total = 0.0


class WindowedRate:
    """One quantity of one client."""

    __slots__ = ("_at", "_samples", "_window_count", "_window_ms")

    def __init__(self, now_ms: float, window_count: int = WINDOW_COUNT, window_ms: int = WINDOW_MS) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._samples = [_Sample(now_ms, now_ms)]
        self._at = 0

    def record(self, amount: float, now_ms: float) -> None:
        """Add an amount; a negative one takes back what was added at the same time."""
        sample = self._samples[self._at]
        if now_ms - sample.began_ms >= self._window_ms:
            sample = self._next_sample(now_ms)
        sample.total += amount
        sample.last_ms = now_ms

    def _next_sample(self, now_ms: float) -> _Sample:
        self._at = (self._at + 1) % (self._window_count + 1)
        if self._at == len(self._samples):
            self._samples.append(_Sample(now_ms, now_ms))
        else:
            self._samples[self._at].restart(now_ms)
        return self._samples[self._at]

    def span_ms(self, now_ms: float) -> float:
        """The time over which the rate is computed; samples that are too old are emptied first."""
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._window_count * self._window_ms:
                sample.restart(now_ms)
        span_ms = now_ms - min(sample.began_ms for sample in self._samples)
        missing = self._window_count - 1 - int(span_ms / self._window_ms)
        return max(span_ms + max(0, missing) * self._window_ms, 1)

    def per_second(self, now_ms: float) -> float:
        """The rate now."""
        span_ms = self.span_ms(now_ms)
        return sum(sample.total for sample in self._samples) * 1_000 / span_ms

    def throttle_ms(self, limit_per_second: float, now_ms: float) -> int:
        """How long no amount may be added until the rate is within a limit; 0 if it is now.

        Consider 6,300 bytes in 10.5 s and a limit of 500 bytes per second. The rate is 600, a fifth too high, and is
        500 when the time is a fifth longer: after 2.1 s.
        """
        rate = self.per_second(now_ms)
        if rate <= limit_per_second:
            return 0
        wait_ms = (rate - limit_per_second) / limit_per_second * self.span_ms(now_ms)
        return math.floor(min(wait_ms, THROTTLE_MAX_MS) + 0.5)
