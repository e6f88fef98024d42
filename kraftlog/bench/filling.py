"""Fills a cluster with metadata: topics of many partitions."""

from __future__ import annotations

import time
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.creation import create_all, operations, placed_topics
from kraftlog.bench.workload import TOPIC, new_topic
from kraftlog.local.cluster import LocalCluster

PARTITIONS_PER_TOPIC: Final = 100
TIMEOUT_SECONDS: Final = 300.0
PREFIX: Final = "filling"


async def fill(cluster: LocalCluster, client: AdminClient, partitions: int, console: Console) -> dict[str, Any]:
    """Create topics of 100 partitions on the three brokers, which must be alive, and wait until every node has them."""
    await client.create_topics([new_topic(TOPIC)])
    topics = -(-partitions // PARTITIONS_PER_TOPIC)
    made = operations(placed_topics(PREFIX, topics, PARTITIONS_PER_TOPIC))
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("partitions", total=topics * PARTITIONS_PER_TOPIC)
        started = time.monotonic()
        end_offset = await create_all(
            client, made, lambda: progress.advance(task, topics * PARTITIONS_PER_TOPIC / len(made))
        )
        created_seconds = time.monotonic() - started
        await cluster.wait_until_applied(end_offset, TIMEOUT_SECONDS)
    return {
        "partitions": topics * PARTITIONS_PER_TOPIC,
        "created_seconds": round(created_seconds, 2),
        "applied_everywhere_seconds": round(time.monotonic() - started, 2),
    }


def filling_topic(number: int) -> str:
    """Return the name of a created topic; numbers start at 0."""
    return f"{PREFIX}-{number}"
