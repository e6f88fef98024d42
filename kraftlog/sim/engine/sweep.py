"""A sweep: many seeds on all processors, with a progress bar, and the sum of their outcomes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kraftlog.sim.engine.outcome import Outcome, Total
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.engine.workers import in_workers
from kraftlog.sim.engine.world import NOTHING, World


def sweep(
    world: World[Any], seeds: Iterable[int], overrides: Overrides = NOTHING, *, minutes: float | None = None,
    count: int | None = None, failures_max: int = 5,
) -> Total:  # fmt: skip
    """Run `seeds` until they end, `minutes` have passed, or `failures_max` failed.

    `count`: their number, for progress.
    """
    total = Total()
    started = time.monotonic()
    deadline = None if minutes is None else started + minutes * 60
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    outcomes = in_workers(partial(_run_seed, world, overrides), _until(seeds, deadline))
    with Progress(*columns, transient=True) as progress, closing(outcomes):
        bar = progress.add_task("seeds", total=count)
        for outcome in outcomes:
            total.add(outcome)
            hours = total.simulated_seconds / 3600
            progress.update(bar, advance=1, description=f"seeds, {hours:.1f} h, {len(total.failures)} failed")
            if len(total.failures) >= failures_max:
                break
    total.elapsed_seconds = time.monotonic() - started
    return total


def _run_seed(world: World[Any], overrides: Overrides, seed: int) -> Outcome:
    return world.run_seed(seed, overrides)


def _until(seeds: Iterable[int], deadline: float | None) -> Iterator[int]:
    for seed in seeds:
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield seed
