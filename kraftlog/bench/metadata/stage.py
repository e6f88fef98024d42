"""The cluster on which every part is measured: three voters, two observers, and live data brokers.

Apart from the measurement, this process only sends the heartbeats of the brokers, one each in two seconds. Each broker
has its own client, as it would have in its own process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.targets import Target
from kraftlog.bench.workload import BROKER_IDS, VOTERS, bench_cluster
from kraftlog.broker.lifecycle import BrokerLifecycle, living_brokers
from kraftlog.local.cluster import Command, LocalCluster, start_command

TIMEOUT_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of one part."""

    figures: dict[str, Any]
    """The figures for the JSON output."""
    sentence: str
    """The result as a printed sentence."""
    targets: list[Target] = field(default_factory=list)
    times: list[tuple[str, dict[str, float]]] = field(default_factory=list)
    """Summaries of times in milliseconds, each with its name."""
    errors: list[str] = field(default_factory=list)
    """The errors of failed operations."""


@dataclass(frozen=True, slots=True)
class LivingBroker:
    """A broker, and its own client."""

    life: BrokerLifecycle
    client: AdminClient


@dataclass(frozen=True, slots=True)
class Stage:
    """A running cluster, a client of its leader, brokers that are unfenced, and a reader of each node."""

    cluster: LocalCluster
    client: AdminClient
    brokers: Sequence[LivingBroker]
    readers: Mapping[NodeId, AdminClient]
    """Each client reads from its node only."""

    @property
    def observers(self) -> dict[NodeId, AdminClient]:
        """The readers of the nodes that do not vote."""
        return {node_id: reader for node_id, reader in self.readers.items() if node_id > VOTERS}

    async def applied_everywhere(self, end_offset: int) -> dict[NodeId, float]:
        """Return when (CLOCK_MONOTONIC) each node had applied everything below `end_offset`: a read waits for it."""

        async def wait(reader: AdminClient) -> float:
            await read_applied(reader, end_offset)
            return time.monotonic()

        times = await asyncio.gather(*map(wait, self.readers.values()))
        return dict(zip(self.readers, times, strict=True))


@asynccontextmanager
async def set_stage(
    directory: Path | None,
    name: str,
    *,
    settings: Mapping[str, object] | None = None,
    command: Command = start_command,
) -> AsyncIterator[Stage]:
    """Run a new cluster with three brokers within the block."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            bench_cluster(directory, f"metadata-{name}", settings=settings, command=command)
        )

        async def client(*node_ids: NodeId) -> AdminClient:
            endpoints = [cluster.endpoint(node_id) for node_id in node_ids]
            return await stack.enter_async_context(AdminClient(endpoints, timeout_ms=int(TIMEOUT_SECONDS * 1000)))

        brokers = []
        for broker_id in BROKER_IDS:
            of_broker = await client(*cluster.voter_ids)
            (life,) = await stack.enter_async_context(living_brokers(of_broker, [broker_id]))
            brokers.append(LivingBroker(life, of_broker))
        readers = {node_id: await client(node_id) for node_id in cluster.node_ids}
        yield Stage(cluster, await client(*cluster.voter_ids), brokers, readers)


async def read_applied(reader: AdminClient, end_offset: int) -> None:
    """Return when a node has applied everything below `end_offset` and answers a read. Raises ApiError."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            await reader.list_brokers(min_applied_end_offset=end_offset)
            return
        except ApiError as error:  # a read waits for some seconds at a time
            if error.code is not ErrorCode.REQUEST_TIMED_OUT or time.monotonic() > deadline:
                raise
