"""The hunt: run each bug of the zoo, seed by seed, until an invariant catches it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kraftlog.sim.broker_log.run import run_log
from kraftlog.sim.engine.mutation import MUTATIONS, WORLD_OF_BROKER_LOG, WORLD_OF_REPLICATION, Mutation
from kraftlog.sim.engine.workers import in_workers
from kraftlog.sim.quorum.fault_kinds import KINDS
from kraftlog.sim.quorum.parameters import Overrides
from kraftlog.sim.quorum.runs.run import run_seed
from kraftlog.sim.replication.run import run_replication
from kraftlog.sim.zoo.catalogue import NAMES

SEEDS_MAX: Final = 500
"""A bug that this many seeds do not catch counts as not caught."""

SAFETY_SECONDS: Final = 60
"""Runs of the hunt are short: bugs show early or not at all, and there are many."""


@dataclass(frozen=True, slots=True)
class Catch:
    """The outcome for one bug."""

    name: str
    seeds: int
    """How many seeds were run, the one that caught it included."""
    caught_by: str | None
    """The invariant's message; None if nothing caught it."""

    @property
    def invariant(self) -> str:
        """The invariant's name and number, or what else ended the run."""
        return "" if self.caught_by is None else self.caught_by.partition(": ")[0]

    def summary(self) -> dict[str, str | int | None]:
        """For a file."""
        return {"bug": self.name, "seeds": self.seeds, "caught_by": self.caught_by}


def hunt_all(names: Sequence[str] = NAMES, seeds_max: int = SEEDS_MAX) -> Iterator[Catch]:
    """Hunt every bug of `names`, on all processors, in the order in which they are caught."""
    yield from in_workers(partial(hunt, seeds_max=seeds_max), names)


def hunt(name: str, seeds_max: int = SEEDS_MAX, first_seed: int = 0) -> Catch:
    """Hunt one bug."""
    bug = MUTATIONS[name]
    with bug.put_in():
        for count, seed in enumerate(range(first_seed, first_seed + seeds_max), start=1):
            violation = _run_with(bug, seed)
            if violation is not None:
                return Catch(name, count, violation)
    return Catch(name, seeds_max, None)


def _run_with(bug: Mutation, seed: int) -> str | None:
    """What does not hold in the run with that seed, in the bug's world."""
    if bug.world == WORLD_OF_BROKER_LOG:
        return run_log(seed).violation
    if bug.world == WORLD_OF_REPLICATION:
        return run_replication(seed).violation
    overrides = Overrides(safety_seconds=SAFETY_SECONDS, voters=bug.voters, brokers=bug.brokers)
    return run_seed(seed, overrides=overrides, kinds=bug.faults or KINDS).violation
