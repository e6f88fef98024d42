"""Computes medians, ratios of kraftlog to Kafka, and targets from the pairs of a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from rich.table import Table

from kraftlog.bench.broker.measure import Bounded, Measure, Measures
from kraftlog.bench.targets import Target

OWN: Final = "kraftlog"
KAFKA: Final = "Kafka"

Figures = Mapping[str, float]
"""The values of one measurement of one system, by the keys of its measures."""

Pair = Mapping[str, Figures]
"""The figures of each system; without Kafka only kraftlog's."""


def medians(pairs: Sequence[Pair], system: str) -> dict[str, float]:
    """Return the median of each value of a system over the pairs; empty for a system that was not measured."""
    found = [pair[system] for pair in pairs if system in pair]
    return {key: median(figures[key] for figures in found) for key in found[0]} if found else {}


def largest(pairs: Sequence[Pair], system: str) -> dict[str, float]:
    """Return the largest of each value of a system; empty for a system that was not measured."""
    found = [pair[system] for pair in pairs if system in pair]
    return {key: max(figures[key] for figures in found) for key in found[0]} if found else {}


def ratios(pairs: Sequence[Pair]) -> dict[str, float]:
    """Return kraftlog's values divided by Kafka's: the median of the pairs' ratios.

    Anything that slows the machine down for a while slows down both runs of a pair. Empty without Kafka. A value that
    is 0 for Kafka, or that only kraftlog has, has no ratio.
    """
    both = [(pair[OWN], pair[KAFKA]) for pair in pairs if KAFKA in pair]
    keys = [key for key in (both[0][0] if both else ()) if all(theirs.get(key) for _, theirs in both)]
    return {key: median(own[key] / theirs[key] for own, theirs in both) for key in keys}


def targets(figure: str, measures: Sequence[Measure], pairs: Sequence[Pair]) -> list[Target]:
    """Return the targets of a figure, for those of its measured values that have a bound."""
    own, compared = medians(pairs, OWN), ratios(pairs)
    found = []
    for measure in measures:
        name = f"{figure}: {measure.label}"
        if measure.bounded is Bounded.RATIO and measure.key in compared:
            ratio = round(compared[measure.key], 3)
            found.append(Target(f"{name}, to Kafka", ratio, measure.bound, "times", measure.is_minimum, 2))
        elif measure.key not in own:
            continue
        elif measure.bounded is Bounded.RATIO and measure.alone is not None:
            found.append(
                Target(name, own[measure.key], measure.alone, measure.unit, measure.is_minimum, measure.decimals)
            )
        elif measure.bounded is Bounded.VALUE:
            found.append(_own_target(name, measure, own[measure.key]))
        elif measure.bounded is Bounded.LARGEST:
            found.append(_own_target(name, measure, largest(pairs, OWN)[measure.key]))
    return found


def _own_target(name: str, measure: Measure, value: float) -> Target:
    return Target(name, value, measure.bound, measure.unit, measure.is_minimum, measure.decimals)


def comparison_table(measured: Mapping[str, Sequence[Pair]], measures: Measures, labels: Mapping[str, str]) -> Table:
    """Return a table with a row for each value of each figure. `labels` names the systems, kraftlog first."""
    table = Table("", *labels.values(), *(["ratio"] if KAFKA in labels else []), box=None)
    table.title, table.title_justify = "Medians of the values, and of the ratios of each pair", "left"
    for column in table.columns[1:]:
        column.justify = "right"
    for figure, pairs in measured.items():
        found = {system: medians(pairs, system) for system in labels}
        compared = ratios(pairs)
        for measure in measures[figure]:
            values = [_shown(measure, found[system]) for system in labels]
            ratio = [f"{compared[measure.key]:.2f}" if measure.key in compared else ""] if KAFKA in labels else []
            table.add_row(f"{figure}: {measure.label}", *values, *ratio)
    return table


def as_json(figure: str, measures: Sequence[Measure], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return all values of a figure, for the JSON output."""
    systems = [system for system in (OWN, KAFKA) if any(system in pair for pair in pairs)]
    return {
        "pairs": pairs,
        "medians": {system: medians(pairs, system) for system in systems},
        "ratios": {key: round(ratio, 3) for key, ratio in ratios(pairs).items()},
        "targets": {target.name: target.as_json() for target in targets(figure, measures, pairs)},
    }


def _shown(measure: Measure, figures: Figures) -> str:
    return measure.show(figures[measure.key]) if measure.key in figures else ""
