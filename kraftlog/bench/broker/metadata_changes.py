"""Large changes of the metadata: how long they occupy a broker's event loop, and how many syncs they cost.

There are two brokers. The first one is watched, and the second one when it becomes the leader. With 1,000 partitions:
1,000 are created on the first broker, then 1,000 more; the first broker is killed, so that 300 leaderships move to the
second, and starts again; the 300 move back; the 2,000 are deleted. Each of the 300 gets a record after each move.

The syncs are counted on another broker, which runs in strace, so that tracing does not slow down the measured turns.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from kraftlog.bench.broker.comparison import Figures
from kraftlog.bench.broker.loop_reports import turns_in
from kraftlog.bench.broker.measure import Bounded, Measure
from kraftlog.bench.broker.own import QUICK_DELETION, OwnBrokers
from kraftlog.bench.broker.syncs import TracedPlaces
from kraftlog.broker.settings import CHECKPOINT_INTERVAL, LOOP_REPORT_INTERVAL, PARTITIONS_NAME

REPORT_SECONDS: Final = 0.2
CHECKPOINT_SECONDS: Final = 1.0
TURN_LIMIT_MS: Final = 50
SYNCS_LIMIT: Final = 20
MOVED_PART: Final = 0.3
"""The number of leaderships that move, as a share of the partitions that are created at once."""
CONFIGS: Final = {
    **QUICK_DELETION,
    LOOP_REPORT_INTERVAL: str(round(1_000 * REPORT_SECONDS)),
    CHECKPOINT_INTERVAL: str(round(1_000 * CHECKPOINT_SECONDS)),
}
STEPS: Final = {
    "created": "created",
    "killed": "the other leader is killed, records",
    "started": "start after SIGKILL",
    "moved": "leaderships move back, records",
    "deleted": "twice as many deleted",
}
"""The steps, by the keys of their figures."""
SYNCED: Final = {
    "created": "created",
    "stopped": "SIGTERM, three times as many",
    "started": "start after that",
    "killed": "start after SIGKILL",
    "deleted": "three times as many deleted",
}

Show = Callable[[str], None]


def measures() -> tuple[Measure, ...]:
    """Return the measures of the figure."""
    found: list[Measure] = []
    for key, label in STEPS.items():
        found += [
            Measure(
                f"{key}_turn_processor_ms", f"{label}: longest turn", "ms", Bounded.LARGEST, TURN_LIMIT_MS, decimals=1
            ),
            Measure(f"{key}_turn_late_ms", f"{label}: turns late, longest", "ms", decimals=0),
            Measure(f"{key}_fenced", f"{label}: fenced", "times", Bounded.LARGEST, 0, decimals=0),
        ]
    for key, label in SYNCED.items():
        found.append(Measure(f"{key}_syncs", f"{label}: syncs", "syncs", Bounded.LARGEST, SYNCS_LIMIT, decimals=0))
    return tuple(found)


# --- turns ------------------------------------------------------------------------------------------------------------


async def measure_turns(directory: Path, count: int, show: Show) -> Figures:
    """Measure the longest turns of the loop, in a new cluster in `directory`. Raises ApiError."""
    async with OwnBrokers.running(directory, brokers=2, configs=CONFIGS) as system:
        return await _turns(system, count, show)


async def _turns(system: OwnBrokers, count: int, show: Show) -> Figures:
    first, second = system.broker_ids
    topics = system.topics
    moved = max(1, round(MOVED_PART * count))
    figures: dict[str, float] = {}

    async def watched(key: str, broker_ids: list[int], step: Awaitable[object]) -> None:
        """Carry out a step; the worst of these brokers counts."""
        show(STEPS[key])
        paths = [path for path in map(system.log_path, broker_ids) if path is not None]
        before = [path.stat().st_size for path in paths]
        await step
        await asyncio.sleep(3 * REPORT_SECONDS)  # the report of the last turn
        for path, begin in zip(paths, before, strict=True):
            found = turns_in(path.read_bytes()[begin:].decode("utf-8", "replace"))
            for name in ("turn_processor_ms", "turn_late_ms", "fenced"):
                figures[f"{key}_{name}"] = max(figures.get(f"{key}_{name}", 0), found[name])

    async def moving_away() -> None:
        await system.end(first, signal.SIGKILL)
        await topics.until_in_sync("moved", [second])
        await topics.produce_to_each("moved", moved)

    async def moving_back() -> None:
        await system.elect_preferred("moved", moved)
        await topics.produce_to_each("moved", moved)

    for name in ("one", "two"):
        await watched("created", [first], topics.create(name, count, replicas=[first]))
    await topics.create("moved", moved, replicas=[first, second])
    await topics.produce_to_each("moved", moved)
    await watched("killed", [second], moving_away())
    await watched("started", [first], _started(system, first, moved))
    await watched("moved", [first, second], moving_back())
    await watched("deleted", [first], topics.delete("one", "two"))
    return figures


async def _started(system: OwnBrokers, broker_id: int, moved: int) -> None:
    await system.start(broker_id)
    await system.topics.until_led({"moved": moved})
    await system.topics.until_in_sync("moved", system.broker_ids)


# --- syncs ------------------------------------------------------------------------------------------------------------


async def measure_syncs(directory: Path, count: int, strace: str, show: Show) -> Figures:
    """Count the syncs of a log directory, in a new cluster in `directory`. Raises ApiError."""
    traces = directory.with_name(f"{directory.name}-traces")
    traces.mkdir()
    places = TracedPlaces(strace, traces)
    async with OwnBrokers.running(directory, configs=CONFIGS, places=places) as system:
        return await _syncs(system, count, places, show)


async def _syncs(system: OwnBrokers, count: int, places: TracedPlaces, show: Show) -> Figures:
    (broker_id,) = system.broker_ids
    topics = system.topics
    figures: dict[str, float] = {}

    async def counted(key: str, step: Awaitable[object]) -> None:
        show(f"{SYNCED[key]}, in strace")
        before = places.count(broker_id, system.data_path(broker_id) / PARTITIONS_NAME)
        await step
        after = places.count(broker_id, system.data_path(broker_id) / PARTITIONS_NAME)
        figures[f"{key}_syncs"] = after - before

    async def starting() -> None:
        await system.start(broker_id)
        await topics.until_led({"one": count, "two": count, "three": count})

    await counted("created", topics.create("one", count))
    await topics.create("two", count)
    await topics.create("three", count)
    await topics.produce_to_each("three", max(1, round(MOVED_PART * count)))
    await asyncio.sleep(3 * CHECKPOINT_SECONDS)
    await counted("stopped", system.end(broker_id, signal.SIGTERM))
    await counted("started", starting())
    await system.end(broker_id, signal.SIGKILL)
    await counted("killed", starting())
    await counted("deleted", topics.delete("one", "two", "three"))
    return figures
