"""How much of a large number of cases is tried: a part of them in `make test`, all of them in `make slow`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeVar

Case = TypeVar("Case")

ALL_CASES: Final = "KRAFTLOG_ALL_CASES"
"""The environment variable that `make slow` sets."""

PART: Final = 8
"""`make test` tries one case in so many."""

EXAMPLES_MIN: Final = 10


def all_cases() -> bool:
    """Whether this is a run of `make slow`."""
    return ALL_CASES in os.environ


def examples(count: int) -> int:
    """How many examples Hypothesis makes up of a property that `make slow` tries with `count`."""
    return count if all_cases() else min(count, max(count // PART, EXAMPLES_MIN))


def some(cases: Sequence[Case], part: int = PART) -> Sequence[Case]:
    """One case in `part`, from the first to the last: each differs from its neighbours by one byte or operation."""
    if all_cases() or len(cases) < 2:
        return cases
    return [*cases[:-1:part], cases[-1]]
