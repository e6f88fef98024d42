"""Reads, and operations one at a time, with much metadata in the store.

The cluster is filled first, and its nodes take no snapshots: `bench snapshot` measures their cost. Reads are sent to
one observer, one at a time, and timed from the request until the client has the answer; each read of a topic reads
another topic. Operations are measured as in `bench latency`. There an operation is visible when a listener has its
batch, which does not involve the store. So the time until the last observer has it in SQLite is measured, too: from
then on reads find it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from rich.console import Console

from kraftlog.bench.creation import create_all, operations, placed_topics
from kraftlog.bench.figures import summary
from kraftlog.bench.filling import PARTITIONS_PER_TOPIC, fill, filling_topic
from kraftlog.bench.latency import WARM_UP_OPERATIONS, time_operations
from kraftlog.bench.metadata.create import LATENCY_MS_MAX
from kraftlog.bench.metadata.stage import Measured, Stage
from kraftlog.bench.probe import Visibility
from kraftlog.bench.targets import Target

LARGE_TOPIC: Final = "large"
LARGE_TOPIC_PARTITIONS: Final = 1_000
_JSON_NAMES: Final = {"ack_to_visible_ms": "ack_to_listener_ms", "submit_to_visible_ms": "submit_to_listener_ms"}
"""The keys of the figures that `bench latency` calls visible."""

_CONDITIONS: Final = {"nodes_take_snapshots": False}
"""Conditions of the measurement, which the JSON output has beside the figures."""

LISTINGS_SHARE: Final = 10
"""All topics are listed once for this many reads of one topic."""


async def fill_store(stage: Stage, partitions: int, console: Console) -> dict[str, Any]:
    """Create topics of 100 partitions up to this many partitions, one of 1,000, and the topic for the operations."""
    filling = await fill(stage.cluster, stage.client, partitions, console)
    made = operations(placed_topics(LARGE_TOPIC, 1, LARGE_TOPIC_PARTITIONS))
    await stage.applied_everywhere(await create_all(stage.client, made))
    return filling


async def time_reads(stage: Stage, count: int, partitions: int) -> Measured:
    """Time `count` reads of one topic, as many of a large topic, and a tenth as many of the list of all topics."""
    reader = next(iter(stage.observers.values()))
    topics = len((await reader.list_topics()).topics)
    filling_topics = -(-partitions // PARTITIONS_PER_TOPIC)

    async def describe_one() -> None:
        await reader.describe_topics([filling_topic(random.randrange(filling_topics))])  # noqa: S311 (no secret)

    async def describe_large() -> None:
        await reader.describe_topics([f"{LARGE_TOPIC}-0"])

    async def list_all() -> None:
        await reader.list_topics()

    times = [
        (f"describe a topic of {PARTITIONS_PER_TOPIC} partitions", await _timed(describe_one, count)),
        (f"describe a topic of {LARGE_TOPIC_PARTITIONS:,} partitions", await _timed(describe_large, count)),
        (f"list all {topics:,} topics", await _timed(list_all, -(-count // LISTINGS_SHARE))),
    ]
    names = ("describe_topic_ms", "describe_large_topic_ms", "list_topics_ms")
    return Measured(
        {
            "partitions": partitions,
            **_CONDITIONS,
            "topics": topics,
            "reads": count,
            **{name: of for name, (_, of) in zip(names, times, strict=True)},
        },
        f"Reads of an observer with {partitions:,} partitions: a topic of {PARTITIONS_PER_TOPIC} partitions"
        f" {times[0][1]['p50']:.1f} ms, of {LARGE_TOPIC_PARTITIONS:,} {times[1][1]['p50']:.1f} ms, the list of"
        f" {topics:,} topics {times[2][1]['p50']:.1f} ms (p50).",
        times=times,
    )


async def _timed(read: Callable[[], Awaitable[None]], count: int) -> dict[str, float]:
    await read()
    times_ms = []
    for _ in range(count):
        asked = time.monotonic()
        await read()
        times_ms.append((time.monotonic() - asked) * 1000)
    return summary(times_ms)


async def time_single_operations(
    stage: Stage, visibility: Visibility, applied: Visibility, count: int, partitions: int
) -> Measured:
    """Time operations from submitted to acknowledged, to the last observer's listener, and to applied everywhere."""
    await time_operations(stage.client, visibility, "warm-up", WARM_UP_OPERATIONS, applied=applied)
    found = await time_operations(stage.client, visibility, "topic", count, applied=applied)
    figures = {_JSON_NAMES.get(name, name): figure for name, figure in found.figures().items()}
    if found.errors:
        return Measured(
            figures, f"{len(found.errors)} operations failed, the first: {found.errors[0]}", errors=found.errors
        )
    return Measured(
        {"partitions": partitions, **_CONDITIONS, **figures},
        f"{count:,} operations, one at a time, with {partitions:,} partitions in the store.",
        [Target("submit to ack in the full store, p50", figures["submit_to_ack_ms"]["p50"], LATENCY_MS_MAX, "ms")],
        [
            ("submit to ack in the full store", figures["submit_to_ack_ms"]),
            ("submit to listener, beside the store", figures["submit_to_listener_ms"]),
            ("submit to applied in the full store", figures["submit_to_applied_ms"]),
        ],
    )
