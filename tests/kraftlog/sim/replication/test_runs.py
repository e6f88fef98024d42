"""Brokers that replicate under faults: all rules hold, everything happens, and a seed is one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from kraftlog.replicas.replication import replica_fetcher
from kraftlog.replicas.replication.following import Append
from kraftlog.sim.engine.mutation import MUTATIONS
from kraftlog.sim.engine.outcome import Total
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.engine.report import replay_command
from kraftlog.sim.engine.shrink import shrink
from kraftlog.sim.replication.definition import REPLICATION

FEW: Final = (7, 13, 14, 29)
"""In these much happens, and they are short."""
MANY: Final = range(REPLICATION.covering_seeds)
"""In these everything happens that must."""
BUG: Final = "a follower counts before it has flushed"


def total_of(seeds: Sequence[int]) -> Total:
    total = Total()
    for seed in seeds:
        total.add(REPLICATION.run_seed(seed))
    return total


def story(total: Total) -> str:
    return "\n".join(
        f"{failure.violation}\n{replay_command(REPLICATION, failure.parameters.seed)}" for failure in total.failures
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
    assert REPLICATION.missing(total.marks) == []


def test_a_mark_that_is_not_hit_is_named() -> None:
    assert REPLICATION.missing(REPLICATION.run_seed(3, Overrides(seconds=1, fault_kinds=())).marks)
    assert len(REPLICATION.marks) > 60


def test_a_seed_is_shrunk_to_what_it_takes_to_fail() -> None:
    seed = next(seed for seed in range(10) if REPLICATION.parameters(seed).topics[0].flush_before_ack)
    with MUTATIONS[BUG].put_in():
        overrides, outcome = shrink(REPLICATION, seed, lambda line: None)
    assert outcome.violation is not None
    assert outcome.parameters.seconds < REPLICATION.parameters(seed).seconds
    assert "--world replication" in replay_command(REPLICATION, seed, overrides)


def test_what_a_fetcher_goes_on_after_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> Append:
        raise LookupError("a bug")

    monkeypatch.setattr(replica_fetcher, "next_step", fail)
    outcome = REPLICATION.run_seed(3, Overrides(seconds=2, fault_kinds=()))
    assert "a fetcher reports a bug" in (outcome.violation or "")
    assert "a bug" in (outcome.violation or "")
