"""A sequence that shows a difference, made as short as it can be while it still does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kraftlog.difftest.steps import Step

Shows = Callable[[Sequence[Step]], Awaitable[bool]]


async def shrink(sequence: Sequence[Step], shows: Shows, runs_max: int = 60) -> list[Step]:
    """Leave out ever smaller pieces as long as `shows` says that the rest still shows it; at most `runs_max` runs."""
    found = list(sequence)
    size = max(1, len(found) // 2)
    runs = 0
    while size and runs < runs_max:
        at = len(found)
        while at > 0 and runs < runs_max:
            start = max(0, at - size)
            shorter = found[:start] + found[at:]
            runs += 1
            if shorter and await shows(shorter):
                found = shorter
            at = start
        size //= 2
    return found
