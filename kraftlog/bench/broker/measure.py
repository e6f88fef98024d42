"""One value of a figure: how it is shown, and whether it has a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Bounded(Enum):
    """What the bound of a value applies to."""

    NOTHING = "nothing"
    """There is no bound."""
    RATIO = "ratio"
    """kraftlog's value divided by Kafka's."""
    VALUE = "value"
    """kraftlog's value."""
    LARGEST = "largest"
    """The largest of kraftlog's values in all pairs."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One value that a figure has."""

    key: str
    label: str
    unit: str
    bounded: Bounded = Bounded.NOTHING
    bound: float = 0.0
    is_minimum: bool = False
    decimals: int = 2
    alone: float | None = None
    """For RATIO: the bound for kraftlog's value if Kafka has no value."""

    def show(self, value: float) -> str:
        """Return a value with its unit."""
        return f"{value:,.{self.decimals}f} {self.unit}"


Measures = Mapping[str, Sequence[Measure]]
"""The values of each figure, by its name."""

COST: Final = Measure("processor_seconds_per_gigabyte", "processor of the brokers", "s/GB")
COST_OF_ONE: Final = Measure("processor_microseconds_per_record", "processor of the brokers", "us/record", decimals=0)


def at_least(bound: float, key: str, label: str, unit: str, decimals: int = 2) -> Measure:
    """Return a measure whose ratio to Kafka must be at least `bound`."""
    return Measure(key, label, unit, Bounded.RATIO, bound, is_minimum=True, decimals=decimals)


def at_most(bound: float, key: str, label: str, unit: str) -> Measure:
    """Return a measure whose ratio to Kafka must be at most `bound`."""
    return Measure(key, label, unit, Bounded.RATIO, bound)


def limited(bound: float, key: str, label: str, unit: str, decimals: int = 0) -> Measure:
    """Return a measure whose value must be at most `bound`, independent of Kafka."""
    return Measure(key, label, unit, Bounded.VALUE, bound, decimals=decimals)


def moved(bound: float) -> tuple[Measure, ...]:
    """Return the measures of a throughput figure: its ratio to Kafka must be at least `bound`; and the cost."""
    return at_least(bound, "megabytes_per_second", "throughput", "MB/s", 1), COST


def one_record(bound: float, end_to_end: Measure) -> tuple[Measure, ...]:
    """Return the measures of a figure of single records. `bound` is the largest ratio of the time to acknowledge.

    `end_to_end` is the measure of the 99th percentile end to end.
    """
    return (
        at_most(bound, "acknowledged_ms_p50", "acknowledged, p50", "ms"),
        at_most(bound, "acknowledged_ms_p99", "acknowledged, p99", "ms"),
        Measure("end_to_end_ms_p50", "end to end, p50", "ms"),
        end_to_end,
        COST_OF_ONE,
    )


def chosen_figures(measures: Measures, only: str | None) -> list[str]:
    """Return the names in a list like "idle,consume-hot", or all. Raises ValueError for an unknown name."""
    if only is None:
        return list(measures)
    names = list(dict.fromkeys(only.split(",")))
    for name in names:
        if name not in measures:
            raise ValueError(f"unknown figure {name!r}; choose from {', '.join(measures)}")
    return names
