"""One refusal that a test provokes, and the register of all of them: see catalogue.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import pytest

from kraftbase.errors import ErrorCode
from kraftpb.v1.admin_pb2 import Operation

if TYPE_CHECKING:
    from tests.kraftlog.controller.errors.world import World

PROVOKED: set[tuple[str, ErrorCode]] = set()
"""Every rule of the catalogue, and its error, that a test of an imported module provokes."""

T = TypeVar("T")


class Case:
    """An operation that breaks a rule."""

    def __init__(
        self,
        rule: str,
        error: ErrorCode,
        operation: Operation | Callable[[World], Operation],
        *words: str | Callable[[World], str],
    ) -> None:
        """`rule` is one of the catalogue's. `words` must be in the message: what is wrong, and its value."""
        assert words, "a message says what is wrong"
        self.rule = rule
        self.error = error
        self.operation = operation
        self._words = words

    def words(self, world: World) -> list[str]:
        return [word if isinstance(word, str) else word(world) for word in self._words]


def refused(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """Run the test for each of `cases`, as its argument `case`."""
    PROVOKED.update((case.rule, case.error) for case in cases)
    return pytest.mark.parametrize("case", cases, ids=[f"{case.rule}: {case.error.name}" for case in cases])


def provokes(rule: str, error: ErrorCode) -> Callable[[T], T]:
    """Register what a test provokes that is not part of a table."""
    PROVOKED.add((rule, error))
    return lambda test: test
