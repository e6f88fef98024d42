"""A world: what is simulated, as the engine runs it. HACKING.md shows how to add one."""

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
    """Runs a world."""

    def __call__(self, parameters: P_contra, *, echo: bool = False) -> Outcome:
        """One run from beginning to end. With `echo` it prints every line of the trace."""
        ...


@dataclass(frozen=True, slots=True)
class Size:
    """Something of which users may say how many there are, as `--NAME COUNT`."""

    name: str
    least: int
    most: int
    smaller: tuple[int, ...]
    """How many to try when a run is shrunk, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World(Generic[P]):
    """One of the worlds. Its functions are pickled by name for the processes that run seeds: they lie in modules."""

    name: str
    """As users choose it."""
    subject: str
    """What is simulated, as a table is to call it."""
    draw: Callable[[int, Overrides], P]
    """What a seed draws. It looks at `sizes` and `fault_kinds` of the overrides; the engine applies the others."""
    run: Run[P]
    invariants: int
    """How many there are."""
    marks: tuple[str, ...]
    """What must happen in a sweep, or the sweep proves less than it says."""
    covering_seeds: int
    """In so many seeds all of it happens."""
    fault_kinds: tuple[str, ...]
    """All kinds of faults that a seed may draw."""
    bugs: tuple[Mutation, ...]
    """The bugs of the zoo that are hunted in this world."""
    sizes: tuple[Size, ...] = ()
    hunt_seconds: int | None = None
    """How long faults happen while a bug is hunted; None: as seeds say."""

    def parameters(self, seed: int, overrides: Overrides = NOTHING) -> P:
        """What a seed draws, with the overrides. Raises ValueError if this world cannot have them."""
        self.check(overrides)
        drawn = self.draw(seed, overrides)
        allowed = set(overrides.kinds_to_draw(self.fault_kinds)).difference(overrides.without_faults)
        return replace(
            drawn,
            seconds=drawn.seconds if overrides.seconds is None else overrides.seconds,
            fault_kinds=tuple(kind for kind in drawn.fault_kinds if kind in allowed),
        )

    def run_seed(self, seed: int, overrides: Overrides = NOTHING, *, echo: bool = False) -> Outcome:
        """The run with that seed. Raises ValueError if this world cannot have the overrides."""
        return self.run(self.parameters(seed, overrides), echo=echo)

    def missing(self, marks: Marks) -> list[str]:
        """What must happen in a sweep, and did not."""
        return [name for name in self.marks if not marks.counts[name]]

    def check(self, overrides: Overrides) -> None:
        """Raise ValueError if this world cannot have the overrides."""
        for kind in (*overrides.without_faults, *(overrides.fault_kinds or ())):
            if kind not in self.fault_kinds:
                near = get_close_matches(kind, self.fault_kinds) or self.fault_kinds[:3]
                like = " or ".join(map(repr, near))
                raise ValueError(f"the world {self.name} has no fault {kind!r}; it has others, such as {like}")
        sizes = {size.name: size for size in self.sizes}
        for name, count in overrides.sizes.items():
            if name not in sizes:
                others = f", only of {', '.join(sizes)}" if sizes else ""
                raise ValueError(f"the world {self.name} does not take a number of {name}{others}")
            least, most = sizes[name].least, sizes[name].most
            if not least <= count <= most:
                raise ValueError(f"{count} {name}: the world {self.name} has {least} to {most}")
