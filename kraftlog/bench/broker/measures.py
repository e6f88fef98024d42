"""Which figures there are, what of them is judged, and by which bound (issue 18)."""

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

    def show(self, value: float) -> str:
        """A value with its unit."""
        return f"{value:,.{self.decimals}f} {self.unit}"


def _at_least(bound: float, key: str, label: str, unit: str, decimals: int = 2) -> Measure:
    return Measure(key, label, unit, Judged.RATIO, bound, is_minimum=True, decimals=decimals)


def _at_most(bound: float, key: str, label: str, unit: str) -> Measure:
    return Measure(key, label, unit, Judged.RATIO, bound)


def _limited(bound: float, key: str, label: str, unit: str, decimals: int = 0) -> Measure:
    return Measure(key, label, unit, Judged.VALUE, bound, decimals=decimals)


_COST: Final = Measure("processor_seconds_per_gigabyte", "processor of the broker", "s/GB")
_READ: Final = Measure("read_from_disk_percent", "read from the disk", "%", decimals=0)
_COST_OF_ONE: Final = Measure("processor_microseconds_per_record", "processor of the broker", "us/record", decimals=0)


def _moved(bound: float) -> tuple[Measure, ...]:
    return _at_least(bound, "megabytes_per_second", "throughput", "MB/s", 1), _COST


_ONE_RECORD: Final = (
    _at_most(0.7, "acknowledged_ms_p50", "acknowledged, p50", "ms"),
    _at_most(0.7, "acknowledged_ms_p99", "acknowledged, p99", "ms"),
    Measure("end_to_end_ms_p50", "end to end, p50", "ms"),
    _at_most(0.7, "end_to_end_ms_p99", "end to end, p99", "ms"),
    _COST_OF_ONE,
)

MEASURES: Final[Mapping[str, Sequence[Measure]]] = {
    "produce-64k": _moved(2.0),
    "produce-1m": _moved(2.0),
    "produce-64k-flushed": _moved(2.0),
    "produce-1m-flushed": _moved(2.0),
    "consume-hot": (*_moved(1.0), _READ),
    "consume-cold": (*_moved(1.0), _READ),
    "one-record": _ONE_RECORD,
    "one-record-flushed": _ONE_RECORD,
    "connections": (
        Measure("acknowledged_ms_p50", "acknowledged, p50", "ms"),
        _at_most(1.0, "acknowledged_ms_p99", "acknowledged, p99", "ms"),
        Measure("records_per_second", "acknowledged", "records/s", decimals=0),
        _COST_OF_ONE,
    ),
    "idle": (
        _limited(150, "resident_megabytes", "resident", "MB"),
        _limited(512, "open_files", "open files", "files"),
        _limited(2, "processor_percent", "processor of the broker", "% of a core", 2),
        _limited(10, "start_seconds", "start after SIGKILL", "s", 1),
    ),
}
"""The values of each figure, by its name."""


def chosen_figures(only: str | None) -> list[str]:
    """The names in a list like "idle,consume-hot", or all. Raises ValueError for one that is none."""
    if only is None:
        return list(MEASURES)
    names = list(dict.fromkeys(only.split(",")))
    for name in names:
        if name not in MEASURES:
            raise ValueError(f"{name!r} is no figure; choose from {', '.join(MEASURES)}")
    return names
