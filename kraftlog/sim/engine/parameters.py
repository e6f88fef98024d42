"""What a seed draws for a run, and what may be said instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a seed has drawn. Each world adds its own."""

    seed: int
    seconds: int
    """How long clients and faults go on. What follows is peace, in which the world must recover."""
    fault_kinds: tuple[str, ...]
    """The kinds of faults that may happen in this run."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """How many there are of what may be counted (`kraftlog.sim.engine.world.Size`), by name."""
        return {}

    def describe(self) -> dict[str, Any]:
        """For people and files."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What holds whatever the seed draws, to find out what a run needs to fail."""

    seconds: int | None = None
    without_faults: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """How many there are of what is counted, by name."""
    fault_kinds: tuple[str, ...] | None = None
    """The kinds of faults to draw from; None: all."""

    def kinds_to_draw(self, kinds: Sequence[str]) -> Sequence[str]:
        """Those of `kinds` that a seed may draw."""
        if self.fault_kinds is None:
            return kinds
        return [kind for kind in self.fault_kinds if kind in kinds]

    def summary(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)
