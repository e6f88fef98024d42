"""A stock Kafka as one of the systems, with its defaults and a heap of 1 GB for each process.

A single broker is a node that is its controller, too. Several brokers have a controller in a separate process, so that
killing a broker kills no controller.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.uuids import random_cluster_id
from kraftlog.bench.broker.system import System
from kraftlog.bench.broker.topics import Topics
from kraftlog.bench.peers.installed import Kafka
from kraftlog.bench.peers.kafka import JVM_OPTIONS, format_directories
from kraftlog.bench.peers.processes import ends_with_parent
from kraftlog.local.child import ChildProcess
from kraftlog.local.cluster_directory import free_endpoints

CONTROLLER_ID: Final = 100
"""The id of the controller if there are several brokers."""
QUICK_DELETION: Final = {"log.segment.delete.delay.ms": "1000"}
"""With it the files of a measured topic are deleted before the next topic is measured."""
LOG_LINES: Final = 3


class StockKafka(System):
    """A stock Kafka, which runs within the block of `running`."""

    unflushed: ClassVar[Mapping[str, str]] = {}
    flushed: ClassVar = {"flush.messages": "1"}

    def __init__(self, installed: Kafka, directory: Path, endpoints: Mapping[int, Endpoint]) -> None:
        self.label = f"Kafka {installed.version}"
        self.broker_ids = tuple(endpoints)
        self.topics = Topics(
            ",".join(map(str, endpoints.values())), [self.data_path_in(directory, node_id) for node_id in endpoints]
        )
        self._directory = directory
        self._endpoints = endpoints
        self._java = _java(installed)
        self._children: dict[int, ChildProcess] = {}

    @classmethod
    @asynccontextmanager
    async def running(
        cls, installed: Kafka, directory: Path, *, brokers: int = 1, configs: Mapping[str, str] | None = None
    ) -> AsyncIterator[System]:
        """Run new nodes in `directory` within the block. All configs but the given ones have their defaults.

        Raises ApiError.
        """
        controller, *listeners = free_endpoints(1 + brokers)
        system = cls(installed, directory, dict(enumerate(listeners, 1)))
        files = system._write_properties(controller, configs or {})
        await format_directories(system._java, list(files.values()), ["-t", random_cluster_id()])
        try:
            await system._run(files)
            yield system
        finally:
            await asyncio.gather(*(child.end(signal.SIGKILL) for child in system._children.values()))

    @property
    def bootstrap_servers(self) -> str:
        """Where the brokers listen."""
        return ",".join(map(str, self._endpoints.values()))

    def pid(self, broker_id: int) -> int:
        """The id of a broker's process."""
        return self._children[broker_id].pid

    def data_path(self, broker_id: int) -> Path:
        """A broker's log directory."""
        return self.data_path_in(self._directory, broker_id)

    @staticmethod
    def data_path_in(directory: Path, broker_id: int) -> Path:
        """The log directory of a node of a cluster in `directory`."""
        return directory / f"data-{broker_id}"

    async def end(self, broker_id: int, number: signal.Signals) -> None:
        """End a broker with a signal."""
        await self._children[broker_id].end(number)

    async def start(self, broker_id: int) -> None:
        """Start a broker, and wait until it answers. Raises ApiError with its last log lines if it ends instead."""
        await self._run([broker_id])

    async def _run(self, node_ids: Iterable[int]) -> None:
        started = list(node_ids)
        for node_id in started:
            command = [*ends_with_parent(), *self._java, "kafka.Kafka", str(self._properties(node_id))]
            self._children[node_id] = ChildProcess(command, self._directory / f"node-{node_id}.log", os.environ)
        try:
            for node_id in started:
                if node_id in self._endpoints:
                    await self.topics.until_registered(str(self._endpoints[node_id]))
        except ApiError as error:
            words = " / ".join(self._children[started[0]].last_lines(LOG_LINES)) or "none"
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"{self.label} does not start; its last log lines: {words}"
            ) from error

    def _write_properties(self, controller: Endpoint, configs: Mapping[str, str]) -> dict[int, Path]:
        """Write the properties file of each node, in a new directory, and return the files."""
        self._directory.mkdir()
        files = {}
        for node_id, settings in self.settings(controller).items():
            files[node_id] = self._properties(node_id)
            lines = {**settings, "log.dirs": self.data_path(node_id), **configs}
            files[node_id].write_text("".join(f"{key}={value}\n" for key, value in lines.items()), encoding="utf-8")
        return files

    def _properties(self, node_id: int) -> Path:
        return self._directory / f"node-{node_id}.properties"

    def settings(self, controller: Endpoint) -> dict[int, dict[str, object]]:
        """Return each node's configs that have no default, and the replication factors, which follow the brokers."""
        count = len(self._endpoints)
        controller_id = CONTROLLER_ID if count > 1 else min(self._endpoints)
        shared = {
            "controller.quorum.voters": f"{controller_id}@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "offsets.topic.replication.factor": count,
            "transaction.state.log.replication.factor": count,
            "transaction.state.log.min.isr": 1,
        }
        brokers = {node_id: f"PLAINTEXT://{endpoint}" for node_id, endpoint in self._endpoints.items()}
        if count == 1:
            listeners = f"{brokers[controller_id]},CONTROLLER://{controller}"
            roles = {controller_id: ("broker,controller", listeners)}
        else:
            roles = {node_id: ("broker", listener) for node_id, listener in brokers.items()}
            roles[controller_id] = ("controller", f"CONTROLLER://{controller}")
        return {
            node_id: {"process.roles": role, "node.id": node_id, "listeners": listeners, **shared}
            for node_id, (role, listeners) in roles.items()
        }


def _java(installed: Kafka) -> list[str]:
    return [str(installed.java), *JVM_OPTIONS, "-cp", str(installed.jars / "*")]
