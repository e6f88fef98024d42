"""The hunt: run each bug of the zoo, seed by seed, until an invariant catches it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kraftlog.sim.engine.mutation import Mutation
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.engine.workers import in_workers
from kraftlog.sim.engine.world import World
from kraftlog.sim.zoo.catalogue import BUGS, NAMES

SEEDS_MAX: Final = 500
"""A bug that this many seeds do not catch counts as not caught."""


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
    """Hunt one bug of the zoo."""
    world, bug = BUGS[name]
    return hunt_in(world, bug, seeds_max, first_seed)


def hunt_in(world: World[Any], bug: Mutation, seeds_max: int, first_seed: int = 0) -> Catch:
    """Hunt a bug in a world. Raises ValueError if the world cannot have the faults or the sizes that the bug needs."""
    overrides = Overrides(seconds=world.hunt_seconds, sizes=bug.sizes, fault_kinds=bug.faults or None)
    with bug.put_in():
        for count, seed in enumerate(range(first_seed, first_seed + seeds_max), start=1):
            violation = world.run_seed(seed, overrides).violation
            if violation is not None:
                return Catch(bug.name, count, violation)
    return Catch(bug.name, seeds_max, None)
