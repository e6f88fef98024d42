"""Each bound of brokers accepts a figure at it and refuses one beyond it, with its broker, value and time."""

from __future__ import annotations

import dataclasses

import pytest

from kraftbase.types import NodeId
from kraftlog.chaos.soak.brokers import limits
from kraftlog.chaos.soak.brokers.bounds_checker import BrokersBoundsChecker
from kraftlog.chaos.soak.brokers.disturbances import PASSING_PARTITIONS
from kraftlog.chaos.soak.brokers.limits import broker_measures, growth_measures, rest_measures
from kraftlog.chaos.soak.brokers.samples import BrokerSample, Lines
from kraftlog.chaos.soak.limits import RUNAWAY_BYTES
from kraftlog.chaos.soak.samples import FileKind, ProcessSample
from tests.kraftlog.chaos.soak.samples import ONE, process, sample

RATE = 200.0
CREATED = 5
BROKER = NodeId(101)
IDLE = process()
KINDS = {BROKER: "broker"}


def broker_sample(
    at_seconds: float = 0.0,
    *,
    log_files: int = 0,
    log_bytes: int = 0,
    own_bytes: int = 0,
    stray_logs: int = 0,
    lines: Lines = Lines(),
    process: ProcessSample | None = IDLE,
) -> BrokerSample:
    return BrokerSample(at_seconds, BROKER, log_files, log_bytes, own_bytes, stray_logs, lines, process)


FAULTY = {
    "broker log bytes": (limits.log_bytes_max(RATE), lambda n: broker_sample(7.0, log_bytes=n)),
    "broker log files": (limits.log_files_max(RATE), lambda n: broker_sample(7.0, log_files=n)),
    "broker metadata bytes": (limits.OWN_BYTES_MAX, lambda n: broker_sample(7.0, own_bytes=n)),
    "broker turn of the loop, ms": (limits.TURN_MS_MAX, lambda n: broker_sample(7.0, lines=Lines(turn_ms=n))),
    "broker tracebacks": (0, lambda n: broker_sample(7.0, lines=Lines(tracebacks=n))),
    "broker log lines a minute": (
        limits.FAULTY_LINES_MAX,
        lambda n: broker_sample(7.0, lines=Lines(per_minute=n)),
    ),
    "broker stray logs": (PASSING_PARTITIONS * CREATED, lambda n: broker_sample(7.0, stray_logs=n)),
    "broker resident bytes": (
        limits.RESIDENT_BYTES_MAX,
        lambda n: broker_sample(7.0, process=process(resident_bytes=n)),
    ),
    "broker descriptors": (limits.DESCRIPTORS_MAX, lambda n: broker_sample(7.0, process=process(descriptors=n))),
    "broker threads": (limits.THREADS_MAX, lambda n: broker_sample(7.0, process=process(threads=n))),
}
STEADY = {
    "broker log lines a minute, without faults": (
        limits.STEADY_LINES_MAX,
        lambda n: broker_sample(7.0, lines=Lines(per_minute=n)),
    ),
    "broker stray logs, without faults": (0, lambda n: broker_sample(7.0, stray_logs=n)),
    "broker fenced, without faults": (0, lambda n: broker_sample(7.0, lines=Lines(fenced=n))),
}


@pytest.mark.parametrize("is_steady", [False, True])
def test_every_measure_of_a_sample_is_tried_here(is_steady: bool) -> None:
    names = {measure.name for measure in broker_measures(broker_sample(), RATE, CREATED, is_steady=is_steady)}
    assert names <= {*FAULTY, *STEADY}
    assert names >= set(STEADY if is_steady else FAULTY)


@pytest.mark.parametrize("name", [*FAULTY, *STEADY])
def test_a_bound_holds_at_its_figure_and_not_beyond(name: str) -> None:
    limit, make = {**FAULTY, **STEADY}[name]
    checker = BrokersBoundsChecker(RATE)
    checker.is_steady = name in STEADY
    checker.created_topics = CREATED
    checker.see_brokers([make(limit)])
    assert checker.violations() == []
    checker.see_brokers([make(limit + 1)])
    assert checker.violations() == [f"{name}: 101 had {limit + 1:,.10g} at 7 s; the bound is {limit:,.10g}"]


