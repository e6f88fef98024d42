"""The registry: what is counted is shown, in order, and no label comes from outside."""

from __future__ import annotations

import pytest

from kraftbase.errors import InvariantViolation
from kraftlog.telemetry.registry import SERIES_MAX, Counter, Histogram, Kind, Metric, Registry

REQUESTS = Metric("Sockets", "requests", Kind.COUNTER, "requests")
BY_REASON = Metric("Sockets", "closed", Kind.COUNTER, "connections that have ended", "reason")
SESSIONS = Metric("Cache", "sessions", Kind.GAUGE, "sessions")
TIMES = Metric("Requests", "times", Kind.HISTOGRAM, "how long requests take")


def shown(registry: Registry) -> list[tuple[str, str, float]]:
    return [(series.metric.name, series.label, series.value) for series in registry.all_series()]


def test_values_are_those_of_the_moment_in_the_order_of_groups_names_and_labels() -> None:
    registry, sessions = Registry(), [1, 2]
    requests = registry.counter(REQUESTS)
    slow, idle = registry.counter(BY_REASON, "slow"), registry.counter(BY_REASON, "idle")
    registry.read(SESSIONS, lambda: len(sessions))
    requests.value += 2
    idle.value += 1
    assert shown(registry) == [("sessions", "", 2), ("closed", "idle", 1), ("closed", "slow", 0), ("requests", "", 2)]
    sessions.clear()
    slow.value += 5
    assert shown(registry) == [("sessions", "", 0), ("closed", "idle", 1), ("closed", "slow", 5), ("requests", "", 2)]


def test_a_histogram_counts_a_value_at_the_first_bound_that_is_not_below_it() -> None:
    histogram = Histogram((1, 10))
    for value in (0, 1, 1.5, 10, 10.5, 99):
        histogram.observe(value)
    assert (histogram.counts, histogram.count, histogram.total) == ([2, 2, 2], 6, 122)
    registry = Registry()
    registry.histogram(TIMES, histogram)
    assert shown(registry) == [("times", "", 6)]


def test_a_series_is_made_once_with_the_label_that_its_metric_has() -> None:
    registry = Registry()
    registry.counter(REQUESTS)
    with pytest.raises(InvariantViolation, match="requests '': it is counted already"):
        registry.counter(REQUESTS)
    with pytest.raises(InvariantViolation, match="requests: it has the label '', not 'a'"):
        registry.counter(REQUESTS, "a")
    with pytest.raises(InvariantViolation, match="closed: it has the label 'reason', not ''"):
        registry.read(BY_REASON, lambda: 1)
    with pytest.raises(InvariantViolation, match=r"times: Kind\.HISTOGRAM"):
        registry.counter(TIMES)


def test_a_metric_has_a_bounded_number_of_labels() -> None:
    registry = Registry()
    counters: list[Counter] = [registry.counter(BY_REASON, str(number)) for number in range(SERIES_MAX)]
    with pytest.raises(InvariantViolation, match=f"closed: more than {SERIES_MAX} labels"):
        registry.counter(BY_REASON, "one more")
    assert len(list(registry.all_series())) == len(counters)
