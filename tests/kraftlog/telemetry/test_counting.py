"""What a broker decides shows in its registry, by Kafka's names."""

from __future__ import annotations

import pytest

from kraftbase.partition import TopicPartition
from kraftlog.telemetry.counting import CountingObserver
from kraftlog.telemetry.observer import (
    Decision,
    FencingChanged,
    FetchEnd,
    IsrChangeAsked,
    IsrChanged,
    IsrChangeRefused,
    LeadershipRefused,
    LogTruncated,
    Observers,
)
from kraftlog.telemetry.registry import Registry
from tests.kraftlog.telemetry.recorder import Recorder

PARTITION = TopicPartition("t", 0)
AT_FIRST = {"Fenced": 1}


class Counted:
    def __init__(self) -> None:
        self.registry = Registry()
        self.observer = CountingObserver(self.registry)

    def values(self) -> dict[str, float]:
        """By name, or by label, what is not 0."""
        series = self.registry.all_series()
        return {one.label or one.metric.name: one.value for one in series if one.value}


@pytest.mark.parametrize(
    ("decision", "counted"),
    [
        (IsrChangeAsked("t-0", (1, 2), (1,)), {}),
        (IsrChanged("t-0", (1, 2), (1,)), {"IsrShrinksPerSec": 1}),
        (IsrChanged("t-0", (1,), (1, 2)), {"IsrExpandsPerSec": 1}),
        (IsrChanged("t-0", (1, 3), (1, 2)), {"IsrShrinksPerSec": 1, "IsrExpandsPerSec": 1}),
        (IsrChangeRefused("t-0", (1,), "INELIGIBLE_REPLICA", ""), {"FailedIsrUpdatesPerSec": 1}),
        (LogTruncated(PARTITION, 1, 5, 3, 3, False, ""), {"LogTruncations": 1}),
        (LeadershipRefused(PARTITION, 1, "its log is offline"), {"RefusedLeaderships": 1}),
    ],
)
def test_each_decision_is_counted_under_its_name(decision: Decision, counted: dict[str, int]) -> None:
    world = Counted()
    world.observer.decided(decision)
    assert world.values() == AT_FIRST | counted


def test_a_broker_is_fenced_until_the_controller_says_that_it_is_not() -> None:
    world = Counted()
    world.observer.decided(FencingChanged(is_fenced=False))
    assert world.values() == {}
    world.observer.decided(FencingChanged(is_fenced=True))
    assert world.values() == AT_FIRST


def test_the_purgatory_has_the_fetches_that_wait_and_those_in_vain_are_counted_by_who_reads() -> None:
    world = Counted()
    for replica_id in (2, 3, -1):
        world.observer.fetch_parked(replica_id, 0, 1, 500)
    assert world.values() == AT_FIRST | {"Fetch": 3}
    world.observer.fetch_completed(2, 100, FetchEnd.ENOUGH)
    world.observer.fetch_completed(3, 0, FetchEnd.TIME_OR_CLIENT)
    assert world.values() == AT_FIRST | {"Fetch": 1, "follower": 1}
    world.observer.fetch_completed(-1, 0, FetchEnd.TIME_OR_CLIENT)
    assert world.values() == AT_FIRST | {"follower": 1, "consumer": 1}
    world.observer.fetch_reads_later(2, 500)
    assert world.values() == AT_FIRST | {"follower": 1, "consumer": 1, "Fetch": 1}
    world.observer.fetch_completed(-1, 0, FetchEnd.READS_CANCELLED)
    assert world.values() == AT_FIRST | {"follower": 1, "consumer": 1}


def test_two_observers_are_told_the_same() -> None:
    first, second = Recorder(wants_details=False), Recorder()
    both = Observers(first, second)
    assert both.wants_details
    assert not Observers(first, first).wants_details
    decision = FencingChanged(is_fenced=True)
    both.decided(decision)
    both.fetch_parked(2, 0, 1, 500)
    both.fetch_completed(2, 9, FetchEnd.ENOUGH)
    both.fetch_reads_later(3, 500)
    assert first.decisions == second.decisions == [decision]
    assert first.fetches == second.fetches == [
        ("parked", 2, 0, 1, 500), ("completed", 2, 9, FetchEnd.ENOUGH), ("reads later", 3, 500),
    ]  # fmt: skip
