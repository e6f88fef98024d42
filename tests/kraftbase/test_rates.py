"""Rates and throttle times with the figures of Kafka's own (DB-92)."""

from __future__ import annotations

import pytest

from kraftbase.rates import THROTTLE_MAX_MS, WindowedRate


def test_db92_a_steady_client_within_its_quota_never_waits_and_a_burst_waits_as_long_as_it_must() -> None:
    """400 bytes in each of ten seconds and 2,300 in the middle of the next: 6,300 in 10.5 s, a fifth above 500."""
    rate = WindowedRate(0)
    now_ms = 0
    for _ in range(10):
        rate.record(400, now_ms)
        assert rate.throttle_ms(500, now_ms) == 0
        now_ms += 1_000
    now_ms += 500
    rate.record(2_300, now_ms)
    assert rate.per_second(now_ms) == 600
    assert rate.throttle_ms(500, now_ms) == 2_100
    now_ms += 2_100
    for _ in range(10):
        rate.record(400, now_ms)
        now_ms += 1_000
    assert rate.throttle_ms(500, now_ms) == 0, "the burst is too old to count"


@pytest.mark.parametrize(
    ("window_count", "amount", "limit", "throttle_ms"),
    [(3, 200.0, 50, 2_000), (2, 55.0, 50, 100), (10, 9 * 16.5, 16.5, 0), (10, 9 * 16.5, 20.4, 0)],
)
def test_db92_a_burst_at_the_beginning_is_of_all_windows_but_one(
    window_count: int, amount: float, limit: float, throttle_ms: int
) -> None:
    rate = WindowedRate(70, window_count)
    rate.record(amount, 70)
    assert rate.per_second(70) == amount / (window_count - 1)
    assert rate.throttle_ms(limit, 70) == throttle_ms


def test_db92_a_sample_counts_while_its_last_amount_is_recent_and_the_time_goes_back_to_its_beginning() -> None:
    rate = WindowedRate(0, 2)
    rate.record(10, 0)
    rate.record(11, 900)
    assert (rate.span_ms(2_100), rate.per_second(2_100)) == (2_100, 10)
    assert rate.per_second(2_899) == pytest.approx(21 / 2.899)
    assert rate.per_second(2_900) == 0


def test_db92_one_sample_more_than_there_are_windows_is_kept_and_used_again() -> None:
    rate = WindowedRate(0, 2)
    for now_ms, amount in [(0, 1), (999, 10), (1_000, 100), (2_000, 1_000)]:
        rate.record(amount, now_ms)
    assert rate.per_second(2_998) == pytest.approx(1_111 / 2.998)
    assert rate.per_second(2_999) == pytest.approx(1_100 / 1.999)
    rate.record(10_000, 3_000)
    assert rate.per_second(3_000) == 11_000


def test_an_amount_that_is_taken_back_counts_for_nothing() -> None:
    rate = WindowedRate(0)
    rate.record(100, 0)
    rate.record(5_000, 300)
    rate.record(-5_000, 300)
    assert rate.per_second(1_000) == 10


def test_a_rate_over_no_time_is_over_a_millisecond() -> None:
    rate = WindowedRate(5, 1)
    rate.record(3, 5)
    assert rate.per_second(5) == 3_000


def test_no_wait_is_longer_than_its_field() -> None:
    rate = WindowedRate(0)
    rate.record(1e12, 0)
    assert rate.throttle_ms(1e-6, 0) == THROTTLE_MAX_MS
