"""kraftlog as one of the systems: one voter and its brokers, each a process, as `kraftlog up` runs them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final

from kraftbase.partition import TopicPartition
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.broker.system import System
from kraftlog.bench.broker.topics import Topics
from kraftlog.local.brokers import LocalBrokers, Places
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from statemachine.query.partition_descriptions import ElectionType

LABEL: Final = "kraftlog"
QUICK_DELETION: Final = {"log.retention.check.interval.ms": "1000"}
"""With it the files of a measured topic are deleted before the next topic is measured."""


class OwnBrokers(System):
    """kraftlog's brokers, which run within the block of `running`."""

    label = LABEL
    unflushed: ClassVar = {"flush.before.ack": "false"}
    flushed: ClassVar = {"flush.before.ack": "true"}

    def __init__(self, client: AdminClient, brokers: LocalBrokers, bootstrap_servers: str) -> None:
        self.broker_ids = brokers.broker_ids
        self.topics = Topics(bootstrap_servers, [brokers.data_path(broker_id) for broker_id in self.broker_ids])
        self._client = client
        self._brokers = brokers
        self._bootstrap_servers = bootstrap_servers

    @classmethod
    @asynccontextmanager
    async def running(
        cls, directory: Path, *, brokers: int = 1, configs: Mapping[str, str] | None = None,
        places: Places | None = None,
    ) -> AsyncIterator[OwnBrokers]:  # fmt: skip
        """Run a new cluster in `directory` within the block. All configs but the given ones have their defaults.

        `places` says where brokers run, if not in this process's network. Raises ApiError.
        """
        cluster = LocalCluster(open_or_create(directory, voters=1, observers=0))
        async with cluster.running(), AdminClient(cluster.bootstrap_servers) as client:
            await cluster.wait_for_leader()
            local = LocalBrokers(client, cluster.bootstrap_servers, directory, brokers, None, configs, places)
            try:
                await local.start()
                endpoints = [await local.endpoint(broker_id) for broker_id in local.broker_ids]
                yield cls(client, local, ",".join(map(str, endpoints)))
            finally:
                await local.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Where the brokers listen, also after a restart."""
        return self._bootstrap_servers

    def pid(self, broker_id: int) -> int:
        """The id of a broker's process; the voter has another process."""
        return self._brokers.pid(broker_id)

    def data_path(self, broker_id: int) -> Path:
        """The broker's directory."""
        return self._brokers.data_path(broker_id)

    def log_path(self, broker_id: int) -> Path:
        """The file with the broker's log lines."""
        return self._brokers.log_path(broker_id)

    async def end(self, broker_id: int, number: signal.Signals) -> None:
        """End the broker; the voter keeps running."""
        await self._brokers.kill(broker_id, number)

    async def elect_preferred(self, topic: str, partitions: int) -> None:
        """Elect the first replica of each partition of a topic. Raises ApiError."""
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        await self._client.elect_leaders(ElectionType.PREFERRED, wanted)

    async def start(self, broker_id: int) -> None:
        """Start the broker, and wait until it is unfenced. Raises BrokerDied, ApiError."""
        await self._brokers.start([broker_id])
