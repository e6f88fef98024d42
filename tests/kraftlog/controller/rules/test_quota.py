"""The controller's mutation quota (CT-20, KIP-599)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.rules import quota
from kraftlog.controller.rules.quota import MutationLimit, MutationQuota, MutationQuotas, stored_limit
from tests.effort import examples

NOW = 1_700_000_000_000


def charge(quotas: MutationQuotas, client_id: str, mutations: int, stored: MutationLimit | None = None) -> None:
    """One operation that is appended."""
    owed = quotas.charge_of(client_id, NOW, lambda: stored)
    if owed is not None:
        owed(mutations)
        owed.charge()


def spend(bucket: MutationQuota, now_ms: int, mutations: int) -> None:
    bucket.check(now_ms, mutations)
    bucket.charge(now_ms, mutations)


def wait_ms(refusal: pytest.ExceptionInfo[ApiError]) -> int:
    """How long to wait, according to the message."""
    found = re.search(r"again in (\d+) ms", str(refusal.value))
    assert found is not None, refusal.value
    return int(found[1])


def test_a_rested_client_may_use_its_burst_and_go_into_debt_once() -> None:
    bucket = MutationQuota("app", MutationLimit(5, 500))
    spend(bucket, NOW, 560)
    with pytest.raises(ApiError) as refusal:
        spend(bucket, NOW, 1)
    assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    for part in ("client 'app'", "more than 5 partitions per second (the setting controller.mutation.rate)", "raised"):
        assert part in str(refusal.value)
    assert wait_ms(refusal) == 12_000  # the example of KIP-599


def test_it_is_strict_what_is_refused_costs_nothing() -> None:
    bucket = MutationQuota("app", MutationLimit(10, 10))
    spend(bucket, NOW, 20)
    for _ in range(5):
        with pytest.raises(ApiError) as refusal:
            spend(bucket, NOW, 1_000)
        assert wait_ms(refusal) == 1_000
    spend(bucket, NOW + 1_000, 1)


def test_a_long_rest_saves_up_the_burst_and_not_more() -> None:
    bucket = MutationQuota("app", MutationLimit(10, 30))
    spend(bucket, NOW, 1)
    later = NOW + 3_600_000
    spend(bucket, later, 30)
    spend(bucket, later, 1)
    with pytest.raises(ApiError) as refusal:
        spend(bucket, later, 1)
    assert wait_ms(refusal) == 100


@settings(max_examples=examples(100), deadline=None)
@given(
    rate=st.floats(0.01, 10_000),
    burst=st.floats(0.5, 100_000),
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 10_000)), min_size=1, max_size=50),
)
def test_the_rate_holds_on_average_and_whoever_waits_as_told_is_let_through(
    rate: float, burst: float, steps: list[tuple[int, int]]
) -> None:
    bucket = MutationQuota("app", MutationLimit(rate, burst))
    now_ms, done, largest = NOW, 0, 0
    for pause_ms, mutations in steps:
        now_ms += pause_ms
        try:
            spend(bucket, now_ms, mutations)
        except ApiError as error:
            found = re.search(r"again in (\d+) ms", str(error))
            assert found is not None and int(found[1]) > 0
            now_ms += int(found[1])
            spend(bucket, now_ms, mutations)
        done, largest = done + mutations, max(largest, mutations)
        assert done <= (burst + (now_ms - NOW) * rate / 1_000 + largest) * 1.000_001


@pytest.mark.parametrize(("new_rate", "wait"), [(20, 500), (5, 2_000)])
def test_what_is_owed_is_owed_still_when_the_rate_is_another(new_rate: float, wait: int) -> None:
    bucket = MutationQuota("app", MutationLimit(10, 10))
    spend(bucket, NOW, 20)
    bucket.change(stored_limit(new_rate, "a quota"), NOW)
    with pytest.raises(ApiError, match=rf"more than {new_rate} partitions per second \(a quota\)") as refusal:
        spend(bucket, NOW, 1)
    assert wait_ms(refusal) == wait


def test_a_bucket_that_was_never_used_is_full_at_another_rate_too() -> None:
    bucket = MutationQuota("app", MutationLimit(10, 10))
    bucket.change(MutationLimit(1, 5), NOW)
    spend(bucket, NOW, 6)
    with pytest.raises(ApiError) as refusal:
        spend(bucket, NOW, 1)
    assert wait_ms(refusal) == 1_000


@pytest.mark.parametrize("rate", [5e-324, 1.7e308])
def test_a_stored_rate_may_be_any_number_above_0(rate: float) -> None:
    bucket = MutationQuota("app", stored_limit(rate, "a quota"))
    spend(bucket, NOW, 10_000_000)
    if rate < 1:
        with pytest.raises(ApiError) as refusal:
            spend(bucket, NOW, 1)
        assert wait_ms(refusal) > 0
    else:
        spend(bucket, NOW, 1)


def test_a_client_without_an_id_is_told_so() -> None:
    quotas = MutationQuotas(1, 1)
    charge(quotas, "", 5)
    with pytest.raises(ApiError, match="a client without an id creates"):
        charge(quotas, "", 1)


def test_it_is_off_by_default() -> None:
    assert MutationQuotas().charge_of("client", NOW, lambda: None) is None


def test_what_is_stored_comes_before_the_setting_and_is_looked_up_once() -> None:
    quotas = MutationQuotas(1_000, 1_000)
    asked: list[str] = []

    def look_up() -> MutationLimit:
        asked.append("stored")
        return stored_limit(1, "a quota")

    for _ in range(3):
        owed = quotas.charge_of("a", NOW, look_up)
        assert owed is not None
        owed(4)
        owed.charge()
    refused = quotas.charge_of("a", NOW, look_up)
    assert refused is not None
    with pytest.raises(ApiError, match="a quota"):
        refused(1)
    assert len(asked) == 1
    quotas.look_up_again()
    with pytest.raises(ApiError, match="the setting") as refusal:
        charge(quotas, "a", 1)
    assert wait_ms(refusal) == 1  # the one partition that is owed


def test_each_client_has_its_own_and_the_burst_is_kafkas_by_default() -> None:
    quotas = MutationQuotas(partitions_per_second=2)
    charge(quotas, "a", 22)
    charge(quotas, "a", 1)
    with pytest.raises(ApiError) as refusal:
        charge(quotas, "a", 1)
    assert wait_ms(refusal) == 500
    charge(quotas, "b", 1)
    assert len(quotas) == 2


def test_the_client_that_was_seen_least_lately_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "CLIENTS_MAX", 2)
    quotas = MutationQuotas(1, 1)
    charge(quotas, "a", 5)
    charge(quotas, "b", 5)
    with pytest.raises(ApiError):
        charge(quotas, "a", 1)
    charge(quotas, "c", 5)
    assert len(quotas) == 2
    with pytest.raises(ApiError):
        charge(quotas, "a", 1)
    charge(quotas, "b", 1)


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0), (float("nan"), 1), (1, float("inf"))])
def test_a_rate_that_is_none_is_refused_at_once(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        MutationQuota("app", MutationLimit(rate, burst))
    with pytest.raises(ValueError, match="above 0"):
        MutationQuotas(rate, burst)
