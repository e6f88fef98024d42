"""Throttled replication (KIP-73): who is throttled, and whether the rate is exceeded (DB-67). Pure.

A reassignment copies whole partitions. So that this does not take the network from clients, its replicas are listed in
`leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` of the topic, and the brokers have
a rate each for what they send and what they fetch of these. What is in sync is never left out, but counted: a follower
in the ISR that fetches late would delay every acks=all.

Both ends use it: a follower leaves out of its requests, a leader out of its answers, what is to wait.
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
        """Those on a broker in a list such as `0:101,1:102`, partition and broker, or `*` for all.

        Pairs that are none are left out: Kafka may have stored what is not checked here.
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
    """What one broker sends, or fetches, of throttled replicas. Time is in milliseconds that never go back."""

    def __init__(self, now_ms: float, window_count: int = WINDOW_COUNT, window_ms: int = WINDOW_MS) -> None:
        """The windows are `replication.quota.window.num` and `replication.quota.window.size.seconds`."""
        self._rate = WindowedRate(now_ms, window_count, window_ms)
        self._window_ms = window_ms

    def record(self, byte_count: int, now_ms: float) -> None:
        """So many bytes of throttled replicas went over the network, in sync or not."""
        self._rate.record(byte_count, now_ms)

    def wait_ms(self, limit_per_second: int, now_ms: float) -> int:
        """How long what is throttled and not in sync has to wait; 0 if not at all.

        At most a window: then one looks again, for the limit may have been raised.
        """
        if limit_per_second >= NO_LIMIT or self._rate.per_second(now_ms) <= limit_per_second:
            return 0
        if limit_per_second <= 0:
            return self._window_ms
        return max(1, min(self._rate.throttle_ms(limit_per_second, now_ms), self._window_ms))
