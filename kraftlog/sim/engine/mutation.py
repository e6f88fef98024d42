"""A bug of the zoo: the patches that put it into production code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final
from unittest import mock


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug: its name, its origin, and the patches that put it in."""

    name: str
    origin: str
    """The issue or report where it did harm, or the rule that it breaks."""
    patches: Callable[[], list[Any]]
    """Returns the patches that put the bug in."""
    faults: tuple[str, ...]
    """The kinds of faults that may happen in its runs. Empty: each seed draws them."""
    sizes: Mapping[str, int]
    """The number of voters, brokers and so on in its runs, by name. Each seed draws those that are not named."""

    @contextlib.contextmanager
    def put_in(self) -> Iterator[None]:
        """Return a context manager in whose block the bug is in place."""
        with contextlib.ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


MUTATIONS: Final[dict[str, Mutation]] = {}
"""The bugs of all imported modules, by name."""


def mutation(
    name: str, origin: str, *, faults: tuple[str, ...] = (), **sizes: int
) -> Callable[[Callable[[], list[Any]]], Callable[[], list[Any]]]:
    """Return a decorator that makes a function that returns patches a bug of the zoo."""

    def register(patches: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
        MUTATIONS[name] = Mutation(name, origin, patches, faults, sizes)
        return patches

    return register


def bugs_of(*modules: ModuleType) -> tuple[Mutation, ...]:
    """Return the bugs that the given modules define, in order."""
    return tuple(bug for module in modules for bug in MUTATIONS.values() if bug.patches.__module__ == module.__name__)


def instead(owner: Any, name: str, replacement: Any) -> Any:
    """Return the patch that replaces the attribute `name` of `owner` with `replacement`."""
    return mock.patch.object(owner, name, replacement)
