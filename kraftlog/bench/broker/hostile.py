"""A client with the largest requests that a broker accepts, beside one with small requests: figure and table."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from kraftlog.bench.broker import own, stock_kafka
from kraftlog.bench.broker.client_process import run_load
from kraftlog.bench.broker.comparison import KAFKA, OWN, Figures, Pair, largest
from kraftlog.bench.broker.experiment import Experiment
from kraftlog.bench.broker.loads.hostile import BYSTANDER, HOSTILE, PRODUCED, Fill, Hostile, HostileRequest
from kraftlog.bench.broker.loop_reports import turns_in
from kraftlog.bench.broker.measure import Bounded, Measure
from kraftlog.bench.broker.system import System
from kraftlog.broker.settings import LOOP_REPORT_INTERVAL

TOPIC: Final = "t"
"""A short name, so that a DescribeConfigs that repeats it 51,200 times has only 250 KB."""
PARTITIONS: Final = 60
MANY: Final = ("-many", 10, 100)
"""The suffix of other topics, their number, and the partitions of each. Metadata of all topics returns them."""
REPORT_SECONDS: Final = 0.2
CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    OWN: {**own.QUICK_DELETION, LOOP_REPORT_INTERVAL: str(round(1_000 * REPORT_SECONDS))},
    KAFKA: stock_kafka.QUICK_DELETION,
}
TURN_LIMIT_MS: Final = 50

_WAIT, _TURN, _FENCED = "longest_wait_ms", "turn_processor_ms", "fenced"


class HostileExperiment(Experiment):
    """Sends each of the requests in turn, without a warm-up: a first request may be hostile, too."""

    is_warmed_up = False

    def __init__(self, name: str, pairs: int, seconds: float) -> None:
        """Each request is repeated for this many seconds, and sent at least once."""
        super().__init__(name, pairs)
        self._seconds = seconds

    async def prepare(self, system: System) -> None:
        """Create the topics, and fill one. No topic is flushed, so that no client waits for a disk."""
        await system.topics.create(TOPIC, PARTITIONS, {**system.unflushed, "retention.ms": "-1"})  # of records of 2020
        for name in (TOPIC + BYSTANDER, TOPIC + PRODUCED):
            await system.topics.create(name, 1, system.unflushed)
        suffix, count, partitions = MANY
        for number in range(count):
            await system.topics.create(f"{TOPIC}{suffix}-{number}", partitions, system.unflushed)
        await run_load(Fill(**self._of_load(system), partitions=PARTITIONS))

    async def measure(self, system: System) -> Figures:
        """Send each request once."""
        found: dict[str, float] = {}
        for name in HOSTILE:
            logs = [path for path in map(system.log_path, system.broker_ids) if path is not None]
            before = [path.stat().st_size for path in logs]
            figures = await run_load(Hostile(**self._of_load(system), request=name, seconds=self._seconds))
            if logs:
                await asyncio.sleep(3 * REPORT_SECONDS)  # the report of the last turn
                figures |= turns_in("".join(map(_text_from, logs, before)))
            found |= {f"{name}_{key}": value for key, value in figures.items()}
        return found

    def _of_load(self, system: System) -> dict[str, Any]:
        return {**self.of_load(system), "topic": TOPIC}


def _text_from(path: Path, begin: int) -> str:
    return path.read_bytes()[begin:].decode("utf-8", "replace")


def measures() -> tuple[Measure, ...]:
    """Return the values of the figure, for each request."""
    return tuple(measure for name, request in HOSTILE.items() for measure in _measures_of(name, request))


def _measures_of(name: str, request: HostileRequest) -> tuple[Measure, ...]:
    def value(key: str, label: str, unit: str = "ms", bounded: Bounded = Bounded.NOTHING, bound: float = 0) -> Measure:
        return Measure(f"{name}_{key}", f"{request.label}: {label}", unit, bounded, bound, decimals=1)

    return (
        value(_WAIT, "longest wait of another client", bounded=Bounded.LARGEST, bound=request.longest_wait_ms),
        value("wait_ms_p999", "the same, p99.9"),
        value("call_seconds", "call", "s"),
        value("calls", "calls", "calls"),
        value("refused", "refused", "connections"),
        value(_TURN, "longest turn of the loop", bounded=Bounded.LARGEST, bound=TURN_LIMIT_MS),
        value("turn_late_ms_p999", "turns late, p99.9"),
        value("turn_late_ms", "turns late, longest"),
        value("looks", "checks of the loop", "checks"),
        value(_FENCED, "fenced", "times", Bounded.LARGEST, 0),
    )


def hostile_table(pairs: Sequence[Pair], labels: Mapping[str, str]) -> Table:
    """Return a table with a row for each request, with its limits. Each value is the largest of all pairs."""
    table = Table("Request", "wait", "limit", "p99.9", "call", "turn", "limit", "late", "p99.9", "fenced", box=None)
    with_kafka = KAFKA in labels
    if with_kafka:
        table.add_column("Kafka: wait")
        table.add_column("call")
    for column in table.columns[1:]:
        column.justify = "right"
    table.title = (
        "Hostile requests, the largest of all pairs. wait: the longest of another client; turn: the longest of the"
        " event loop, in processor time; late: the longest delay of a timer. Milliseconds; calls in seconds"
    )
    table.title_justify = "left"
    found, theirs = largest(pairs, OWN), largest(pairs, KAFKA)
    for name, request in HOSTILE.items():
        of = {key.removeprefix(f"{name}_"): value for key, value in found.items() if key.startswith(f"{name}_")}
        wait, turn = of[_WAIT], of[_TURN]
        cells = [
            *(f"{wait:.1f}", _limit(wait, request.longest_wait_ms), f"{of['wait_ms_p999']:.1f}"),
            f"{of['call_seconds']:.2f}{', refused' if of['refused'] else ''}",
            *(f"{turn:.1f}", _limit(turn, TURN_LIMIT_MS), f"{of['turn_late_ms']:.0f}"),
            *(f"{of['turn_late_ms_p999']:.0f}", f"{of[_FENCED]:.0f}"),
        ]
        if with_kafka:
            refused = ", refused" if theirs[f"{name}_refused"] else ""
            cells += [f"{theirs[f'{name}_{_WAIT}']:.1f}", f"{theirs[f'{name}_call_seconds']:.2f}{refused}"]
        table.add_row(request.label, *cells)
    return table


def _limit(value: float, limit: float) -> str:
    return f"{limit:g}" if value <= limit else f"{limit:g}, missed"
