"""Brokers that replicate under faults: all rules hold, everything happens, and a seed is one run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import pytest

from kraftlog.replicas.replication import replica_fetcher
from kraftlog.replicas.replication.following import Append
from kraftlog.sim.broker_log.file_damage import DAMAGES
from kraftlog.sim.engine.command import replay_command
from kraftlog.sim.engine.mutation import MUTATIONS
from kraftlog.sim.engine.outcome import Overrides, Total
from kraftlog.sim.engine.runs import shrink
from kraftlog.sim.replication.events import REQUIRED, missing_events
from kraftlog.sim.replication.parameters import FAULT_KINDS, ROT, draw
from kraftlog.sim.replication.run import REPLICATION_WORLD, run_replication
from kraftlog.sim.zoo.catalogue import NAMES

FEW: Final = (4, 7, 13, 14, 26, 28, 29, 35)
"""In these much happens, and they are short."""
MANY: Final = range(REPLICATION_WORLD.covering_seeds)
"""In these everything happens that must."""
BUG: Final = "a follower counts before it has flushed"


def total_of(seeds: Sequence[int]) -> Total:
    total = Total()
    for seed in seeds:
        total.add(run_replication(seed))
    return total


def story(total: Total) -> str:
    return "\n".join(
        f"{failure.violation}\n{replay_command(REPLICATION_WORLD, failure.parameters.seed, Overrides())}"
        for failure in total.failures
    )


def test_all_rules_hold_in_every_run() -> None:
    total = total_of(FEW)
    assert not total.failures, story(total)
    assert total.checks > 1_000 * len(FEW)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_in_many_runs_everything_happens() -> None:
    total = total_of(MANY)
    assert not total.failures, story(total)
    assert missing_events(total.marks) == []


def test_an_event_that_does_not_happen_is_named() -> None:
    assert missing_events(run_replication(3, Overrides(seconds=1, without_faults=(*FAULT_KINDS, ROT, *DAMAGES))).marks)
    assert len(REQUIRED) > 60


def test_a_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    program = """
from kraftlog.process.logs import silence_logging
from kraftlog.sim.replication.run import run_replication
from kraftlog.sim.engine.outcome import Overrides
silence_logging()
print(run_replication(2, Overrides(seconds=10)).trace_digest)
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
    assert run_replication(1, overrides).trace_digest != run_replication(2, overrides).trace_digest


def test_parameters_are_a_function_of_the_seed_and_of_what_is_overridden() -> None:
    assert draw(7) == draw(7)
    assert draw(7, Overrides(seconds=3)).seconds == 3
    kind = draw(7).fault_kinds[0]
    assert kind not in draw(7, Overrides(without_faults=(kind,))).fault_kinds


def test_a_seed_is_shrunk_to_what_it_takes_to_fail() -> None:
    assert BUG in NAMES
    seed = next(seed for seed in range(10) if draw(seed).topics[0].flush_before_ack)
    with MUTATIONS[BUG].put_in():
        overrides, outcome = shrink(run_replication, seed, lambda line: None)
    assert outcome.violation is not None
    assert outcome.parameters.seconds < draw(seed).seconds
    assert "--world replication" in replay_command(REPLICATION_WORLD, seed, overrides)


def test_what_a_fetcher_goes_on_after_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> Append:
        raise LookupError("a bug")

    monkeypatch.setattr(replica_fetcher, "next_step", fail)
    outcome = run_replication(3, Overrides(seconds=2, without_faults=(*FAULT_KINDS, ROT, *DAMAGES)))
    assert "a fetcher says" in (outcome.violation or "")
    assert "a bug" in (outcome.violation or "")
