"""Who is throttled (KIP-73), and for how long (DB-67)."""

from __future__ import annotations

import pytest

from kraftlog.replicas.replication.throttle import NO_LIMIT, ReplicationQuota, ThrottledReplicas


@pytest.mark.parametrize(
    ("text", "throttled"),
    [
        ("0:101,1:102", {0}),
        (" 0:101 , 7:101,3:102 ", {0, 7}),
        ("*", {0, 1, 3, 7}),
        ("", set()),
        ("none", set()),
        ("0:1010,x:101,1,:101,-1:101", set()),
    ],
)
def test_the_partitions_of_this_broker_in_a_list(text: str, throttled: set[int]) -> None:
    found = ThrottledReplicas.parse(text, 101)
    assert {number for number in (0, 1, 3, 7) if number in found} == throttled
    assert bool(found) == bool(throttled)


def test_db67_over_the_rate_it_waits_until_the_rate_is_within_or_for_a_window() -> None:
    quota = ReplicationQuota(0)
    quota.record(5_000, 0)
    assert quota.wait_ms(500, 0) == 0  # 500 a second, as ten whole windows count
    quota.record(100, 0)
    assert quota.wait_ms(500, 0) == 200
    quota.record(50_000, 0)
    assert quota.wait_ms(500, 0) == 1_000
    assert quota.wait_ms(NO_LIMIT, 0) == 0
    assert quota.wait_ms(500, 20_000) == 0


def test_db67_a_rate_of_nothing_lets_nothing_follow_something() -> None:
    quota = ReplicationQuota(0)
    assert quota.wait_ms(0, 0) == 0
    quota.record(1, 0)
    assert quota.wait_ms(0, 0) == 1_000
