"""Compares the samples of brokers and nodes with their bounds, and keeps the worst value of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kraftbase.types import NodeId
from kraftlog.chaos.arena import Reading
from kraftlog.chaos.soak import limits as node_limits
from kraftlog.chaos.soak.bounds_checker import Worst, keep_worst
from kraftlog.chaos.soak.brokers.limits import (
    FAULTY_LINES_MAX,
    STEADY_LINES_MAX,
    broker_measures,
    growth_measures,
    rest_measures,
)
from kraftlog.chaos.soak.brokers.samples import BrokerSample, Lines
from kraftlog.chaos.soak.limits import RUNAWAY_BYTES, Measure
from kraftlog.chaos.soak.samples import ProcessSample, Sample, Written

METADATA_OPERATIONS_PER_SECOND = 10.0
"""Created and deleted topics and changes of ISRs: the nodes' logs grow much less than in a soak of nodes."""


@dataclass(frozen=True, slots=True)
class Point:
    """The resources of one process at one moment."""

    at_seconds: float
    process: ProcessSample | None
    disk_bytes: int


class BrokersBoundsChecker:
    """Gets every sample of a run."""

    def __init__(self, records_per_second: float) -> None:
        """`records_per_second` is the target load, on which bounds of files depend."""
        self.worst: dict[str, Worst] = {}
        """The worst values by the measure's name."""
        self.points: defaultdict[NodeId, list[Point]] = defaultdict(list)
        self.is_steady = False
        """Whether the run is in the part without faults."""
        self.created_topics = 0
        """How many temporary topics were created so far."""
        self.runaway: str | None = None
        """A message about a process whose files take so much space that the run must end."""
        self._records_per_second = records_per_second
        self._written: defaultdict[NodeId, Written] = defaultdict(Written)
        self._steady: defaultdict[NodeId, list[ProcessSample]] = defaultdict(list)

    def see_nodes(
        self, samples: Sequence[Sample], lines: Mapping[NodeId, Lines], readings: Sequence[Reading] = ()
    ) -> None:
        """Check one sample of each node, taken at about the same moment, and its new log lines."""
        for sample in samples:
            written = self._written[sample.node_id]
            written.note(sample)
            own = [reading for reading in readings if reading.node_id == sample.node_id]
            found = list(node_limits.measures(sample, own, written, METADATA_OPERATIONS_PER_SECOND))
            found += self._line_measures(lines[sample.node_id])
            self._keep(
                (replace(measure, name=f"node {measure.name}") for measure in found), sample.node_id, sample.at_seconds
            )
            self._see(sample.node_id, Point(sample.at_seconds, sample.process, sample.total_bytes))

    def see_brokers(self, samples: Sequence[BrokerSample]) -> None:
        """Check one sample of each broker, taken at about the same moment."""
        for sample in samples:
            measures = broker_measures(sample, self._records_per_second, self.created_topics, is_steady=self.is_steady)
            self._keep(measures, sample.broker_id, sample.at_seconds)
            self._see(sample.broker_id, Point(sample.at_seconds, sample.process, sample.log_bytes + sample.own_bytes))

    def end_steady_part(self, kinds: Mapping[NodeId, str], at_seconds: float) -> None:
        """Compare each process's resources late in the steady part with early ones. `kinds` has "broker" or "node"."""
        self.is_steady = False
        for node_id, kind in kinds.items():
            self._keep(growth_measures(kind, self._steady[node_id]), node_id, at_seconds)

    def see_rest(self, kinds: Mapping[NodeId, str]) -> None:
        """Compare the newest sample of each process, without clients, with the steady part."""
        for node_id, kind in kinds.items():
            newest = self.points[node_id][-1]
            if newest.process is not None:
                self._keep(rest_measures(kind, self._steady[node_id], newest.process), node_id, newest.at_seconds)

    def violations(self) -> list[str]:
        """Return a text for each bound that was exceeded."""
        stories = [
            f"{worst.measure.name}: {worst.node_id} had {worst.measure.value:,.10g} at {worst.at_seconds:.0f} s; the"
            f" bound is {worst.measure.limit:,.10g}"
            for worst in self.worst.values()
            if not worst.measure.holds
        ]
        return stories if self.runaway is None else [*stories, self.runaway]

    def _line_measures(self, lines: Lines) -> Iterator[Measure]:
        yield Measure("tracebacks", lines.tracebacks, 0)
        if self.is_steady:
            yield Measure("log lines a minute, without faults", lines.per_minute, STEADY_LINES_MAX)
        else:
            yield Measure("log lines a minute", lines.per_minute, FAULTY_LINES_MAX)

    def _see(self, node_id: NodeId, point: Point) -> None:
        self.points[node_id].append(point)
        if self.is_steady and point.process is not None:
            self._steady[node_id].append(point.process)
        if point.disk_bytes > RUNAWAY_BYTES:
            self.runaway = f"ended early at {point.at_seconds:.0f} s: {node_id} had {point.disk_bytes:,} bytes of files"

    def _keep(self, measures: Iterable[Measure], node_id: NodeId, at_seconds: float) -> None:
        for measure in measures:
            keep_worst(self.worst, Worst(measure, node_id, at_seconds))
