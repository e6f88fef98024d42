"""Computes medians, ratios of kraftlog to its peers, and targets from the figures of alternating rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rich.table import Table

from kraftlog.bench.targets import Target

OWN: Final = "kraftlog"
ETCD: Final = "etcd"
KAFKA: Final = "Kafka"

Figures = Mapping[str, float]
"""The figures of one system in one round, by the keys of MEASURES."""

Round = Mapping[str, Figures]
"""The figures of each system in one round."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure that is compared. `bound` is the bound of the ratio of kraftlog to etcd."""

    key: str
    label: str
    unit: str
    bound: float
    is_minimum: bool = False

    def show(self, value: float) -> str:
        """Return a value with its unit."""
        return f"{value:,.0f}{self.unit}" if self.is_minimum else f"{value:.2f} {self.unit}"


CALLERS: Final = (64, 256)
ACKNOWLEDGED: Final = "submit_to_ack_ms_p50"
VISIBLE: Final = "submit_to_visible_ms_p50"


def load_key(callers: int) -> str:
    """Return the key of the throughput of this many callers."""
    return f"operations_per_second_of_{callers}_callers"


MEASURES: Final = (
    Measure(ACKNOWLEDGED, "submit to ack, p50", "ms", 2.1),
    Measure(VISIBLE, "submit to visible, p50", "ms", 2.3),
    *(
        Measure(load_key(callers), f"{callers} callers, acknowledged operations", "/s", 0.95, is_minimum=True)
        for callers in CALLERS
    ),
)


def counted(rounds: int) -> str:
    """Return the number of rounds with the right word: "1 round", "2 rounds"."""
    return f"{rounds} round{'' if rounds == 1 else 's'}"


def medians(rounds: Sequence[Round], system: str) -> dict[str, float]:
    """Return the median of each figure of a system over the rounds."""
    return {measure.key: median(found[system][measure.key] for found in rounds) for measure in MEASURES}


def ratios(rounds: Sequence[Round], peer: str) -> dict[str, float]:
    """Return kraftlog's figures divided by a peer's: the median of the rounds' ratios.

    Anything that slows the machine down for a while slows down all systems of a round.
    """
    return {
        measure.key: median(found[OWN][measure.key] / found[peer][measure.key] for found in rounds)
        for measure in MEASURES
    }


def targets(to_etcd: Mapping[str, float]) -> list[Target]:
    """Return the ratios to etcd with their bounds."""
    return [
        Target(
            f"{measure.label}, to etcd", round(to_etcd[measure.key], 3), measure.bound, "times", measure.is_minimum, 2
        )
        for measure in MEASURES
    ]


def comparison_table(rounds: Sequence[Round], labels: Mapping[str, str]) -> Table:
    """Return a table with a row for each measure: the medians, then the ratios. `labels` names kraftlog first."""
    peers = [system for system in labels if system != OWN]
    columns = [*labels.values(), *(f"to {peer}" for peer in peers)]
    title = f"Medians of {counted(len(rounds))}, and of the ratios of kraftlog to its peers"
    table = Table("", *columns, title=title, title_justify="left", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    found = {system: medians(rounds, system) for system in labels}
    compared = {peer: ratios(rounds, peer) for peer in peers}
    for measure in MEASURES:
        values = [measure.show(found[system][measure.key]) for system in labels]
        table.add_row(measure.label, *values, *(f"{compared[peer][measure.key]:.2f}" for peer in peers))
    return table
