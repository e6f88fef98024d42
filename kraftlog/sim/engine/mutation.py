"""What a bug of the zoo is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final
from unittest import mock


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug: what it is called, who had it, and how it is put in."""

    name: str
    origin: str
    """The issue or report where it did harm, or the rule that it breaks."""
    patches: Callable[[], list[Any]]
    """Makes the patches that put it in."""
    faults: tuple[str, ...]
    """The kinds of faults that happen in the runs that it is hunted in; none named: as their seeds say."""
    sizes: Mapping[str, int]
    """How many voters, brokers or the like these runs have; not named: as their seeds say."""

    @contextlib.contextmanager
    def put_in(self) -> Iterator[None]:
        """The bug is in place within the block."""
        with contextlib.ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


MUTATIONS: Final[dict[str, Mutation]] = {}
"""All that were imported, by name."""


def mutation(
    name: str, origin: str, *, faults: tuple[str, ...] = (), **sizes: int
) -> Callable[[Callable[[], list[Any]]], Callable[[], list[Any]]]:
    """Make a function that gives patches a bug of the zoo."""

    def register(patches: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
        MUTATIONS[name] = Mutation(name, origin, patches, faults, sizes)
        return patches

    return register


def bugs_of(*modules: ModuleType) -> tuple[Mutation, ...]:
    """The bugs of some modules, in their order."""
    return tuple(bug for module in modules for bug in MUTATIONS.values() if bug.patches.__module__ == module.__name__)


def instead(owner: Any, name: str, replacement: Any) -> Any:
    """The patch that puts `replacement` in the place of an attribute."""
    return mock.patch.object(owner, name, replacement)
