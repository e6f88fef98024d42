"""Leaves throttled partitions out of what is fetched from one broker while the quota is exceeded (DB-67)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kraftbase.runtime import Runtime, Timer
from kraftlog.replicas.replication.followed_partition import FollowedPartition
from kraftlog.replicas.replication.throttle import NONE_THROTTLED, ReplicationQuota, ThrottledReplicas


class FollowerThrottle(Protocol):
    """What the configs say of throttled followers."""

    def throttled_followers(self, topic: str) -> ThrottledReplicas:
        """This broker's in `follower.replication.throttled.replicas` of a topic."""
        ...

    def follower_rate(self) -> int:
        """`follower.replication.throttled.rate`: bytes per second that this broker may fetch for them."""
        ...


class ThrottledFetches:
    """Of one fetcher. `quota` is the broker's; `resume` has a partition fetched again."""

    def __init__(
        self, broker_id: int, throttle: FollowerThrottle, quota: ReplicationQuota, runtime: Runtime,
        resume: Callable[[FollowedPartition], object],
    ) -> None:  # fmt: skip
        self._broker_id = broker_id
        self._throttle = throttle
        self._quota = quota
        self._runtime = runtime
        self._resume = resume
        self._fetched: dict[FollowedPartition, None] = {}
        self._left_out: dict[FollowedPartition, None] = {}
        self._timer: Timer | None = None

    def look_at(self, followed: FollowedPartition) -> None:
        """A partition is about to be fetched: it is left out if it must be."""
        if self._is_listed(followed) and not self._is_in_sync(followed):
            self._fetched[followed] = None
        else:
            self._fetched.pop(followed, None)

    def _is_listed(self, followed: FollowedPartition) -> bool:
        topic, number = followed.partition.name
        throttled = self._throttle.throttled_followers(topic)
        return throttled is not NONE_THROTTLED and number in throttled

    def _is_in_sync(self, followed: FollowedPartition) -> bool:
        """Kafka's followers go by their lag alone. Who is in the ISR holds up acks=all, however much it lags."""
        return followed.lag == 0 or self._broker_id in followed.partition.record.isr

    def fetched(self, followed: FollowedPartition, byte_count: int) -> None:
        """So many bytes were fetched; those of a listed partition count, in sync or not."""
        if self._is_listed(followed):
            self._quota.record(byte_count, self._runtime.now_ms())

    def to_leave_out(self) -> list[FollowedPartition]:
        """Those that are not to be fetched now; they are told to `resume` later."""
        if not self._fetched:
            return []
        wait_ms = self._quota.wait_ms(self._throttle.follower_rate(), self._runtime.now_ms())
        if not wait_ms:
            return []
        found = list(self._fetched)
        self._left_out |= self._fetched
        self._fetched = {}
        if self._timer is None:
            self._timer = self._runtime.call_later(wait_ms, self._waited)
        return found

    def _waited(self) -> None:
        self._timer = None
        left_out, self._left_out = self._left_out, {}
        for followed in left_out:
            self._resume(followed)

    def forget(self, followed: FollowedPartition) -> None:
        """It is fetched no more."""
        self._fetched.pop(followed, None)
        self._left_out.pop(followed, None)

    def stop(self) -> None:
        """Nothing is fetched any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
