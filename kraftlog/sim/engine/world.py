"""A world: what is simulated, in the form that the engine runs. HACKING.md shows how to add one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Generic, Protocol, TypeVar

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.mutation import Mutation
from kraftlog.sim.engine.outcome import Outcome
from kraftlog.sim.engine.parameters import Overrides, Parameters

P = TypeVar("P", bound=Parameters)
P_contra = TypeVar("P_contra", bound=Parameters, contravariant=True)

NOTHING: Overrides = Overrides()
"""No overrides: a run is as its seed draws it."""


class Run(Protocol[P_contra]):
    """A function that runs a world."""

    def __call__(self, parameters: P_contra, *, echo: bool = False) -> Outcome:
        """Run once, from start to end. With `echo`, print every line of the trace."""
        ...


@dataclass(frozen=True, slots=True)
class Size:
    """A number of voters, brokers or the like that users can set with `--NAME COUNT`."""

    name: str
    least: int
    most: int
    smaller: tuple[int, ...]
    """The numbers to try when a run is shrunk, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World(Generic[P]):
    """One of the worlds. Its functions must be in modules: worker processes receive them pickled, by name."""

    name: str
    """The name that users give to `--world`."""
    subject: str
    """What is simulated, for the title of the report's table."""
    draw: Callable[[int, Overrides], P]
    """Draws the parameters of a seed.

    It reads `sizes` and `fault_kinds` of the overrides; the engine applies the rest.
    """
    run: Run[P]
    invariants: int
    """The number of invariants."""
    marks: tuple[str, ...]
    """The marks that a long sweep must hit; a sweep that misses one has tested less than it claims."""
    covering_seeds: int
    """A sweep of this many seeds or more must hit every mark."""
    fault_kinds: tuple[str, ...]
    """All kinds of faults that a seed may draw."""
    bugs: tuple[Mutation, ...]
    """The bugs of the zoo to be caught in this world."""
    sizes: tuple[Size, ...] = ()
    hunt_seconds: int | None = None
    """How long faults happen while a bug is hunted; None: each seed draws it."""

    def parameters(self, seed: int, overrides: Overrides = NOTHING) -> P:
        """Return what a seed draws, with the overrides applied. Raises ValueError if this world cannot have them."""
        self.check(overrides)
        drawn = self.draw(seed, overrides)
        allowed = set(overrides.kinds_to_draw(self.fault_kinds)).difference(overrides.without_faults)
        return replace(
            drawn,
            seconds=drawn.seconds if overrides.seconds is None else overrides.seconds,
            fault_kinds=tuple(kind for kind in drawn.fault_kinds if kind in allowed),
        )

    def run_seed(self, seed: int, overrides: Overrides = NOTHING, *, echo: bool = False) -> Outcome:
        """Run the seed. Raises ValueError if this world cannot have the overrides."""
        return self.run(self.parameters(seed, overrides), echo=echo)

    def missing(self, marks: Marks) -> list[str]:
        """Return the marks that a long sweep must hit and that were not hit."""
        return [name for name in self.marks if not marks.counts[name]]

    def check(self, overrides: Overrides) -> None:
        """Raise ValueError if this world cannot have the overrides."""
        for kind in (*overrides.without_faults, *(overrides.fault_kinds or ())):
            if kind not in self.fault_kinds:
                near = get_close_matches(kind, self.fault_kinds) or self.fault_kinds[:3]
                like = " or ".join(map(repr, near))
                raise ValueError(f"the world {self.name} has no fault {kind!r}; its faults include {like}")
        sizes = {size.name: size for size in self.sizes}
        for name, count in overrides.sizes.items():
            if name not in sizes:
                others = f", only of {', '.join(sizes)}" if sizes else ""
                raise ValueError(f"the world {self.name} does not take a number of {name}{others}")
            least, most = sizes[name].least, sizes[name].most
            if not least <= count <= most:
                raise ValueError(f"{count} {name}: the world {self.name} has {least} to {most}")
