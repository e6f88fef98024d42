"""Shortens a sequence as far as it still shows a difference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kraftlog.difftest.steps import Step

Shows = Callable[[Sequence[Step]], Awaitable[bool]]


async def shrink(sequence: Sequence[Step], shows: Shows, runs_max: int = 60) -> list[Step]:
    """Leave out smaller and smaller pieces while `shows` is true for the rest, in at most `runs_max` runs."""
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
