"""Throttles the bytes that a leader sends to followers of listed partitions (KIP-73, DB-67)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kraftlog.replicas.partitions.partition import Partition
from kraftlog.replicas.replication.throttle import NONE_THROTTLED, ReplicationQuota, ThrottledReplicas


class LeaderThrottleConfigs(Protocol):
    """The configs of throttled leaders."""

    def throttled_leaders(self, topic: str) -> ThrottledReplicas:
        """Return this broker's replicas in a topic's `leader.replication.throttled.replicas`."""
        ...

    def leader_rate(self) -> int:
        """Return `leader.replication.throttled.rate`: the bytes per second that this broker may send of them."""
        ...


class LeaderThrottle:
    """One broker's throttle for all followers. For one thread."""

    def __init__(self, configs: LeaderThrottleConfigs, now_ms: Callable[[], float]) -> None:
        self._configs = configs
        self._now_ms = now_ms
        self._quota = ReplicationQuota(now_ms())

    def record(self, partition: Partition, byte_count: int) -> None:
        """Note bytes that are sent to a follower, in sync or not; they count if the partition is listed."""
        if self._is_listed(partition):
            self._quota.record(byte_count, self._now_ms())

    def is_throttled(self, partition: Partition, replica_id: int) -> bool:
        """Whether a follower gets no records now; never true for one in the ISR, for which acks=all waits."""
        if not self._is_listed(partition) or replica_id in partition.isr:
            return False
        return self._quota.wait_ms(self._configs.leader_rate(), self._now_ms()) > 0

    def _is_listed(self, partition: Partition) -> bool:
        topic, number = partition.name
        throttled = self._configs.throttled_leaders(topic)
        return throttled is not NONE_THROTTLED and number in throttled
