"""One value of a figure: how it is shown, and what of it is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Judged(Enum):
    """What of a value has a bound."""

    NOTHING = "nothing"
    """It stands beside."""
    RATIO = "ratio"
    """Ours to Kafka's."""
    VALUE = "value"
    """Ours by itself."""
    LARGEST = "largest"
    """Ours by itself, the largest of all pairs."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One value that a figure has."""

    key: str
    label: str
    unit: str
    judged: Judged = Judged.NOTHING
    bound: float = 0.0
    is_minimum: bool = False
    decimals: int = 2
    alone: float | None = None
    """What has a ratio: the bound of ours by itself, where Kafka has no value."""

    def show(self, value: float) -> str:
        """A value with its unit."""
        return f"{value:,.{self.decimals}f} {self.unit}"


Measures = Mapping[str, Sequence[Measure]]
"""The values of each figure, by its name."""

COST: Final = Measure("processor_seconds_per_gigabyte", "processor of the brokers", "s/GB")
COST_OF_ONE: Final = Measure("processor_microseconds_per_record", "processor of the brokers", "us/record", decimals=0)


def at_least(bound: float, key: str, label: str, unit: str, decimals: int = 2) -> Measure:
    """So many times what Kafka has, at least."""
    return Measure(key, label, unit, Judged.RATIO, bound, is_minimum=True, decimals=decimals)


def at_most(bound: float, key: str, label: str, unit: str) -> Measure:
    """So many times what Kafka has, at most."""
    return Measure(key, label, unit, Judged.RATIO, bound)


def limited(bound: float, key: str, label: str, unit: str, decimals: int = 0) -> Measure:
    """At most this, whatever Kafka has."""
    return Measure(key, label, unit, Judged.VALUE, bound, decimals=decimals)


def moved(bound: float) -> tuple[Measure, ...]:
    """What figures of bytes have: throughput, so many times Kafka's at least, and what it costs."""
    return at_least(bound, "megabytes_per_second", "throughput", "MB/s", 1), COST


def one_record(bound: float, end_to_end: Measure) -> tuple[Measure, ...]:
    """What figures of single records have; the acknowledgement takes so many times Kafka's time at most.

    `end_to_end` is the value of the slowest of these.
    """
    return (
        at_most(bound, "acknowledged_ms_p50", "acknowledged, p50", "ms"),
        at_most(bound, "acknowledged_ms_p99", "acknowledged, p99", "ms"),
        Measure("end_to_end_ms_p50", "end to end, p50", "ms"),
        end_to_end,
        COST_OF_ONE,
    )


def chosen_figures(measures: Measures, only: str | None) -> list[str]:
    """The names in a list like "idle,consume-hot", or all. Raises ValueError for one that is none."""
    if only is None:
        return list(measures)
    names = list(dict.fromkeys(only.split(",")))
    for name in names:
        if name not in measures:
            raise ValueError(f"{name!r} is no figure; choose from {', '.join(measures)}")
    return names
