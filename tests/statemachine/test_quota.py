"""The controller's mutation quota (CT-20, KIP-599)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raft.core.errors import ErrorCode, ProtocolError
from statemachine import quota
from statemachine.quota import MutationQuota, MutationQuotas

NOW = 1_700_000_000_000


def wait_ms(refusal: pytest.ExceptionInfo[ProtocolError]) -> int:
    """How long the message says to wait."""
    found = re.search(r"again in (\d+) ms", str(refusal.value))
    assert found is not None, refusal.value
    return int(found[1])


def test_a_rested_client_may_use_its_burst_and_go_into_debt_once() -> None:
    bucket = MutationQuota(partitions_per_second=5, burst=500)
    bucket.check(NOW, 560)
    with pytest.raises(
        ProtocolError, match=r"more than 5 partitions per second \(controller.mutation.rate\)"
    ) as refusal:
        bucket.check(NOW, 1)
    assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert wait_ms(refusal) == 12_000  # the example of KIP-599


def test_it_is_strict_what_is_refused_costs_nothing() -> None:
    bucket = MutationQuota(10, 10)
    bucket.check(NOW, 20)
    for _ in range(5):
        with pytest.raises(ProtocolError) as refusal:
            bucket.check(NOW, 1_000)
        assert wait_ms(refusal) == 1_000
    bucket.check(NOW + 1_000, 1)


def test_a_long_rest_saves_up_the_burst_and_not_more() -> None:
    bucket = MutationQuota(10, 30)
    bucket.check(NOW, 1)
    later = NOW + 3_600_000
    bucket.check(later, 30)
    bucket.check(later, 1)
    with pytest.raises(ProtocolError) as refusal:
        bucket.check(later, 1)
    assert wait_ms(refusal) == 100


@settings(max_examples=100, deadline=None)
@given(
    rate=st.floats(0.01, 10_000),
    burst=st.floats(0.5, 100_000),
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 10_000)), min_size=1, max_size=50),
)
def test_the_rate_holds_on_average_and_whoever_waits_as_told_is_let_through(
    rate: float, burst: float, steps: list[tuple[int, int]]
) -> None:
    bucket = MutationQuota(rate, burst)
    now_ms, done, largest = NOW, 0, 0
    for pause_ms, mutations in steps:
        now_ms += pause_ms
        try:
            bucket.check(now_ms, mutations)
        except ProtocolError as error:
            found = re.search(r"again in (\d+) ms", str(error))
            assert found is not None and int(found[1]) > 0
            now_ms += int(found[1])
            bucket.check(now_ms, mutations)
        done, largest = done + mutations, max(largest, mutations)
        assert done <= (burst + (now_ms - NOW) * rate / 1_000 + largest) * 1.000_001


def test_it_is_off_by_default() -> None:
    quotas = MutationQuotas()
    for _ in range(10):
        quotas.check("client", NOW, 1_000_000)
    assert len(quotas) == 0


def test_each_client_has_its_own_and_the_burst_is_kafkas_by_default() -> None:
    quotas = MutationQuotas(partitions_per_second=2)
    quotas.check("a", NOW, 22)
    quotas.check("a", NOW, 1)
    with pytest.raises(ProtocolError) as refusal:
        quotas.check("a", NOW, 1)
    assert wait_ms(refusal) == 500
    quotas.check("b", NOW, 1)
    assert len(quotas) == 2


def test_the_client_that_was_seen_least_lately_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "CLIENTS_MAX", 2)
    quotas = MutationQuotas(1, 1)
    quotas.check("a", NOW, 5)
    quotas.check("b", NOW, 5)
    with pytest.raises(ProtocolError):
        quotas.check("a", NOW, 1)
    quotas.check("c", NOW, 5)
    assert len(quotas) == 2
    with pytest.raises(ProtocolError):
        quotas.check("a", NOW, 1)
    quotas.check("b", NOW, 1)


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0), (float("nan"), 1), (1, float("inf"))])
def test_a_rate_that_is_none_is_refused_at_once(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        MutationQuota(rate, burst)
    with pytest.raises(ValueError, match="above 0"):
        MutationQuotas(rate, burst)
