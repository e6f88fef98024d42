"""How `bench peers` measures a system, alternates rounds, and compares. The systems here are in this process."""

from __future__ import annotations

import asyncio
import io
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.bench.latency import WARM_UP_OPERATIONS
from kraftlog.bench.peers.ratios import (
    ACKNOWLEDGED,
    ETCD,
    KAFKA,
    MEASURES,
    OWN,
    VISIBLE,
    comparison_table,
    load_key,
    medians,
    ratios,
    targets,
)
from kraftlog.bench.peers.run import Sizes, expected_seconds, measure
from kraftlog.bench.peers.system import System, Watch, WhenVisible

SIZES = Sizes(rounds=2, operations=3, seconds=0.02, warm_up_seconds=0.001)
VISIBLE_AFTER_SECONDS = 0.01


class InProcess(System):
    """Acknowledges at once, and is visible a little later. One operation in `failing_every` fails; none, if it is 0."""

    def __init__(self, failing_every: int) -> None:
        self._numbers = itertools.count()
        self._failing_every = failing_every
        self.under_way = 0
        self.peaks = [0]
        """How many were under way at most, each time until none was."""

    async def submit(self) -> int:
        number = next(self._numbers)
        self.under_way += 1
        self.peaks[-1] = max(self.peaks[-1], self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.under_way == 0:
            self.peaks.append(0)
        if self._failing_every and number % self._failing_every == 0:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"operation {number}")
        return number

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[WhenVisible]:
        async def when_visible(place: int) -> int:
            await asyncio.sleep(VISIBLE_AFTER_SECONDS)
            return time.monotonic_ns()

        yield when_visible


