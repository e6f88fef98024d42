"""What clients have had, and how long they wait: counts that are shared, changed quotas, bounds (DB-92, DB-93)."""

from __future__ import annotations

import math

import pytest

from kraftlog.broker.quotas.client_quotas import ClientQuotas, QuotaKind
from kraftlog.broker.quotas.quota_usage import IDLE_MAX_MS, QuotaUsage
from kraftlog.network.requests import QuotaClient
from tests.kraftlog.broker.quotas.test_client_quotas import DEFAULT, changed, record, removed

PRODUCE = QuotaKind.PRODUCE


def had(usage: QuotaUsage, user: str, client_id: str, amount: float, now_ms: float = 0) -> int:
    return usage.record(PRODUCE, QuotaClient(user, client_id), amount, now_ms)


@pytest.fixture
def usage() -> QuotaUsage:
    return QuotaUsage(ClientQuotas())


def test_without_quotas_nothing_is_counted_and_nobody_waits(usage: QuotaUsage) -> None:
    assert had(usage, "ann", "etl", 1e15) == 0
    assert usage.amount_max(PRODUCE, QuotaClient("ann", "etl")) == math.inf
    assert len(usage) == 0


def test_db92_what_a_client_may_have_at_once_is_its_quota_for_all_windows_but_one() -> None:
    usage = QuotaUsage(ClientQuotas(), window_count=4)
    changed(usage.quotas, record(10, user=DEFAULT))
    assert usage.amount_max(PRODUCE, QuotaClient("ann", "etl")) == 30
    assert had(usage, "ann", "etl", 30) == 0
    assert had(usage, "ann", "etl", 1) == 100, "31 in 3 s is a thirtieth too much"


def test_db93_a_users_clients_share_its_quota_and_a_client_with_one_of_its_own_does_not(usage: QuotaUsage) -> None:
    changed(usage.quotas, record(1_000, user="ann"), record(1_000, user="ann", client_id="own"))
    assert had(usage, "ann", "one", 9_000) == 0
    assert had(usage, "ann", "two", 2_000) == 1_000
    assert had(usage, "ann", "three", 0) == 1_000
    assert had(usage, "ann", "own", 10_000) == 0
    assert had(usage, "bob", "one", 1e9) == 0


def test_db93_a_client_id_is_shared_by_users_and_counts_begin_anew_with_another_sharing(usage: QuotaUsage) -> None:
    by_id, by_user = record(1_000, client_id=DEFAULT), record(1_000, user=DEFAULT)
    changed(usage.quotas, by_id)
    assert had(usage, "ann", "etl", 11_000) == 1_000
    assert had(usage, "bob", "etl", 0) == 1_000
    assert had(usage, "bob", "other", 0) == 0
    changed(usage.quotas, by_user)
    assert had(usage, "ann", "etl", 0) == 0
    removed(usage.quotas, by_user)
    assert had(usage, "ann", "etl", 0) == 1_000


def test_another_quota_counts_from_the_next_request_on_with_what_was_had_before(usage: QuotaUsage) -> None:
    changed(usage.quotas, record(2_000, user="ann"))
    assert had(usage, "ann", "etl", 27_500) == 3_750
    changed(usage.quotas, record(3_000, user="ann"))
    assert had(usage, "ann", "etl", 0) == 0
    changed(usage.quotas, record(500, user="ann"))
    assert had(usage, "ann", "etl", 0) == 45_000


def test_db94_for_its_share_of_the_loop_nobody_waits_longer_than_a_window_at_a_time(usage: QuotaUsage) -> None:
    """One percent is 10 ms of a second: 4 ms in each of ten seconds, then 67.1 ms, is 10.2 ms of each."""
    changed(usage.quotas, record(1, "request_percentage", user="ann", client_id="etl"))
    now_ms = 0

    def took(milliseconds: float) -> int:
        return usage.record(QuotaKind.REQUEST, QuotaClient("ann", "etl"), milliseconds / 10, now_ms)

    for _ in range(10):
        assert took(4) == 0
        now_ms += 1_000
    now_ms += 500
    assert took(67.1) == 210
    now_ms += 210
    for _ in range(11):
        took(4)
        now_ms += 1_000
    assert took(0) == 0
    assert took(500) == 1_000
    for _ in range(10):
        now_ms += 1_000
        assert took(0) == 1_000
    now_ms += 1_000
    assert took(0) == 0


def test_what_is_taken_back_counts_for_nothing(usage: QuotaUsage) -> None:
    changed(usage.quotas, record(100, user="ann"))
    ann = QuotaClient("ann", "etl")
    assert usage.record(PRODUCE, ann, 2_000, 0) == 10_000
    usage.take_back(PRODUCE, ann, 2_000, 0)
    assert usage.record(PRODUCE, ann, 1_000, 0) == 0


def test_counts_are_forgotten_after_an_hour_and_the_oldest_when_there_are_too_many() -> None:
    usage = QuotaUsage(ClientQuotas(), clients_max=3)
    changed(usage.quotas, record(1, user=DEFAULT))
    for number in range(5):
        assert had(usage, f"user{number}", "", 20, number) == 10_000
    assert len(usage) == 3
    assert had(usage, "user2", "", 0, 5) > 0
    assert had(usage, "user3", "", 0, 5) > 0
    assert had(usage, "user0", "", 0, 5) == 0, "forgotten: it begins anew, in place of user 4"
    assert had(usage, "user4", "", 0, 5) == 0
    assert had(usage, "late", "", 0, 5 + IDLE_MAX_MS) == 0
    assert len(usage) == 3
    assert had(usage, "later", "", 0, 6 + IDLE_MAX_MS) == 0
    assert len(usage) == 2
