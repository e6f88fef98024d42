"""What a leader knows of a follower (KAFKA-4485): DB-01, DB-02, DB-03, DB-04, DB-60."""

from __future__ import annotations

from kraftlog.replicas.replication.follower_progress import NEVER_MS, FollowerProgress

LAG_MAX_MS = 30_000


def test_db01_a_follower_is_caught_up_now_or_was_at_its_fetch_before_or_not() -> None:
    follower = FollowerProgress()
    follower.fetched(100, 0, leader_end=100, now_ms=1_000)
    assert follower.caught_up_ms == 1_000
    follower.fetched(100, 0, leader_end=102, now_ms=1_020)
    assert follower.caught_up_ms == 1_000  # it has what the leader had at its fetch before
    follower.fetched(102, 0, leader_end=104, now_ms=1_040)
    assert follower.caught_up_ms == 1_020
    follower.fetched(103, 0, leader_end=106, now_ms=1_060)
    assert follower.caught_up_ms == 1_020  # 103 is less than the 104 of then
    assert follower.lag_ms(1_060) == 40


def test_db02_lag_is_time_and_who_has_the_leaders_end_is_caught_up_however_long_ago_it_fetched() -> None:
    follower = FollowerProgress()
    assert follower.lag_ms(0) == float("inf")
    follower.fetched(7, 0, leader_end=7, now_ms=1_000)
    assert follower.is_caught_up(7, 1_000_000, LAG_MAX_MS)
    assert follower.is_caught_up(8, 1_000 + LAG_MAX_MS, LAG_MAX_MS)
    assert not follower.is_caught_up(8, 1_001 + LAG_MAX_MS, LAG_MAX_MS)


def test_db03_a_follower_that_is_always_one_small_batch_behind_never_lags() -> None:
    """The first bug of KAFKA-4485: by the rule of then it left the ISR, as it never had the leader's end."""
    follower = FollowerProgress(caught_up_ms=0)
    for number in range(10 * LAG_MAX_MS // 100):
        now_ms = number * 100
        follower.fetched(number, 0, leader_end=number + 1, now_ms=now_ms)
        assert follower.is_caught_up(number + 1, now_ms, LAG_MAX_MS)
        assert follower.lag_ms(now_ms) <= 200


def test_db04_it_is_the_leaders_end_of_the_fetch_before_that_counts_and_not_this_ones_time() -> None:
    """By the first version of the rule, one that has only what the leader had before would be caught up now."""
    follower = FollowerProgress()
    follower.fetched(5, 0, leader_end=10, now_ms=0)
    follower.fetched(10, 0, leader_end=1_000, now_ms=20_000)
    assert follower.caught_up_ms == 0
    follower.fetched(11, 0, leader_end=2_000, now_ms=40_000)
    assert follower.caught_up_ms == 0
    assert not follower.is_caught_up(2_000, 40_000, LAG_MAX_MS)


def test_db60_a_leader_that_is_elected_again_keeps_offsets_and_takes_only_those_in_sync_for_caught_up() -> None:
    for is_in_sync in (True, False):
        follower = FollowerProgress()
        follower.fetched(5, 2, leader_end=5, now_ms=100, broker_epoch=9)
        follower.led_again(8, 1_000, is_in_sync=is_in_sync)
        assert (follower.log_end_offset, follower.log_start_offset, follower.broker_epoch) == (5, 2, 9)
        assert follower.leader_end_at_last_fetch == 8
        expected = 1_000 if is_in_sync else NEVER_MS
        assert (follower.caught_up_ms, follower.last_fetch_ms) == (expected, expected)
