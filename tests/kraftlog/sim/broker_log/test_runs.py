"""A broker's logs under faults: all rules hold, everything happens, and a seed is one run."""

from __future__ import annotations

from typing import Final

import pytest

from kraftlog.sim.broker_log.definition import BROKER_LOG
from kraftlog.sim.broker_log.world import World
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.mutation import MUTATIONS
from kraftlog.sim.engine.outcome import Total
from kraftlog.sim.engine.parameters import Overrides, Parameters
from kraftlog.sim.engine.report import replay_command
from kraftlog.sim.engine.shrink import shrink

SECONDS: Final = {19: 115, 36: 30, 62: 90, 378: 45}
"""In these seeds everything happens that must, before so many seconds are over."""
BUG: Final = "an append is acknowledged before its group commit"


def again(parameters: Parameters) -> str:
    return replay_command(BROKER_LOG, parameters.seed, Overrides(seconds=parameters.seconds))


def check(total: Total) -> None:
    """All rules hold, and everything has happened."""
    story = "\n".join(f"{failure.violation}\n{again(failure.parameters)}" for failure in total.failures)
    assert not total.failures, story
    assert BROKER_LOG.missing(total.marks) == []
    assert total.checks > 1_000 * total.seeds


def test_all_rules_hold_in_every_run_and_everything_happens() -> None:
    total = Total()
    for seed, seconds in SECONDS.items():
        total.add(BROKER_LOG.run_seed(seed, Overrides(seconds=seconds)))
    check(total)


@pytest.mark.slow
def test_all_rules_hold_in_hundreds_of_runs() -> None:
    total = Total()
    for seed in range(300):
        total.add(BROKER_LOG.run_seed(seed))
    check(total)


def test_a_mark_that_is_not_hit_is_named() -> None:
    assert BROKER_LOG.missing(BROKER_LOG.run_seed(6, Overrides(seconds=1, fault_kinds=())).marks)
    assert len(BROKER_LOG.marks) > 50


def test_a_seed_is_shrunk_to_what_it_takes_to_fail() -> None:
    with MUTATIONS[BUG].put_in():
        overrides, outcome = shrink(BROKER_LOG, 3, lambda line: None)
    assert outcome.violation is not None
    assert outcome.parameters.seconds < BROKER_LOG.parameters(3).seconds
    assert outcome.parameters.fault_kinds == ()
    assert "--safety-seconds" in replay_command(BROKER_LOG, 3, overrides)


def test_a_broker_that_closes_its_logs_is_not_reached() -> None:
    world = World(BROKER_LOG.parameters(6, Overrides(fault_kinds=())), Marks())
    world.start_broker()
    while world.broker is None:
        world.run_for(1_000)
    broker, done = world.broker, []
    world.shut_down()
    while not broker.is_closed:
        world.step(lambda of: done.append(of.is_closed))
        world.run_for(100)
    assert done and not any(done)
    before = len(done)
    world.step(lambda of: done.append(of.is_closed))
    assert len(done) == before and world.broker is broker
