"""Checks the samples against the bounds, and keeps the worst value of each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

from kraftbase.types import NodeId
from kraftlog.chaos.arena import Reading, Start
from kraftlog.chaos.soak.limits import RUNAWAY_BYTES, Measure, measures, own_seconds, start_measure
from kraftlog.chaos.soak.samples import FileKind, Sample, Written


@dataclass(frozen=True, slots=True)
class Worst:
    """The figure closest to its bound, or furthest beyond it."""

    measure: Measure
    node_id: NodeId
    at_seconds: float

    @property
    def share(self) -> float:
        """The share of the bound that is used; infinite if a bound of 0 is exceeded."""
        value, limit = self.measure.value, self.measure.limit
        return value / limit if limit > 0 else (math.inf if value > 0 else 0.0)


@dataclass(frozen=True, slots=True)
class Point:
    """The most bytes of any node at about one moment, per kind of file."""

    at_seconds: float
    file_bytes: dict[FileKind, int]


class BoundsChecker:
    """Gets every sample of a run."""

    def __init__(self, operations_per_second: float) -> None:
        """`operations_per_second` is the target load, on which a bound depends."""
        self._operations_per_second = operations_per_second
        self._written: defaultdict[NodeId, Written] = defaultdict(Written)
        self._first_start_seconds = 0.0
        self.worst: dict[str, Worst] = {}
        """The worst values by the measure's name."""
        self.points: list[Point] = []
        self.runaway: Sample | None = None
        """A node whose files take so much space that the run must end."""

    def see_first_starts(self, starts: Sequence[Start]) -> None:
        """Note the first starts of all nodes, while they were empty."""
        self._first_start_seconds = max((own_seconds(start) for start in starts), default=0.0)

    def see_start(self, start: Start) -> None:
        """Check the start of a node that was killed or stopped before."""
        self._keep(Worst(start_measure(start, self._first_start_seconds), start.node_id, start.began))

    def see_samples(self, samples: Sequence[Sample], readings: Sequence[Reading]) -> None:
        """Check one sample of each node, taken at about the same moment. `readings` are all slow reads so far."""
        for sample in samples:
            written = self._written[sample.node_id]
            written.note(sample)
            own = [reading for reading in readings if reading.node_id == sample.node_id]
            for measure in measures(sample, own, written, self._operations_per_second):
                self._keep(Worst(measure, sample.node_id, sample.at_seconds))
            if sample.total_bytes > RUNAWAY_BYTES:
                self.runaway = sample
        if samples:
            most = {kind: max(sample.file_bytes[kind] for sample in samples) for kind in FileKind}
            self.points.append(Point(samples[0].at_seconds, most))

    def written_bytes(self) -> int:
        """Return the bytes that all processes of the nodes have written."""
        return sum(written.since(-math.inf) for written in self._written.values())

    def violations(self) -> list[str]:
        """Return a text for each bound that was exceeded."""
        stories = [
            f"{worst.measure.name}: node {worst.node_id} had {worst.measure.value:,.10g} at {worst.at_seconds:.0f} s;"
            f" the bound is {worst.measure.limit:,.10g}"
            for worst in self.worst.values()
            if not worst.measure.holds
        ]
        if self.runaway is not None:
            stories.append(
                f"the run ended early at {self.runaway.at_seconds:.0f} s: the files of node {self.runaway.node_id} took"
                f" {self.runaway.total_bytes:,} bytes"
            )
        return stories

    def _keep(self, worst: Worst) -> None:
        keep_worst(self.worst, worst)


def keep_worst(known: MutableMapping[str, Worst], found: Worst) -> None:
    """Keep a figure if it is closer to its bound than the known figure of its name."""
    before = known.get(found.measure.name)
    if before is None or found.share > before.share:
        known[found.measure.name] = found
