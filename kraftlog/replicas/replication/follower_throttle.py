"""Leaves throttled partitions out of the requests to one broker while the quota is exceeded (DB-67)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kraftbase.runtime import Runtime, Timer
from kraftlog.replicas.replication.followed_partition import FollowedPartition
from kraftlog.replicas.replication.throttle import NONE_THROTTLED, ReplicationQuota, ThrottledReplicas


class FollowerThrottleConfigs(Protocol):
    """The configs of throttled followers."""

    def throttled_followers(self, topic: str) -> ThrottledReplicas:
        """Return this broker's replicas in a topic's `follower.replication.throttled.replicas`."""
        ...

    def follower_rate(self) -> int:
        """Return `follower.replication.throttled.rate`: the bytes per second that this broker may fetch for them."""
        ...


class FollowerThrottle:
    """The throttle of one fetcher. `quota` is the broker's; `resume` lets a partition be fetched again."""

    def __init__(
        self, broker_id: int, throttle: FollowerThrottleConfigs, quota: ReplicationQuota, runtime: Runtime,
        resume: Callable[[FollowedPartition], object],
    ) -> None:  # fmt: skip
        self._broker_id = broker_id
        self._throttle = throttle
        self._quota = quota
        self._runtime = runtime
        self._resume = resume
        self._tracked: dict[FollowedPartition, None] = {}
        self._left_out: dict[FollowedPartition, None] = {}
        self._timer: Timer | None = None

    def track(self, followed: FollowedPartition) -> None:
        """Note whether a partition that is about to be fetched may be left out."""
        if self._is_listed(followed) and not self._is_in_sync(followed):
            self._tracked[followed] = None
        else:
            self._tracked.pop(followed, None)

    def _is_listed(self, followed: FollowedPartition) -> bool:
        topic, number = followed.partition.name
        throttled = self._throttle.throttled_followers(topic)
        return throttled is not NONE_THROTTLED and number in throttled

    def _is_in_sync(self, followed: FollowedPartition) -> bool:
        """Whether a partition is never left out: a replica in the ISR holds up acks=all, however much it lags.

        Kafka's followers check only their lag.
        """
        return followed.lag == 0 or self._broker_id in followed.partition.record.isr

    def record(self, followed: FollowedPartition, byte_count: int) -> None:
        """Count fetched bytes if the partition is listed, in sync or not."""
        if self._is_listed(followed):
            self._quota.record(byte_count, self._runtime.now_ms())

    def take_throttled(self) -> list[FollowedPartition]:
        """Return the partitions to leave out now; `resume` is called for them later."""
        if not self._tracked:
            return []
        wait_ms = self._quota.wait_ms(self._throttle.follower_rate(), self._runtime.now_ms())
        if not wait_ms:
            return []
        found = list(self._tracked)
        self._left_out |= self._tracked
        self._tracked = {}
        if self._timer is None:
            self._timer = self._runtime.call_later(wait_ms, self._waited)
        return found

    def _waited(self) -> None:
        self._timer = None
        left_out, self._left_out = self._left_out, {}
        for followed in left_out:
            self._resume(followed)

    def untrack(self, followed: FollowedPartition) -> None:
        """Forget a partition that is no longer followed."""
        self._tracked.pop(followed, None)
        self._left_out.pop(followed, None)

    def stop(self) -> None:
        """Cancel the timer: the fetcher has stopped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
