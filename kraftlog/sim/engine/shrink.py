"""Shrinking: run a seed with less time, fewer faults and fewer nodes, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kraftlog.sim.engine.outcome import Outcome
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.engine.world import NOTHING, World


def shrink(
    world: World[Any], seed: int, say: Callable[[str], None], overrides: Overrides = NOTHING
) -> tuple[Overrides, Outcome]:
    """Return the smallest run of `seed` found that still fails: shorter, with fewer faults, with fewer nodes.

    `say` is called with a line about each run. Raises ValueError if the seed does not fail.
    """
    outcome = world.run_seed(seed, overrides)
    if outcome.violation is None:
        raise ValueError(f"seed {seed} does not fail: there is nothing to shrink")
    shrinking = _Shrinking(world, seed, say, overrides, outcome)
    shrinking.shorten()
    shrinking.leave_out_faults()
    shrinking.make_smaller()
    return shrinking.best, shrinking.outcome


class _Shrinking:
    """The smallest failing run found so far."""

    def __init__(
        self, world: World[Any], seed: int, say: Callable[[str], None], best: Overrides, outcome: Outcome
    ) -> None:
        self._world = world
        self._seed = seed
        self._say = say
        self.best = best
        self.outcome = outcome

    def shorten(self) -> None:
        """Bisect the seconds in which faults happen."""
        low, high = 0, self.outcome.parameters.seconds
        while high - low > 1:
            middle = (low + high) // 2
            if self._still_fails(replace(self.best, seconds=middle), f"{middle} s of faults"):
                high = middle
            else:
                low = middle

    def leave_out_faults(self) -> None:
        """Leave out each kind of fault in turn."""
        for kind in self.outcome.parameters.fault_kinds:
            self._still_fails(replace(self.best, without_faults=(*self.best.without_faults, kind)), f"without {kind!r}")

    def make_smaller(self) -> None:
        """Try smaller numbers of voters, brokers and so on."""
        for size in self._world.sizes:
            for count in size.smaller:
                if count < self.outcome.parameters.sizes[size.name]:
                    fewer = replace(self.best, sizes={**self.best.sizes, size.name: count})
                    self._still_fails(fewer, f"{count} {size.name}")

    def _still_fails(self, overrides: Overrides, what: str) -> bool:
        outcome = self._world.run_seed(self._seed, overrides)
        fails = outcome.violation is not None
        self._say(f"{what}: {'still fails' if fails else 'does not fail'}")
        if fails:
            self.best, self.outcome = overrides, outcome
        return fails
