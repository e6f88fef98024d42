"""How much clients have used of what has a quota, and how long those over their quota wait (KIP-13, KIP-124).

Only clients with a quota are counted. At most `CLIENTS_MAX` counts are kept: beyond that the least recently used one is
dropped, and so are counts that were not used for an hour.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from kraftbase.rates import WINDOW_COUNT, WINDOW_MS, WindowedRate
from kraftlog.broker.quotas.client_quotas import ClientQuotas, QuotaKind
from kraftlog.network.requests import QuotaClient
from kraftlog.telemetry.registry import Histogram

CLIENTS_MAX: Final = 10_000
IDLE_MAX_MS: Final = 3_600_000
"""Kafka's `InactiveSensorExpirationTimeSeconds`: an hour."""


class _Count:
    __slots__ = ("last_used_ms", "rate")

    def __init__(self, rate: WindowedRate, now_ms: float) -> None:
        self.rate = rate
        self.last_used_ms = now_ms


class QuotaUsage:
    """The rates of a broker's clients. Not thread-safe; time is monotonic, in milliseconds."""

    def __init__(
        self,
        quotas: ClientQuotas,
        *,
        window_count: int = WINDOW_COUNT,
        window_ms: int = WINDOW_MS,
        clients_max: int = CLIENTS_MAX,
    ) -> None:
        """`window_count` is `quota.window.num`; `window_ms` is `quota.window.size.seconds` in milliseconds."""
        self.quotas = quotas
        self._window_count = window_count
        self._window_ms = window_ms
        self._clients_max = clients_max
        self.throttle_times = {kind: Histogram() for kind in QuotaKind}
        """The throttle times of clients over their quota, in milliseconds, by the kind of quota."""
        self._counts: OrderedDict[tuple[QuotaKind, QuotaClient], _Count] = OrderedDict()
        """In the order of use, the least recently used one first."""

    def __len__(self) -> int:
        return len(self._counts)

    def record(self, kind: QuotaKind, client: QuotaClient, amount: float, now_ms: float) -> int:
        """Record an amount that a client has used. Return its throttle time in milliseconds, 0 within the quota.

        A request quota throttles for at most one window at a time (KIP-124).
        """
        limit = self.quotas.limit(kind, client)
        if limit is None:
            return 0
        rate = self._rate(kind, limit.shared_by, now_ms)
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(limit.per_second, now_ms)
        if kind is QuotaKind.REQUEST:
            throttle_ms = min(throttle_ms, self._window_ms)
        if throttle_ms:
            self.throttle_times[kind].observe(throttle_ms)
        return throttle_ms

    def take_back(self, kind: QuotaKind, client: QuotaClient, amount: float, now_ms: float) -> None:
        """Undo `record` of the same amount at the same time: the client did not get it after all."""
        limit = self.quotas.limit(kind, client)
        if limit is not None:
            self._rate(kind, limit.shared_by, now_ms).record(-amount, now_ms)

    def amount_max(self, kind: QuotaKind, client: QuotaClient) -> float:
        """Return the largest amount for which a client is not throttled, if it has used nothing before."""
        limit = self.quotas.limit(kind, client)
        return math.inf if limit is None else limit.per_second * (self._window_count - 1) * self._window_ms / 1_000

    def _rate(self, kind: QuotaKind, shared_by: QuotaClient, now_ms: float) -> WindowedRate:
        key = (kind, shared_by)
        count = self._counts.get(key)
        if count is None or now_ms - count.last_used_ms > IDLE_MAX_MS:
            self._make_room(now_ms)
            count = self._counts[key] = _Count(WindowedRate(now_ms, self._window_count, self._window_ms), now_ms)
        count.last_used_ms = now_ms
        self._counts.move_to_end(key)
        return count.rate

    def _make_room(self, now_ms: float) -> None:
        while self._counts:
            oldest = next(iter(self._counts.values()))
            if len(self._counts) < self._clients_max and now_ms - oldest.last_used_ms <= IDLE_MAX_MS:
                return
            self._counts.popitem(last=False)
