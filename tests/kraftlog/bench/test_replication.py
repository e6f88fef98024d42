"""Which figures of replication there are, how they are judged, and what a load that breaks a broker counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftlog.bench.broker.loads import interruption
from kraftlog.bench.broker.loads.interruption import Seen
from kraftlog.bench.broker.measure import Bounded
from kraftlog.bench.broker.stock_kafka import CONTROLLER_ID, StockKafka
from kraftlog.bench.peers.installed import Kafka
from kraftlog.bench.process_usage import state
from kraftlog.bench.replication.disruptions import disruptive_experiments, lagging_experiments
from kraftlog.bench.replication.experiments import Sizes, steady_experiments
from kraftlog.bench.replication.measures import MEASURES
from tests.kraftlog.command_line import Run

KAFKA = Kafka(Path("java"), Path("jars"), "4.3.0")
CONTROLLER = Endpoint("localhost", 9093)


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(interruption.time, "perf_counter", clock)
    return clock


def acknowledge(seen: Seen, clock: Clock, partition: int, sent_at: float, at: float) -> None:
    clock.now = at
    seen.answered(partition, sent_at, None, None)  # type: ignore[arg-type]


def test_every_figure_has_an_experiment_and_every_experiment_its_values() -> None:
    sizes = Sizes()
    known = {**steady_experiments(sizes), **disruptive_experiments(sizes), **lagging_experiments(sizes)}
    assert set(known) == set(MEASURES)


def test_the_bounds_are_those_that_were_agreed() -> None:
    bounds = {
        (figure, measure.key): (measure.bounded, measure.is_minimum, measure.bound)
        for figure, measures in MEASURES.items()
        for measure in measures
        if measure.bounded is not Bounded.NOTHING
    }
    assert bounds["produce-1", "megabytes_per_second"] == (Bounded.RATIO, True, 1.0)
    assert bounds["produce-10-flushed", "megabytes_per_second"] == (Bounded.RATIO, True, 1.0)
    assert bounds["one-record", "acknowledged_ms_p50"] == (Bounded.RATIO, False, 0.8)
    assert bounds["one-record-flushed", "acknowledged_ms_p99"] == (Bounded.RATIO, False, 0.8)
    assert bounds["leader-killed", "all_again_seconds"] == (Bounded.VALUE, False, 1.5)
    assert bounds["controlled-shutdown", "slowest_ms"] == (Bounded.VALUE, False, 500)
    assert bounds["controlled-shutdown", "errors"] == (Bounded.VALUE, False, 0)
    assert bounds["catch-up", "to_consume"] == (Bounded.VALUE, True, 0.8)
    assert bounds["follower-stopped", "out_of_isr_seconds"] == (Bounded.VALUE, False, 6.0)


def test_all_are_back_when_each_has_acknowledged_a_record_that_was_sent_after_the_blow(clock: Clock) -> None:
    seen = Seen(2)
    for partition in (0, 1):
        acknowledge(seen, clock, partition, 99.0, 99.5)
    assert seen.all_answered
    seen.began_at = 100.0
    acknowledge(seen, clock, 0, 99.9, 103.0)
    acknowledge(seen, clock, 0, 100.5, 103.5)
    assert not seen.are_all_back
    acknowledge(seen, clock, 1, 101.0, 104.25)
    acknowledge(seen, clock, 1, 102.0, 105.0)
    assert seen.are_all_back
    seen.answered(1, 103.0, object(), None)  # type: ignore[arg-type]
    assert seen.figures() == {"all_again_seconds": 4.25, "slowest_ms": 3250.0, "errors": 1}


def test_a_load_that_hears_nothing_for_long_has_failed(clock: Clock) -> None:
    seen = Seen(1)
    clock.now += interruption.STALL_SECONDS + 1
    with pytest.raises(ApiError, match="no record was acknowledged"):
        _ = seen.are_all_back


@pytest.mark.parametrize(("brokers", "controller"), [(1, 1), (3, CONTROLLER_ID)])
def test_several_stock_brokers_have_a_controller_of_their_own(brokers: int, controller: int) -> None:
    endpoints = {number: Endpoint("localhost", 9100 + number) for number in range(1, brokers + 1)}
    settings: dict[int, Any] = StockKafka(KAFKA, Path("there"), endpoints).settings(CONTROLLER)
    assert set(settings) == {*endpoints, controller}
    assert settings[controller]["controller.quorum.voters"] == f"{controller}@{CONTROLLER}"
    assert settings[controller]["process.roles"] == ("broker,controller" if brokers == 1 else "controller")
    assert settings[1]["offsets.topic.replication.factor"] == brokers


def test_a_stopped_process_is_known_by_its_letter() -> None:
    assert state("7 (a name) with) T 1 2 3\n") == "T"


def test_an_unknown_figure_is_a_usage_error_that_lists_the_known_ones(run: Run) -> None:
    said = run("bench", "replication", "--only", "produce-1,everything")
    assert said.code == 2
    assert "unknown figure 'everything'" in said.errors
    assert "follower-stopped" in said.errors
