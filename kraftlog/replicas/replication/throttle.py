"""Throttled replication (KIP-73): which replicas are throttled, and whether the rate is exceeded (DB-67). Pure.

A reassignment copies whole partitions. To leave network bandwidth to clients, an operator lists its replicas in the
topic's `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas`, and sets rates for the
bytes of listed replicas that a broker sends and fetches. The bytes of replicas in sync count, but these replicas are
never held back: a follower in the ISR that fetches late would delay every acks=all.

Both ends use this module: a follower leaves throttled partitions out of its requests, a leader out of its responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftbase.rates import WINDOW_COUNT, WINDOW_MS, WindowedRate

ALL: Final = "*"
NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The partitions of one topic whose replicas on one broker are throttled."""

    partitions: frozenset[int] = frozenset()
    are_all: bool = False

    @classmethod
    def parse(cls, text: str, broker_id: int) -> ThrottledReplicas:
        """Parse a list such as `0:101,1:102`, of partitions and brokers, or `*` for all; return the broker's replicas.

        Malformed pairs are ignored: Kafka may have stored values that were never checked.
        """
        if text.strip() == ALL:
            return cls(are_all=True)
        pairs = (pair.strip().partition(":") for pair in text.split(","))
        return cls(
            frozenset(
                int(number)
                for number, _, broker in pairs
                if number.isascii() and number.isdigit() and broker.strip() == str(broker_id)
            )
        )

    def __contains__(self, partition_id: int) -> bool:
        return self.are_all or partition_id in self.partitions

    def __bool__(self) -> bool:
        return self.are_all or bool(self.partitions)


NONE_THROTTLED: Final = ThrottledReplicas()


class ReplicationQuota:
    """The rate of the bytes that one broker sends, or fetches, for throttled replicas. Time is monotonic, in ms."""

    def __init__(self, now_ms: float, window_count: int = WINDOW_COUNT, window_ms: int = WINDOW_MS) -> None:
        """The windows are `replication.quota.window.num` and `replication.quota.window.size.seconds`."""
        self._rate = WindowedRate(now_ms, window_count, window_ms)
        self._window_ms = window_ms

    def record(self, byte_count: int, now_ms: float) -> None:
        """Count bytes of throttled replicas, in sync or not, that went over the network."""
        self._rate.record(byte_count, now_ms)

    def wait_ms(self, limit_per_second: int, now_ms: float) -> int:
        """Return how long throttled replicas outside the ISR must wait, in milliseconds; 0 if not at all.

        At most the length of a window: the caller then checks again, since the limit may have been raised.
        """
        if limit_per_second >= NO_LIMIT or self._rate.per_second(now_ms) <= limit_per_second:
            return 0
        if limit_per_second <= 0:
            return self._window_ms
        return max(1, min(self._rate.throttle_ms(limit_per_second, now_ms), self._window_ms))
