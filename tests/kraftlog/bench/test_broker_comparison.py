"""How `bench broker` alternates, compares and judges. The brokers here are in this process."""

from __future__ import annotations

import io
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

from kraftlog.bench.broker.comparison import (
    KAFKA,
    OWN,
    Figures,
    Pair,
    as_json,
    comparison_table,
    medians,
    ratios,
    targets,
)
from kraftlog.bench.broker.experiment import Experiment
from kraftlog.bench.broker.experiments import Sizes, experiments
from kraftlog.bench.broker.idle import topics_of
from kraftlog.bench.broker.measure import Bounded, chosen_figures
from kraftlog.bench.broker.measures import MEASURES
from kraftlog.bench.broker.pairs import measure_pairs
from kraftlog.bench.broker.run import BY_THEMSELVES, IDLE
from kraftlog.bench.broker.system import System
from kraftlog.bench.process_usage import bytes_read, processor_ticks, resident_bytes
from tests.kraftlog.command_line import Run

SPEED, COST = "megabytes_per_second", "processor_seconds_per_gigabyte"
PAIRS: list[Pair] = [
    {OWN: {SPEED: 300, COST: 2}, KAFKA: {SPEED: 100, COST: 4}},
    {OWN: {SPEED: 30, COST: 2}, KAFKA: {SPEED: 20, COST: 2}},
    {OWN: {SPEED: 500, COST: 6}, KAFKA: {SPEED: 250, COST: 1}},
]


class InProcess(System):
    """Runs nothing."""

    unflushed: ClassVar[Mapping[str, str]] = {}
    flushed: ClassVar[Mapping[str, str]] = {}

    def __init__(self, label: str) -> None:
        self.label = label

    @property
    def bootstrap_servers(self) -> str:
        return self.label

    def pid(self, broker_id: int) -> int:
        return broker_id

    def data_path(self, broker_id: int) -> Path:
        return Path(self.label)

    async def end(self, broker_id: int, number: signal.Signals) -> None:
        raise NotImplementedError

    async def start(self, broker_id: int) -> None:
        raise NotImplementedError


class Counting(Experiment):
    """The nth thing that is done measures n."""

    def __init__(self) -> None:
        super().__init__("counting", pairs=2)
        self.done: list[str] = []

    async def prepare(self, system: System) -> None:
        self.done.append(f"prepare {system.label}")

    async def measure(self, system: System) -> Figures:
        self.done.append(f"measure {system.label}")
        return {"n": len(self.done)}

    async def clean_up(self, system: System) -> None:
        self.done.append(f"clean up {system.label}")


class Breaking(Counting):
    """It takes no JVM that is warm."""

    is_warmed_up = False


async def test_pairs_alternate_their_order_and_the_first_is_not_counted() -> None:
    experiment, shown = Counting(), list[str]()
    found = await measure_pairs(experiment, {OWN: InProcess("a"), KAFKA: InProcess("b")}, shown.append)
    assert experiment.done == [
        *("prepare a", "prepare b"),
        *("measure a", "measure b"),
        *("measure b", "measure a"),
        *("measure a", "measure b"),
        *("clean up a", "clean up b"),
    ]
    assert found == [{KAFKA: {"n": 5}, OWN: {"n": 6}}, {OWN: {"n": 7}, KAFKA: {"n": 8}}]
    assert "counting: pair 2 of 2: Kafka" in shown


async def test_what_needs_no_warm_up_is_counted_from_the_first_pair_on() -> None:
    experiment = Breaking()
    found = await measure_pairs(experiment, {OWN: InProcess("a"), KAFKA: InProcess("b")}, lambda _: None)
    assert found == [{KAFKA: {"n": 3}, OWN: {"n": 4}}, {OWN: {"n": 5}, KAFKA: {"n": 6}}]


def test_the_ratio_is_the_median_of_the_pairs_ratios_not_the_ratio_of_the_medians() -> None:
    assert medians(PAIRS, OWN) == {SPEED: 300, COST: 2}
    assert medians(PAIRS, KAFKA) == {SPEED: 100, COST: 2}
    assert ratios(PAIRS) == {SPEED: 2.0, COST: 1.0}


def test_only_what_has_a_bound_is_judged() -> None:
    (speed,) = targets("produce-64k", MEASURES["produce-64k"], PAIRS)
    assert (speed.measured, speed.bound, speed.is_minimum, speed.is_met) == (2.0, 2.0, True, True)
    latencies = {"acknowledged_ms_p50": 0.7, "acknowledged_ms_p99": 1.4, "end_to_end_ms_p99": 0.1}
    beside = {"end_to_end_ms_p50": 1.0, "processor_microseconds_per_record": 1.0}
    pair = {OWN: {**latencies, **beside}, KAFKA: dict.fromkeys([*latencies, *beside], 1.0)}
    assert [target.is_met for target in targets("one-record", MEASURES["one-record"], [pair])] == [True, False, True]


