"""How long a broker with many partitions takes to start after SIGKILL, until every partition's leader answers."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kraftbase.errors import ApiError
from kraftlog.bench.broker.comparison import Figures
from kraftlog.bench.broker.idle import SETTLE_SECONDS, topics_of
from kraftlog.bench.broker.measure import Bounded, Measure
from kraftlog.bench.broker.pairs import Running

FACTORS: Final = {"few": 1, "many": 5}
"""The factor of the configured number of partitions, by the key of the figure."""
RATIO_MAX: Final = 0.5
ALONE_SECONDS_MAX: Final = 40
TIMEOUT_SECONDS: Final = 600.0
"""A broker that takes longer for one step does not start."""


def measures() -> tuple[Measure, ...]:
    """Return the measures of the figure."""
    labels = {"few": "2,000 partitions", "many": "10,000 partitions"}
    return tuple(
        Measure(f"{key}_start_seconds", labels[key], "s", Bounded.RATIO, RATIO_MAX, alone=ALONE_SECONDS_MAX)
        for key in FACTORS
    )


async def measure_starts(
    running: Running, directory: Path, partitions: int, show: Callable[[str], None], on_failed: Callable[[str], None]
) -> Figures:
    """Measure one system with each number of partitions, in a new cluster each, in directories that begin with
    `directory`. A broker that does not start has no figure, and `on_failed` is called with the reason.
    """
    figures = {}
    for key, factor in FACTORS.items():
        count = factor * partitions

        def show_step(step: str, count: int = count) -> None:
            show(f"{count:,} partitions: {step}")

        try:
            seconds = await _start_seconds(
                running,
                directory.with_name(f"{directory.name}-{key}"),
                count,
                show_step,
            )
        except ApiError as error:
            on_failed(f"{count:,} partitions: {error}")
        else:
            figures[f"{key}_start_seconds"] = round(seconds, 2)
    return figures


async def _start_seconds(running: Running, directory: Path, count: int, show: Callable[[str], None]) -> float:
    topics = topics_of(count)
    async with running(directory) as system:
        system.topics.timeout_seconds = TIMEOUT_SECONDS
        (broker_id,) = system.broker_ids
        for number, (name, of_topic) in enumerate(topics.items()):
            show(f"topic {number + 1} of {len(topics)}")
            await system.topics.create(name, of_topic)
        await asyncio.sleep(SETTLE_SECONDS)
        show("start after SIGKILL")
        await system.end(broker_id, signal.SIGKILL)
        started = time.perf_counter()
        await system.start(broker_id)
        await system.topics.until_answered(topics)
        return time.perf_counter() - started
