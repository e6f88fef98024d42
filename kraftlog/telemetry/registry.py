"""Counters, gauges and histograms of one broker, in its own process.

The counting module creates a counter once, with its label, and keeps it: a request costs only
`self._fetches.value += 1`. A value that a module keeps anyway, or that can be computed, is read on demand:
`Registry.read`. Labels come from fixed lists, such as the APIs or the log directories, so that clients cannot add any.

    requests = registry.counter(METRIC, "Fetch")
    requests.value += 1
    registry.read(OTHER_METRIC, lambda: len(sessions))
    for series in registry.all_series(): ...
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kraftbase.checks import check

SERIES_MAX: Final = 256
"""The most labels of one metric."""

TIME_BOUNDS_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
"""The upper bounds for durations from a fraction of a millisecond to half a minute."""


class Kind(Enum):
    """The meaning of a value."""

    COUNTER = 0
    """A number since the broker's start, which only grows. The difference of two readings gives the rate."""
    GAUGE = 1
    """The present value."""
    HISTOGRAM = 2
    """For each of some bounds, how many values were at most the bound, since the broker's start."""


@dataclass(frozen=True, slots=True)
class Metric:
    """The description of a metric, without a value."""

    group: str
    """The `type` of Kafka's MBean, or Kafka's group of metrics; KRAFTLOG if Kafka has no metric of this name."""
    name: str
    """Kafka's name. A counter keeps it, although Kafka's metric also has a rate: IsrShrinksPerSec."""
    kind: Kind
    meaning: str
    label: str = ""
    """The name of the label; empty if the metric has none."""


class Counter:
    """A number that its owner changes. For a gauge it may also go down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """The numbers of observed values, by their size."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = TIME_BOUNDS_MS) -> None:
        """`bounds` are inclusive upper bounds, ascending; one more bucket is for the values above all of them."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """The number of values in each bucket, not cumulative."""
        self.total = 0.0
        """The sum of all values."""

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """The number of observed values."""
        return sum(self.counts)


Read = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Series:
    """A metric with one of its labels, and the source of its value."""

    metric: Metric
    label: str
    source: Counter | Histogram | Read

    @property
    def value(self) -> float:
        """The present value; for a histogram the number of observed values."""
        match self.source:
            case Counter():
                return self.source.value
            case Histogram():
                return self.source.count
            case _:
                return self.source()


class Registry:
    """All series of a broker. For one thread."""

    def __init__(self) -> None:
        self._series: dict[Metric, dict[str, Series]] = {}

    def counter(self, metric: Metric, label: str = "") -> Counter:
        """Create a counter, or a gauge that its owner moves up and down."""
        counter = Counter()
        self._add(metric, label, counter)
        return counter

    def histogram(self, metric: Metric, histogram: Histogram, label: str = "") -> Histogram:
        """Add a histogram that a module of the broker has created."""
        self._add(metric, label, histogram)
        return histogram

    def read(self, metric: Metric, read: Read, label: str = "") -> None:
        """Add a value that `read` returns; it must be fast, and callable at any time."""
        self._add(metric, label, read)

    def _add(self, metric: Metric, label: str, source: Counter | Histogram | Read) -> None:
        series = self._series.setdefault(metric, {})
        check(bool(label) == bool(metric.label), f"{metric.name}: it has the label {metric.label!r}, not {label!r}")
        check(isinstance(source, Histogram) == (metric.kind is Kind.HISTOGRAM), f"{metric.name}: {metric.kind}")
        check(label not in series, f"{metric.name} {label!r}: it is counted already")
        check(len(series) < SERIES_MAX, f"{metric.name}: more than {SERIES_MAX} labels")
        series[label] = Series(metric, label, source)

    def all_series(self) -> Iterator[Series]:
        """Iterate over all series, by group and name, then by label."""
        for metric in sorted(self._series, key=lambda one: (one.group, one.name)):
            yield from (series for _, series in sorted(self._series[metric].items()))