def test_without_kafka_only_what_is_judged_by_itself_has_a_target() -> None:
    alone = [{OWN: pair[OWN]} for pair in PAIRS]
    assert (ratios(alone), targets("produce-64k", MEASURES["produce-64k"], alone), medians(alone, KAFKA)) == (
        {},
        [],
        {},
    )
    idle = {"resident_megabytes": 151.0, "open_files": 512.0, "processor_percent": 2.0, "start_seconds": 9.0}
    assert [target.is_met for target in targets(IDLE, MEASURES[IDLE], [{OWN: idle}])] == [False, True, True, True]
    assert as_json(IDLE, MEASURES[IDLE], [{OWN: idle}])["medians"] == {OWN: idle}


def test_a_value_that_is_nothing_at_kafka_or_that_it_does_not_have_has_no_ratio() -> None:
    assert ratios([{OWN: {"a": 1.0, "b": 3.0, "c": 1.0}, KAFKA: {"a": 0.0, "b": 2.0}}]) == {"b": 1.5}


@pytest.mark.parametrize("labels", [{OWN: "ours"}, {OWN: "ours", KAFKA: "Kafka 4.3.0"}])
def test_the_table_has_a_row_for_each_value_and_a_column_for_each_broker(labels: dict[str, str]) -> None:
    pairs = [{system: pair[system] for system in labels} for pair in PAIRS]
    console = Console(file=io.StringIO(), width=120)
    console.print(comparison_table({"produce-64k": pairs}, MEASURES, labels))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    rows = [line for line in printed.splitlines() if line.strip().startswith("produce-64k")]
    assert len(rows) == len(MEASURES["produce-64k"])
    assert ("300.0 MB/s" in printed, "100.0 MB/s" in printed) == (True, KAFKA in labels)


def test_every_figure_has_an_experiment_and_every_experiment_its_values() -> None:
    assert {*experiments(Sizes()), *BY_THEMSELVES} == set(MEASURES)


def test_the_bounds_are_those_that_were_agreed() -> None:
    bounds = {
        (figure, measure.key): (measure.is_minimum, measure.bound)
        for figure, measures in MEASURES.items()
        for measure in measures
        if measure.bounded is not Bounded.NOTHING
    }
    assert bounds["produce-1m-flushed", SPEED] == (True, 2.0)
    assert bounds["consume-cold", SPEED] == (True, 1.0)
    assert bounds["one-record", "end_to_end_ms_p99"] == (False, 0.7)
    assert bounds["connections", "acknowledged_ms_p99"] == (False, 1.0)
    assert [bound for (figure, _), bound in bounds.items() if figure == IDLE] == [
        (False, at) for at in (150, 512, 2, 10)
    ]


def test_figures_are_chosen_by_name_once_each() -> None:
    assert chosen_figures(MEASURES, None) == list(MEASURES)
    assert chosen_figures(MEASURES, "idle,consume-hot,idle") == ["idle", "consume-hot"]


def test_an_unknown_figure_is_a_usage_error_that_lists_the_known_ones(run: Run) -> None:
    said = run("bench", "broker", "--only", "idle,everything")
    assert said.code == 2
    assert "unknown figure 'everything'" in said.errors
    assert "consume-cold" in said.errors


def test_the_directory_of_a_benchmark_is_made_and_a_file_is_none(run: Run, tmp_path: Path) -> None:
    said = run("bench", "produce", "--against", tmp_path, "--dir", tmp_path / "new" / "one")
    assert (said.code, (tmp_path / "new" / "one").is_dir()) == (1, True)
    assert "give a checkout of the project" in said.errors
    (tmp_path / "file").write_text("")
    said = run("bench", "produce", "--against", tmp_path, "--dir", tmp_path / "file")
    assert said.code == 2
    assert "cannot be used: File exists" in said.errors


def test_idle_partitions_are_spread_over_topics() -> None:
    assert topics_of(250) == {"idle-0": 100, "idle-1": 100, "idle-2": 50}
    assert sum(topics_of(2_000).values()) == 2_000
    assert topics_of(7) == {"idle-0": 7}


def test_what_a_process_takes_is_read_from_proc() -> None:
    assert processor_ticks("7 (a name) with) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20\n") == 300
    assert resident_bytes("Name:\tx\nVmHWM:\t  900 kB\nVmRSS:\t   20 kB\n") == 20 * 1024
    assert bytes_read("rchar: 5\nread_bytes: 4096\nwrite_bytes: 1\n") == 4096
