"""Creating topics: operations are made in advance, and one client sends them, several at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.workload import BROKER_IDS, execute_once
from kraftpb.v1 import admin_pb2

TOPICS_PER_OPERATION: Final = 10
"""With 100 partitions each, about a thousand records: a tenth of the limit of one operation."""
OPERATIONS_IN_FLIGHT: Final = 8


def placed_topics(prefix: str, topics: int, partitions: int) -> Iterator[admin_pb2.CreatableTopic]:
    """Topics with three replicas a partition, which the controller places."""
    for number in range(topics):
        yield admin_pb2.CreatableTopic(
            name=f"{prefix}-{number}", num_partitions=partitions, replication_factor=len(BROKER_IDS)
        )


def shared_topics(prefix: str, topics: int, partitions: int) -> Iterator[admin_pb2.CreatableTopic]:
    """Topics with a replica of each partition on every broker; the brokers lead equally many partitions, in turn."""
    count = len(BROKER_IDS)
    for number in range(topics):
        turns = [(number * partitions + partition_id) % count for partition_id in range(partitions)]
        assignments = [
            admin_pb2.PartitionAssignment(partition_id=partition_id, broker_ids=BROKER_IDS[turn:] + BROKER_IDS[:turn])
            for partition_id, turn in enumerate(turns)
        ]
        yield admin_pb2.CreatableTopic(
            name=f"{prefix}-{number}", num_partitions=-1, replication_factor=-1, assignments=assignments
        )


def operations(topics: Iterable[admin_pb2.CreatableTopic]) -> list[admin_pb2.Operation]:
    """Return operations that create these topics, ten at a time."""
    remaining = iter(topics)
    made = []
    while some := list(islice(remaining, TOPICS_PER_OPERATION)):
        made.append(admin_pb2.Operation(create_topics=admin_pb2.CreateTopicsRequest(topics=some)))
    return made


async def create_all(
    client: AdminClient, made: Iterable[admin_pb2.Operation], progress: Callable[[], object] = lambda: None
) -> int:
    """Carry out the operations and return the highest end offset. Raises ApiError for the first one that failed.

    `progress` is called after each operation.
    """
    remaining = iter(made)

    async def create() -> int:
        end_offset = 0
        for operation in remaining:
            end_offset = (await execute_once(client, operation)).end_offset
            progress()
        return end_offset

    return max(await asyncio.gather(*(create() for _ in range(OPERATIONS_IN_FLIGHT))))
