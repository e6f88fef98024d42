"""This project as one of the systems: one voter and one broker, each a process, as `kraftlog up` runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final

from kraftbase.checks import check
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.broker.system import System
from kraftlog.bench.broker.topics import Topics
from kraftlog.local.brokers import FIRST_BROKER_ID, LocalBrokers
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create

LABEL: Final = "kraftlog"
QUICK_DELETION: Final = {"log.retention.check.interval.ms": "1000"}
"""So that the files of a topic that was measured are gone before the next one is."""


class OwnBroker(System):
    """Runs within the block of `running`."""

    label = LABEL
    unflushed: ClassVar = {"flush.before.ack": "false"}
    flushed: ClassVar = {"flush.before.ack": "true"}

    def __init__(self, brokers: LocalBrokers) -> None:
        self._brokers = brokers
        self._bootstrap_server = ""

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path, *, is_plain: bool = False) -> AsyncIterator[System]:
        """A new cluster in `directory`. Only if it `is_plain` every config has its default. Raises ApiError."""
        cluster = LocalCluster(open_or_create(directory, voters=1, observers=0))
        async with cluster.running(), AdminClient(cluster.bootstrap_servers) as client:
            await cluster.wait_for_leader()
            configs = {} if is_plain else QUICK_DELETION
            brokers = LocalBrokers(client, cluster.bootstrap_servers, directory, 1, None, configs)
            system = cls(brokers)
            try:
                await system.start()
                system.topics = Topics(system.bootstrap_server, system.data_path)
                yield system
            finally:
                await brokers.stop()

    @property
    def bootstrap_server(self) -> str:
        """Where the broker listens."""
        return self._bootstrap_server

    @property
    def pid(self) -> int:
        """The id of the broker's process, which is not the voter's."""
        return self._brokers.pid(FIRST_BROKER_ID)

    @property
    def data_path(self) -> Path:
        """The broker's directory."""
        return self._brokers.data_path(FIRST_BROKER_ID)

    async def kill(self) -> None:
        """End the broker with SIGKILL; the voter runs on."""
        await self._brokers.kill(FIRST_BROKER_ID)

    async def start(self) -> None:
        """Start the broker, and wait until it is unfenced. Raises BrokerDied, ApiError."""
        await self._brokers.start()
        endpoint = (await self._brokers.states())[FIRST_BROKER_ID].endpoint
        check(endpoint is not None, "a broker that is unfenced has registered its listener")
        self._bootstrap_server = str(endpoint)
