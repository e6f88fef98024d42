"""All bugs of the zoo."""

from __future__ import annotations

from typing import Any, Final

from kraftlog.sim.engine.mutation import Mutation
from kraftlog.sim.engine.world import World
from kraftlog.sim.worlds import WORLDS

BUGS: Final[dict[str, tuple[World[Any], Mutation]]] = {
    bug.name: (world, bug) for world in WORLDS.values() for bug in world.bugs
}
"""Every bug with the world in which it is hunted, by name."""

NAMES: Final = tuple(BUGS)
"""The names of all bugs, in the order of their worlds and modules."""