def test_the_bounds_of_nodes_hold_beside_brokers_too() -> None:
    checker = BrokersBoundsChecker(RATE)
    lines = Lines(limits.FAULTY_LINES_MAX + 1, tracebacks=2)
    checker.see_nodes([sample({FileKind.DAMAGED: 1}, at_seconds=3.0)], {ONE: lines})
    assert checker.violations() == [
        "node damaged bytes: 1 had 1 at 3 s; the bound is 0",
        "node tracebacks: 1 had 2 at 3 s; the bound is 0",
        f"node log lines a minute: 1 had {limits.FAULTY_LINES_MAX + 1} at 3 s; the bound is {limits.FAULTY_LINES_MAX}",
    ]


GROWTHS = {
    "resident_bytes": limits.RESIDENT_GROWTH_BYTES,
    "descriptors": limits.DESCRIPTOR_GROWTH,
    "threads": limits.THREAD_GROWTH,
}


@pytest.mark.parametrize("name", GROWTHS)
def test_what_grows_from_the_second_to_the_last_quarter_is_noticed(name: str) -> None:
    quarter = limits.QUARTER_SAMPLES_MIN
    early, allowed, beyond = 1_000, 1_000 + GROWTHS[name], 1_001 + GROWTHS[name]
    for late, stories in ((allowed, 0), (beyond, 1)):
        checker = BrokersBoundsChecker(RATE)
        checker.is_steady = True
        for at, value in enumerate([0] * quarter + [early] * 2 * quarter + [late] * quarter):
            checker.see_brokers([broker_sample(at, process=dataclasses.replace(IDLE, **{name: value}))])
        checker.end_steady_part(KINDS, 240.0)
        found = [story for story in checker.violations() if ", growth: 101 had " in story]
        assert len(found) == stories


def test_one_high_sample_is_no_growth() -> None:
    quarter = limits.QUARTER_SAMPLES_MIN
    flat = [process(resident_bytes=5)] * (4 * quarter - 1)
    peak = process(resident_bytes=10 * limits.RESIDENT_GROWTH_BYTES)
    assert all(measure.value == 0 for measure in growth_measures("broker", [*flat, peak]))


def test_a_steady_part_that_is_too_short_shows_no_growth() -> None:
    assert list(growth_measures("broker", [IDLE] * (4 * limits.QUARTER_SAMPLES_MIN - 1))) == []


@pytest.mark.parametrize("name", limits.REST_ALLOWANCE)
def test_descriptors_and_threads_return_to_what_they_were(name: str) -> None:
    usual = 40
    for more, holds in ((0, True), (1, False)):
        value = usual + limits.REST_ALLOWANCE[name] + more
        measures = rest_measures("broker", [process(**{name: usual})], process(**{name: value}))
        assert {measure.name: measure.holds for measure in measures}[f"broker {name}, at rest"] is holds


def test_rest_is_judged_by_the_newest_sample() -> None:
    checker = BrokersBoundsChecker(RATE)
    checker.is_steady = True
    checker.see_brokers([broker_sample(1.0, process=process(descriptors=50))])
    checker.end_steady_part(KINDS, 2.0)
    checker.see_brokers([broker_sample(3.0, process=process(descriptors=67))])
    checker.see_rest(KINDS)
    assert checker.violations() == ["broker descriptors, at rest: 101 had 67 at 3 s; the bound is 66"]


def test_files_that_run_away_end_the_run() -> None:
    checker = BrokersBoundsChecker(RATE)
    checker.see_brokers([broker_sample(1.0, log_bytes=RUNAWAY_BYTES)])
    assert checker.runaway is None
    checker.see_brokers([broker_sample(2.0, log_bytes=RUNAWAY_BYTES, own_bytes=1)])
    assert checker.violations()[-1] == "ended early at 2 s: 101 had 1,073,741,825 bytes of files"
