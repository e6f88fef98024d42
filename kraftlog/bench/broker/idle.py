"""The resources of an idle broker with many partitions, and the time of its start after SIGKILL."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Final

from kraftlog.bench.broker.comparison import Figures
from kraftlog.bench.broker.system import System
from kraftlog.bench.process_usage import open_files, processor_seconds, resident_megabytes

PARTITIONS_PER_TOPIC: Final = 100
SETTLE_SECONDS: Final = 5.0
"""The pause after a broker's start or its last topic before the measurement: a JVM still compiles code then."""


async def measure_idle(system: System, partitions: int, seconds: float) -> Figures:
    """Measure a broker that has no partitions yet. Raises ApiError.

    Memory and open files are measured when the broker is idle after creating its partitions, and again after the
    restart. The larger value counts.
    """
    topics = topics_of(partitions)
    for name, count in topics.items():
        await system.topics.create(name, count)
    await asyncio.sleep(min(SETTLE_SECONDS, seconds))
    (broker_id,) = system.broker_ids
    used = processor_seconds(system.pid(broker_id))
    await asyncio.sleep(seconds)
    used = processor_seconds(system.pid(broker_id)) - used
    taken = [_taken(system.pid(broker_id))]
    await system.end(broker_id, signal.SIGKILL)
    started = time.perf_counter()
    await system.start(broker_id)
    await system.topics.until_led(topics)
    start_seconds = time.perf_counter() - started
    taken.append(_taken(system.pid(broker_id)))
    return {
        "resident_megabytes": round(max(resident for resident, _ in taken), 1),
        "open_files": max(files for _, files in taken),
        "processor_percent": round(100 * used / seconds, 3),
        "start_seconds": round(start_seconds, 2),
    }


def topics_of(partitions: int) -> dict[str, int]:
    """Return topics, each with its number of partitions, that have this many partitions together."""
    whole, rest = divmod(partitions, PARTITIONS_PER_TOPIC)
    counts = [PARTITIONS_PER_TOPIC] * whole + ([rest] if rest else [])
    return {f"idle-{number}": count for number, count in enumerate(counts)}


def _taken(pid: int) -> tuple[float, int]:
    return resident_megabytes(pid), open_files(pid)
