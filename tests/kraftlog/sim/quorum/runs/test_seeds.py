"""Hundreds of simulated clusters under faults, every invariant after every step; what can happen happens."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

import pytest

from kraftlog.sim.quorum.fault_kinds import KINDS
from kraftlog.sim.quorum.invariants.catalogue import ALL
from kraftlog.sim.quorum.parameters import Overrides, draw
from kraftlog.sim.quorum.report import replay_command
from kraftlog.sim.quorum.runs.run import run_seed
from kraftlog.sim.quorum.runs.sweep import sweep
from tests.paths import ROOT

SEEDS: Final = (14, 16, 52, 134, 171, 198, 206, 217, 219, 231, 260, 303, 332, 334, 341, 371, 381)
"""In these everything happens that can, and they are short."""
NEWEST: Final = 3
FOUND = ROOT / "tests" / "seeds" / "found.txt"


def found_seeds() -> list[Any]:
    """The newest in each run of the tests, all in that of the slow ones: what they draw has changed since."""
    lines = [line for line in FOUND.read_text().splitlines() if line and not line.startswith("#")]
    seeds = [int(line.split()[0]) for line in lines]
    return [*(pytest.param(seed, marks=pytest.mark.slow) for seed in seeds[:-NEWEST]), *seeds[-NEWEST:]]


def count(seeds: Sequence[int]) -> str:
    return f"{len(seeds)} seeds"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seeds",
    [SEEDS, pytest.param(sorted({*range(300), *SEEDS}), marks=pytest.mark.slow)],
    ids=lambda seeds: f"{len(seeds)} seeds",
)
def test_all_invariants_hold_in_every_run_and_everything_happens(seeds: Sequence[int]) -> None:
    total = sweep(seeds, count=len(seeds))
    story = "\n".join(f"{failure.violation}\n{replay_command(failure.parameters.seed)}" for failure in total.failures)
    assert not total.failures, story
    assert total.seeds == len(seeds)
    assert total.acknowledged > total.operations / 3, "the clients are refused too often to find anything"
    assert total.missing_marks == []


@pytest.mark.parametrize("seed", found_seeds())
def test_what_was_found_once_stays_mended(seed: int) -> None:
    assert run_seed(seed).violation is None


@pytest.mark.parametrize("seed", [3, pytest.param(38, marks=pytest.mark.slow)])  # with brokers, and without
def test_a_seed_gives_the_same_trace_whatever_the_hash_seed(seed: int) -> None:
    program = f"""
from kraftlog.process.logs import silence_logging
from kraftlog.sim.quorum.parameters import Overrides
from kraftlog.sim.quorum.runs.run import run_seed
silence_logging()
print(run_seed({seed}, overrides=Overrides(safety_seconds=20)).trace_digest)
"""
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(traces) == 1


def test_two_seeds_give_two_traces() -> None:
    overrides = Overrides(safety_seconds=5)
    assert run_seed(1, overrides=overrides).trace_digest != run_seed(2, overrides=overrides).trace_digest


def test_there_are_as_many_kinds_and_invariants_as_are_said() -> None:
    assert len(KINDS) >= 60
    assert len(ALL) >= 46


def test_parameters_are_a_function_of_the_seed_and_of_what_is_overridden() -> None:
    assert draw(5, KINDS) == draw(5, KINDS)
    smaller = draw(5, KINDS, Overrides(safety_seconds=7, without_faults=("process: paused",), voters=3, observers=0))
    assert (smaller.safety_seconds, smaller.voters, smaller.observers) == (7, 3, 0)
    assert "process: paused" not in smaller.fault_kinds


def test_one_seed_in_six_has_brokers_and_the_rest_of_a_seed_does_not_depend_on_it() -> None:
    assert [seed for seed in range(20) if draw(seed, KINDS).brokers is not None] == [3, 9, 15]
    with_brokers, without = draw(5, KINDS, Overrides(brokers=3)), draw(5, KINDS)
    assert with_brokers.brokers is not None and with_brokers.brokers.count == 3
    assert (with_brokers.fault_kinds, with_brokers.network) == (without.fault_kinds, without.network)
    assert draw(3, KINDS, Overrides(brokers=0)).brokers is None
