"""Hundreds of simulated clusters under faults, every invariant after every step; what can happen happens."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kraftlog.sim.engine.outcome import Total
from kraftlog.sim.engine.parameters import Overrides, Parameters
from kraftlog.sim.engine.report import replay_command
from kraftlog.sim.engine.sweep import sweep
from kraftlog.sim.quorum.definition import CLUSTERS
from kraftlog.sim.quorum.fault_kinds import KINDS
from kraftlog.sim.quorum.invariants.catalogue import ALL
from tests.paths import ROOT

SECONDS: Final = {
    14: 4, 16: 10, 52: 49, 171: 8, 206: 3, 219: 52, 231: 10, 260: 7, 303: 49, 332: 78, 334: 102, 341: 20, 371: 309,
    381: 44,
}  # fmt: skip
"""In these seeds everything happens that can, before so many seconds are over."""
NEWEST: Final = 1
FOUND = ROOT / "tests" / "seeds" / "found.txt"


def found_seeds() -> list[Any]:
    """The newest one in each run of the tests, all in that of the slow ones: what they draw has changed since."""
    lines = [line for line in FOUND.read_text().splitlines() if line and not line.startswith("#")]
    seeds = [int(line.split()[0]) for line in lines]
    return [*(pytest.param(seed, marks=pytest.mark.slow) for seed in seeds[:-NEWEST]), *seeds[-NEWEST:]]


def again(parameters: Parameters) -> str:
    return replay_command(CLUSTERS, parameters.seed, Overrides(seconds=parameters.seconds))


def check(total: Total, seeds: int) -> None:
    """All invariants hold, and everything has happened."""
    story = "\n".join(f"{failure.violation}\n{again(failure.parameters)}" for failure in total.failures)
    assert not total.failures, story
    assert total.seeds == seeds
    assert total.figures["acknowledged"] > total.figures["operations"] / 3, (
        "the clients are refused too often to find anything"
    )
    assert CLUSTERS.missing(total.marks) == []


@pytest.mark.timeout(900)
def test_all_invariants_hold_in_every_run_and_everything_happens() -> None:
    total = Total()
    for seed, seconds in SECONDS.items():
        total.add(CLUSTERS.run_seed(seed, Overrides(seconds=seconds)))
    check(total, len(SECONDS))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_invariants_hold_in_hundreds_of_runs() -> None:
    seeds = sorted({*range(300), *SECONDS})
    check(sweep(CLUSTERS, seeds, count=len(seeds)), len(seeds))


@pytest.mark.parametrize("seed", found_seeds())
def test_what_was_found_once_stays_mended(seed: int) -> None:
    assert CLUSTERS.run_seed(seed).violation is None


def test_there_are_as_many_kinds_and_invariants_as_are_said() -> None:
    assert len(KINDS) >= 60
    assert len(ALL) >= 46


def test_one_seed_in_six_has_brokers_and_the_rest_of_a_seed_does_not_depend_on_it() -> None:
    assert [seed for seed in range(20) if CLUSTERS.parameters(seed).brokers is not None] == [3, 9, 15]
    with_brokers, without = CLUSTERS.parameters(5, Overrides(sizes={"brokers": 3})), CLUSTERS.parameters(5)
    assert with_brokers.brokers is not None and with_brokers.brokers.count == 3
    assert (with_brokers.fault_kinds, with_brokers.network) == (without.fault_kinds, without.network)
    assert CLUSTERS.parameters(3, Overrides(sizes={"brokers": 0})).brokers is None
