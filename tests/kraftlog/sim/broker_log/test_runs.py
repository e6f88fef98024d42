"""A broker's logs under faults: all rules hold, everything happens, and a seed is one run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import pytest

from kraftlog.sim.broker_log.events import REQUIRED, missing_events
from kraftlog.sim.broker_log.file_damage import DAMAGES
from kraftlog.sim.broker_log.parameters import FAULT_KINDS, draw
from kraftlog.sim.broker_log.run import LOG_WORLD, run_log
from kraftlog.sim.engine.command import replay_command
from kraftlog.sim.engine.mutation import MUTATIONS
from kraftlog.sim.engine.outcome import Overrides, Total
from kraftlog.sim.engine.runs import shrink
from kraftlog.sim.zoo.catalogue import NAMES

SEEDS: Final = (6, 7, 11, 19, 26, 36, 42, 46, 58, 62, 77, 378)
"""In these everything happens that must, most of it in two of them at least, and they are short."""
BUG: Final = "an append is acknowledged before its group commit"


def total_of(seeds: Sequence[int]) -> Total:
    total = Total()
    for seed in seeds:
        total.add(run_log(seed))
    return total


@pytest.mark.parametrize(
    "seeds", [SEEDS, pytest.param(range(300), marks=pytest.mark.slow)], ids=lambda seeds: f"{len(seeds)} seeds"
)
def test_all_rules_hold_in_every_run_and_everything_happens(seeds: Sequence[int]) -> None:
    total = total_of(seeds)
    story = "\n".join(
        f"{failure.violation}\n{replay_command(LOG_WORLD, failure.parameters.seed, Overrides())}"
        for failure in total.failures
    )
    assert not total.failures, story
    assert missing_events(total.marks) == []
    assert total.checks > 1_000 * len(seeds)


def test_an_event_that_does_not_happen_is_named() -> None:
    assert missing_events(run_log(6, Overrides(seconds=1, without_faults=(*FAULT_KINDS, *DAMAGES))).marks)
    assert len(REQUIRED) > 50


def test_a_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    program = """
from kraftlog.process.logs import silence_logging
from kraftlog.sim.broker_log.run import run_log
from kraftlog.sim.engine.outcome import Overrides
silence_logging()
print(run_log(61, Overrides(seconds=30)).trace_digest)
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
    overrides = Overrides(seconds=2)
    assert run_log(1, overrides).trace_digest != run_log(2, overrides).trace_digest


def test_parameters_are_a_function_of_the_seed_and_of_what_is_overridden() -> None:
    assert draw(7) == draw(7)
    assert draw(7, Overrides(seconds=3)).seconds == 3
    kind = draw(7).fault_kinds[0]
    assert kind not in draw(7, Overrides(without_faults=(kind,))).fault_kinds


def test_a_seed_is_shrunk_to_what_it_takes_to_fail() -> None:
    assert BUG in NAMES
    with MUTATIONS[BUG].put_in():
        overrides, outcome = shrink(run_log, 3, lambda line: None)
    assert outcome.violation is not None
    assert outcome.parameters.seconds < draw(3).seconds
    assert outcome.parameters.fault_kinds == ()
    assert "--safety-seconds" in replay_command(LOG_WORLD, 3, overrides)


def test_a_seed_that_does_not_fail_cannot_be_shrunk() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(run_log, 6, lambda line: None)
