"""Stops a scenario after every operation on the file system, crashes in every way, and checks the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from random import Random
from typing import TypeAlias, TypeVar

from kraftbase.files.memory import MemoryFileSystem
from tests.effort import all_cases
from tests.raft.storage.builders import Stopped

Told = TypeVar("Told")
Crash: TypeAlias = Callable[[MemoryFileSystem], None]


def _crash_by_chance(seed: int) -> Crash:
    return lambda files: files.crash(random=Random(seed))


CRASHES: dict[str, Crash] = {
    "losing all": lambda files: files.crash(),
    "keeping all": lambda files: files.crash(kept_unsynced_bytes=10**9),
    "keeping 40 bytes": lambda files: files.crash(kept_unsynced_bytes=40),
    "keeping 150 bytes": lambda files: files.crash(kept_unsynced_bytes=150),
    **{f"by chance {seed}": _crash_by_chance(seed) for seed in range(6)},
}


def crashes_at(step: int) -> Iterable[Crash]:
    """All of them, or in `make test` one of the two that differ most, and another one in turn."""
    losing_all, keeping_all, *others = CRASHES.values()
    return CRASHES.values() if all_cases() else ((losing_all, keeping_all)[step % 2], others[step // 2 % len(others)])


def stop_everywhere(
    prepare: Callable[[MemoryFileSystem], Told],
    story: Callable[[MemoryFileSystem, Told], None],
    verify: Callable[[MemoryFileSystem, Told], None],
) -> int:
    """Stop `story` at its first, second, ... operation, crash in every way, and `verify`; returns their number.

    `prepare` makes a new object in which the scenario records the promises that it got; `verify` compares, and does not
    change it.
    """
    step = 0
    while True:
        files = MemoryFileSystem()
        told = prepare(files)
        was_stopped = tell_until(files, told, story, step)
        for crash in crashes_at(step):
            crashed = deepcopy(files)
            crash(crashed)
            verify(crashed, told)
        if not was_stopped:
            return step
        step += 1


def tell_until(files: MemoryFileSystem, told: Told, story: Callable[[MemoryFileSystem, Told], None], step: int) -> bool:
    """Run the scenario, and stop before operation `step`; whether it was stopped."""
    remaining = step

    def stop(operation: str, path: str) -> None:
        nonlocal remaining
        if remaining == 0:
            raise Stopped(f"{operation} of {path}")
        remaining -= 1

    files.before_operation = stop
    try:
        story(files, told)
    except Stopped:
        return True
    finally:
        files.before_operation = None
    return False
