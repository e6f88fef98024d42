"""What a leader knows of one follower, from the follower's fetches (KAFKA-4485, DB-01 to DB-06).

The lag of a follower is a time, not a number of offsets: it lags at most `x` ms if its end is at least the end that the
leader had `x` ms ago. Consider a leader that takes a record every 10 ms, and a follower that fetches every 20 ms:

    time   leader's end   fetches from   the leader's end at its fetch before   caught up at
    1000   100            100            -                                      1000
    1020   102            100            100                                    1000, by the time of that fetch
    1040   104            102            102                                    1020

It never has the leader's end, and its lag is never above 20 ms (DB-03). By the first version of the rule (DB-04), the
time when it last had the leader's end, it would leave the ISR after `replica.lag.time.max.ms` for no fault of its own.
"""

from __future__ import annotations

from typing import Final

from kraftbase.sentinels import UNKNOWN_EPOCH, UNKNOWN_OFFSET

NEVER_MS: Final = float("-inf")
"""A time before every other one."""


class FollowerProgress:
    """One follower of one partition, for as long as this broker leads that. Times are monotonic milliseconds."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "last_fetch_ms",
        "leader_end_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, caught_up_ms: float = NEVER_MS) -> None:
        """Nothing is known of it, but that it counts as caught up at that time."""
        self.log_end_offset: int = UNKNOWN_OFFSET
        """Where its log ends; with `flush.before.ack` what of it is on its disk."""
        self.log_start_offset: int = UNKNOWN_OFFSET
        self.leader_end_at_last_fetch: int = UNKNOWN_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.caught_up_ms = caught_up_ms
        """When it last had what the leader had then."""
        self.broker_epoch = UNKNOWN_EPOCH
        """The epoch of the broker that fetched; -1 if it did not say."""

    def fetched(
        self, offset: int, log_start_offset: int, leader_end: int, now_ms: float, broker_epoch: int = UNKNOWN_EPOCH
    ) -> None:
        """It has fetched from `offset`, when the leader's log ended at `leader_end` (DB-01)."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_last_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.leader_end_at_last_fetch = max(self.leader_end_at_last_fetch, leader_end)
        self.last_fetch_ms = now_ms
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch

    def led_again(self, leader_end: int, now_ms: float, *, is_in_sync: bool) -> None:
        """The same broker leads in a new epoch: it knows the follower's end still (DB-60).

        One that is not in sync is not caught up before it fetches.
        """
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = self.caught_up_ms = now_ms if is_in_sync else NEVER_MS

    def lag_ms(self, now_ms: float) -> float:
        """How long ago it was caught up; infinite if it never was (DB-02)."""
        return now_ms - self.caught_up_ms

    def is_caught_up(self, leader_end: int, now_ms: float, lag_max_ms: float) -> bool:
        """Whether it has the leader's end, or lags no longer than that (DB-02)."""
        return self.log_end_offset == leader_end or self.lag_ms(now_ms) <= lag_max_ms
