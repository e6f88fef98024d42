"""What a seed draws for a run, and the overrides a user may give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a seed draws. Each world adds its own parameters."""

    seed: int
    seconds: int
    """How long clients and faults are active. A quiet phase without faults follows, in which the world must recover."""
    fault_kinds: tuple[str, ...]
    """The kinds of faults that may happen in this run."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The number of voters, brokers and so on (`kraftlog.sim.engine.world.Size`), by name."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Return all parameters by name, for a report or a JSON file."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Overrides:
    """Values that replace what the seed draws. They show which parts of a run a failure needs."""

    seconds: int | None = None
    without_faults: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The number of voters, brokers and so on, by name."""
    fault_kinds: tuple[str, ...] | None = None
    """The kinds of faults to draw from; None: all."""

    def kinds_to_draw(self, kinds: Sequence[str]) -> Sequence[str]:
        """Return those of `kinds` that a seed may draw."""
        if self.fault_kinds is None:
            return kinds
        return [kind for kind in self.fault_kinds if kind in kinds]

    def summary(self) -> dict[str, Any]:
        """Return the overrides as a JSON object."""
        return asdict(self)
