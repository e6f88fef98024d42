"""The cluster of the benchmarks, three voters and two observers, and their operations."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.local.cluster import Command, LocalCluster, start_command
from kraftlog.local.cluster_directory import open_or_create
from kraftpb.v1 import admin_pb2
from statemachine.words.resources import ResourceType

VOTERS: Final = 3
OBSERVERS: Final = 2
BROKER_ID: Final = 1
BROKER_IDS: Final = (1, 2, 3)
TOPIC: Final = "bench"
NO_SNAPSHOTS: Final = {
    "metadata.log.max.record.bytes.between.snapshots": 2**50,
    "metadata.log.max.snapshot.interval.ms": 0,
}
"""Settings of nodes that take a snapshot only on request."""


@asynccontextmanager
async def bench_cluster(
    directory: Path | None,
    name: str,
    *,
    observers: int = OBSERVERS,
    settings: Mapping[str, object] | None = None,
    command: Command = start_command,
) -> AsyncIterator[LocalCluster]:
    """Run a new cluster in `directory/name`, or in a temporary directory, within the block. It has a leader."""
    with ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kraftlog-bench-")))
        plan = open_or_create(directory / name, voters=VOTERS, observers=observers, settings=settings)
        cluster = LocalCluster(plan, command)
        async with cluster.running():
            await cluster.wait_for_leader()
            yield cluster


@asynccontextmanager
async def prepared(client: AdminClient) -> AsyncIterator[None]:
    """Keep a broker alive within the block, and create a topic: the operations below need both."""
    async with living_brokers(client, [BROKER_ID]):
        await client.create_topics([new_topic(TOPIC)])
        yield


def new_topic(name: str) -> NewTopic:
    """Return a topic of one partition on one broker. Its creation writes two records."""
    return NewTopic(name, num_partitions=1, replication_factor=1)


def create_topic_operation(name: str) -> admin_pb2.Operation:
    """Return an operation that creates a topic of one partition on one broker."""
    topic = admin_pb2.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return admin_pb2.Operation(create_topics=admin_pb2.CreateTopicsRequest(topics=[topic]))


def set_config(resource_name: str, config: str, value: str) -> admin_pb2.ConfigAlteration:
    """Return an alteration that sets one config of a topic. It writes one record."""
    return admin_pb2.ConfigAlteration(
        resource_type=ResourceType.TOPIC, resource_name=resource_name, name=config, value=value
    )


def alter_configs_operation(alterations: list[admin_pb2.ConfigAlteration]) -> admin_pb2.Operation:
    """Return one operation with these alterations. It writes as many records, in one batch."""
    return admin_pb2.Operation(alter_configs=admin_pb2.AlterConfigsRequest(alterations=alterations))


async def execute_once(client: AdminClient, operation: admin_pb2.Operation) -> admin_pb2.OperationResult:
    """Carry out one operation without a retry. Raises ApiError for any error in the result."""
    result = await client.execute(operation, retry=False)
    check_result(result)
    return result


def check_result(result: admin_pb2.OperationResult) -> None:
    """Raise ApiError for the first error of the operation or of a part of it."""
    errors = [(result.error_code, result.error_message)]
    errors += [(topic.error_code, topic.error_message) for topic in result.create_topics.topics]
    errors += [(resource.error_code, resource.error_message) for resource in result.alter_configs.resources]
    for code, message in errors:
        if code != ErrorCode.NONE:
            raise ApiError(ErrorCode(code), message)
