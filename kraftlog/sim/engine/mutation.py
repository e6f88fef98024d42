"""What a bug of the zoo is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

WORLD_OF_CLUSTERS: Final = "clusters"
WORLD_OF_BROKER_LOG: Final = "broker-log"
WORLD_OF_REPLICATION: Final = "replication"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug: what it is called, who had it, and how it is put in."""

    name: str
    origin: str
    """The issue or report where it did harm, or the rule that it breaks."""
    patches: Callable[[], list[Any]]
    """Makes the patches that put it in."""
    brokers: int | None = None
    """How many brokers the runs have that it is hunted in; None: as their seeds say."""
    voters: int | None = None
    """How many voters they have; None: as their seeds say."""
    faults: tuple[str, ...] = ()
    """The kinds of faults that happen in them; none named: as their seeds say."""
    world: str = WORLD_OF_CLUSTERS
    """The world in which it is hunted; only in that of clusters there are voters and brokers to choose."""

    @contextlib.contextmanager
    def put_in(self) -> Iterator[None]:
        """The bug is in place within the block."""
        with contextlib.ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


MUTATIONS: Final[dict[str, Mutation]] = {}
"""All of them, by name. The modules of this package fill it when `kraftlog.sim.zoo.catalogue` imports them."""


def mutation(
    name: str, origin: str, *, brokers: int | None = None, voters: int | None = None, faults: tuple[str, ...] = (),
    world: str = WORLD_OF_CLUSTERS,
) -> Callable[[Callable[[], list[Any]]], Callable[[], list[Any]]]:  # fmt: skip
    """Make a function that gives patches a bug of the zoo."""

    def register(patches: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
        MUTATIONS[name] = Mutation(name, origin, patches, brokers, voters, faults, world)
        return patches

    return register


def instead(owner: Any, name: str, replacement: Any) -> Any:
    """The patch that puts `replacement` in the place of an attribute."""
    return mock.patch.object(owner, name, replacement)
