"""What a broker with many partitions takes while nothing happens, and how soon it is back after SIGKILL."""

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
"""How long a broker has after its start or its last topic before it is watched: a JVM compiles what just ran."""


async def measure_idle(system: System, partitions: int, seconds: float) -> Figures:
    """Of a broker that has nothing yet. Raises ApiError.

    Memory and files are those of a broker that made its partitions and was then idle; they are taken again after the
    restart, and the larger counts.
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
    """So many partitions, as topics with their counts."""
    whole, rest = divmod(partitions, PARTITIONS_PER_TOPIC)
    counts = [PARTITIONS_PER_TOPIC] * whole + ([rest] if rest else [])
    return {f"idle-{number}": count for number, count in enumerate(counts)}


def _taken(pid: int) -> tuple[float, int]:
    return resident_megabytes(pid), open_files(pid)
