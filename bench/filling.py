"""Fills a cluster with metadata: topics of many partitions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.workload import TOPIC, execute_once, new_topic
from kraftlog.cluster import LocalCluster
from kraftpb.v1 import admin_pb2
from statemachine.client import AdminClient

BROKER_IDS: Final = (1, 2, 3)
PARTITIONS_PER_TOPIC: Final = 100
TOPICS_PER_OPERATION: Final = 99
"""With their partitions just below the 10,000 records that one operation may have."""
OPERATIONS_IN_FLIGHT: Final = 2
TIMEOUT_SECONDS: Final = 300.0


async def fill(cluster: LocalCluster, client: AdminClient, partitions: int, console: Console) -> dict[str, Any]:
    """Create topics of 100 partitions on the three brokers, which must live, and wait until every node has them."""
    await client.create_topics([new_topic(TOPIC)])
    topics = -(-partitions // PARTITIONS_PER_TOPIC)
    names = iter([filling_topic(number) for number in range(topics)])
    started = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("partitions", total=topics * PARTITIONS_PER_TOPIC)

        async def create() -> int:
            end_offset = 0
            while some := [name for name, _ in zip(names, range(TOPICS_PER_OPERATION), strict=False)]:
                end_offset = (await execute_once(client, _creation(some))).end_offset
                progress.advance(task, len(some) * PARTITIONS_PER_TOPIC)
            return end_offset

        end_offset = max(await asyncio.gather(*(create() for _ in range(OPERATIONS_IN_FLIGHT))))
        created_seconds = time.monotonic() - started
        await cluster.wait_until_applied(end_offset, TIMEOUT_SECONDS)
    return {
        "partitions": topics * PARTITIONS_PER_TOPIC,
        "created_seconds": round(created_seconds, 2),
        "applied_everywhere_seconds": round(time.monotonic() - started, 2),
    }


def filling_topic(number: int) -> str:
    """The name of one of the topics, from 0 on."""
    return f"filling-{number}"


def _creation(names: Iterable[str]) -> admin_pb2.Operation:
    topics = [
        admin_pb2.CreatableTopic(name=name, num_partitions=PARTITIONS_PER_TOPIC, replication_factor=len(BROKER_IDS))
        for name in names
    ]
    return admin_pb2.Operation(create_topics=admin_pb2.CreateTopicsRequest(topics=topics), timeout_ms=60_000)
