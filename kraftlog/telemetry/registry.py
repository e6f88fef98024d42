"""Counters, gauges and histograms of one broker, in its own process.

A counter is made once, with its label, and held by who counts: `self._fetches.value += 1` is all that a request costs.
What some part counts for itself, or what can be worked out, is read when somebody asks: `Registry.read`. Labels come
from lists that are known beforehand, such as the APIs or the log directories, so that clients cannot add to them.

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
"""How many labels one metric may have."""

TIME_BOUNDS_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
"""The upper bounds of what takes from a fraction of a millisecond to half a minute."""


class Kind(Enum):
    """What a value means."""

    COUNTER = 0
    """Since the broker's start; it only grows. Its rate is the difference between two readings."""
    GAUGE = 1
    """Now."""
    HISTOGRAM = 2
    """How often a value was at most each of some bounds, since the broker's start."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What is counted, without a value."""

    group: str
    """Kafka's `type` of its MBean, or its group of metrics; KRAFTLOG if Kafka has none of this name."""
    name: str
    """Kafka's name. A counter keeps it, although Kafka's has a rate as well: IsrShrinksPerSec."""
    kind: Kind
    meaning: str
    label: str = ""
    """The name of its label; empty if it has none."""


class Counter:
    """A number that whoever has it changes. One of a gauge goes down, too."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """How often values were observed, by their size."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = TIME_BOUNDS_MS) -> None:
        """`bounds` are upper ones, inclusive and ascending; there is one more bucket for what is above them all."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """Of each bucket alone."""
        self.total = 0.0
        """The sum of all values."""

    def observe(self, value: float) -> None:
        """A value was seen."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values were seen."""
        return sum(self.counts)


Read = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Series:
    """A metric with one of its labels, and where its value is."""

    metric: Metric
    label: str
    source: Counter | Histogram | Read

    @property
    def value(self) -> float:
        """Now; of a histogram how many values it has seen."""
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
        """A new counter, or a gauge that its owner moves up and down."""
        counter = Counter()
        self._add(metric, label, counter)
        return counter

    def histogram(self, metric: Metric, histogram: Histogram, label: str = "") -> Histogram:
        """Show a histogram that a part of the broker has made."""
        self._add(metric, label, histogram)
        return histogram

    def read(self, metric: Metric, read: Read, label: str = "") -> None:
        """Show a value that `read` gives, at any time and quickly."""
        self._add(metric, label, read)

    def _add(self, metric: Metric, label: str, source: Counter | Histogram | Read) -> None:
        series = self._series.setdefault(metric, {})
        check(bool(label) == bool(metric.label), f"{metric.name}: it has the label {metric.label!r}, not {label!r}")
        check(isinstance(source, Histogram) == (metric.kind is Kind.HISTOGRAM), f"{metric.name}: {metric.kind}")
        check(label not in series, f"{metric.name} {label!r}: it is counted already")
        check(len(series) < SERIES_MAX, f"{metric.name}: more than {SERIES_MAX} labels")
        series[label] = Series(metric, label, source)

    def all_series(self) -> Iterator[Series]:
        """Each series, by group and name, then by label."""
        for metric in sorted(self._series, key=lambda one: (one.group, one.name)):
            yield from (series for _, series in sorted(self._series[metric].items()))