class Started:
    """Starts systems, and keeps which, in which order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.systems: list[InProcess] = []

    def running(self, name: str, failing_every: int = 0):
        @asynccontextmanager
        async def running(directory: Path) -> AsyncIterator[System]:
            assert directory.is_dir()
            assert not any(system.under_way for system in self.systems), "two systems run at a time"
            self.names.append(name)
            self.systems.append(InProcess(failing_every))
            yield self.systems[-1]

        return running


async def test_systems_take_turns_each_new_and_by_itself_in_the_opposite_order_every_other_round(
    tmp_path: Path,
) -> None:
    started, shown, errors = Started(), [], []
    systems = {name: started.running(name) for name in (OWN, ETCD, KAFKA)}
    rounds = await measure(systems, SIZES, tmp_path, errors, shown.append)
    assert started.names == [OWN, ETCD, KAFKA, KAFKA, ETCD, OWN]
    assert shown[0] == f"round 1 of 2: {OWN}"
    assert (errors, list(tmp_path.iterdir())) == ([], [])
    assert [set(found) for found in rounds] == [set(systems)] * 2
    for figures in (figures for found in rounds for figures in found.values()):
        assert figures.keys() == {measure.key for measure in MEASURES}
        assert figures[ACKNOWLEDGED] < VISIBLE_AFTER_SECONDS * 1000 <= figures[VISIBLE]
        assert min(figures[load_key(callers)] for callers in (64, 256)) > 0
    for system in started.systems:
        one_at_a_time = WARM_UP_OPERATIONS + SIZES.operations
        assert system.peaks == [64, *[1] * one_at_a_time, 64, 64, 256, 256, 0]
    at_least = sum(started.systems[0].peaks)
    assert max([await system.submit() for system in started.systems]) > at_least, (
        "callers submit until the time is over"
    )


async def test_a_failed_operation_is_kept_and_not_measured(tmp_path: Path) -> None:
    errors: list[str] = []
    started = Started()
    rounds = await measure({OWN: started.running(OWN, failing_every=3)}, SIZES, tmp_path, errors, lambda _: None)
    assert all(figures[OWN][VISIBLE] >= VISIBLE_AFTER_SECONDS * 1000 for figures in rounds)
    of_one_at_a_time = SIZES.rounds * (WARM_UP_OPERATIONS + SIZES.operations)
    assert len(errors) > of_one_at_a_time, "those of many callers count, too"
    assert all(error.startswith("NOT_CONTROLLER") for error in errors)


async def test_a_system_of_which_no_operation_succeeds_is_an_error_with_its_last_one(tmp_path: Path) -> None:
    systems = {OWN: Started().running(OWN, failing_every=1)}
    with pytest.raises(ApiError, match="no operation succeeded; the last error: NOT_CONTROLLER"):
        await measure(systems, SIZES, tmp_path, [], lambda _: None)


def figures(acknowledged: float, visible: float, of_64: float, of_256: float) -> dict[str, float]:
    return {ACKNOWLEDGED: acknowledged, VISIBLE: visible, load_key(64): of_64, load_key(256): of_256}


ROUNDS = [
    {OWN: figures(2, 3, 900, 1000), ETCD: figures(1, 1, 1000, 1000)},
    {OWN: figures(6, 9, 300, 400), ETCD: figures(3, 4, 400, 400)},  # the machine was busy
    {OWN: figures(3, 4, 990, 1100), ETCD: figures(1, 2, 1000, 1000)},
]


def test_a_ratio_is_the_median_of_the_rounds_ratios_and_not_the_ratio_of_the_medians() -> None:
    assert medians(ROUNDS, OWN) == figures(3, 4, 900, 1000)
    assert medians(ROUNDS, ETCD) == figures(1, 2, 1000, 1000)
    assert ratios(ROUNDS, ETCD) == pytest.approx(figures(2, 2.25, 0.9, 1))


def test_the_ratios_to_etcd_have_the_targets_of_the_project() -> None:
    bounded = targets(ratios(ROUNDS, ETCD))
    assert [(target.bound, target.is_minimum, target.is_met) for target in bounded] == [
        (2.1, False, True),
        (2.3, False, True),
        (0.95, True, False),
        (0.95, True, True),
    ]


def test_the_table_has_every_systems_median_beside_the_ratios() -> None:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(comparison_table(ROUNDS, {OWN: "kraftlog", ETCD: "etcd 3.4.23"}))
    title, head, acknowledged, _, of_64, _ = (line.strip() for line in console.export_text().splitlines())
    assert title == "Medians of 3 rounds, and of the ratios of kraftlog to its peers"
    assert head.split() == ["kraftlog", "etcd", "3.4.23", "to", "etcd"]
    assert acknowledged.split()[-5:] == ["3.00", "ms", "1.00", "ms", "2.00"]
    assert of_64.split()[-3:] == ["900/s", "1,000/s", "0.90"]


def test_the_expected_time_grows_with_rounds_and_systems() -> None:
    sizes = Sizes(rounds=1, operations=100, seconds=5)
    of_two = expected_seconds([OWN, ETCD], sizes)
    assert expected_seconds([OWN], sizes) < of_two < expected_seconds([OWN, ETCD, KAFKA], sizes)
    assert expected_seconds([OWN, ETCD], Sizes(rounds=3, operations=100, seconds=5)) == pytest.approx(3 * of_two)


async def test_a_watch_waits_for_the_place_and_says_when_it_was_reached() -> None:
    watch, may_go_on = Watch(), asyncio.Event()

    async def stream() -> None:
        watch.reached(7)
        await may_go_on.wait()
        watch.reached(8)
        await asyncio.Event().wait()

    async with watch.fed_by(stream()) as when_visible:
        since_ns = await when_visible(7)
        assert await when_visible(6) == since_ns <= time.monotonic_ns()
        waiting = asyncio.create_task(when_visible(8))
        await asyncio.sleep(0)
        assert not waiting.done()
        may_go_on.set()
        assert await waiting > since_ns


async def test_a_watch_that_ends_with_an_error_fails_who_waits_for_it() -> None:
    watch = Watch()

    async def stream() -> None:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the follower is gone")

    async with watch.fed_by(stream()) as when_visible:
        with pytest.raises(ApiError, match="the follower is gone"):
            await when_visible(1)
