"""A follower's progress as its leader knows it from the follower's fetches (KAFKA-4485, DB-01 to DB-06).

The lag of a follower is a time, not a number of offsets: a follower lags at most `x` ms if its log end offset is at
least the leader's `x` ms ago. Consider a leader that appends a record every 10 ms, and a follower that fetches every
20 ms:

    time   leader's end   fetches from   the leader's end at its fetch before   caught up at
    1000   100            100            -                                      1000
    1020   102            100            100                                    1000, by the time of that fetch
    1040   104            102            102                                    1020

The follower never reaches the leader's end, but its lag is never above 20 ms (DB-03). By the first version of the rule
(DB-04), which used the time at which it last had the leader's end, it would leave the ISR after
`replica.lag.time.max.ms` for no fault of its own.
"""

from __future__ import annotations

from typing import Final

from kraftbase.sentinels import UNKNOWN_EPOCH, UNKNOWN_OFFSET

NEVER_MS: Final = float("-inf")
"""A time before every other time."""


class FollowerProgress:
    """One follower of one partition that this broker leads. Times are monotonic milliseconds."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "last_fetch_ms",
        "leader_end_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, caught_up_ms: float = NEVER_MS) -> None:
        """Begin without knowledge of the follower; it counts as caught up at `caught_up_ms`."""
        self.log_end_offset: int = UNKNOWN_OFFSET
        """The follower's log end offset; with `flush.before.ack` the end of its flushed part."""
        self.log_start_offset: int = UNKNOWN_OFFSET
        self.leader_end_at_last_fetch: int = UNKNOWN_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.caught_up_ms = caught_up_ms
        """The last time at which the follower had everything that the leader had at that time."""
        self.broker_epoch = UNKNOWN_EPOCH
        """The broker epoch in the last Fetch; -1 if it had none."""

    def fetched(
        self, offset: int, log_start_offset: int, leader_end: int, now_ms: float, broker_epoch: int = UNKNOWN_EPOCH
    ) -> None:
        """Note a Fetch from `offset`, when the leader's log ended at `leader_end` (DB-01)."""
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
        """Note that the same broker leads in a new leader epoch, and still knows the follower's log end offset (DB-60).

        A follower that is not in sync counts as never caught up until it fetches.
        """
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = self.caught_up_ms = now_ms if is_in_sync else NEVER_MS

    def lag_ms(self, now_ms: float) -> float:
        """Return how long ago the follower was caught up, in milliseconds; infinite if it never was (DB-02)."""
        return now_ms - self.caught_up_ms

    def is_caught_up(self, leader_end: int, now_ms: float, lag_max_ms: float) -> bool:
        """Whether the follower has the leader's log end offset, or lags by at most `lag_max_ms` (DB-02)."""
        return self.log_end_offset == leader_end or self.lag_ms(now_ms) <= lag_max_ms
