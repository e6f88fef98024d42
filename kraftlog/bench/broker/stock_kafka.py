"""A stock Kafka as one of the systems: one node that is broker and controller, with its defaults and a heap of 1 GB."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final

from kraftbase.checks import check
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

QUICK_DELETION: Final = {"log.segment.delete.delay.ms": "1000"}
"""So that the files of a topic that was measured are gone before the next one is."""
LOG_LINES: Final = 3


class StockKafka(System):
    """Runs within the block of `running`."""

    unflushed: ClassVar[Mapping[str, str]] = {}
    flushed: ClassVar = {"flush.messages": "1"}

    def __init__(self, installed: Kafka, directory: Path, endpoint: Endpoint, properties: Path) -> None:
        self.label = f"Kafka {installed.version}"
        self.topics = Topics(str(endpoint), directory / "data")
        self._endpoint = endpoint
        self._data_path = directory / "data"
        self._log_path = directory / "kafka.log"
        self._command = [*_java(installed), "kafka.Kafka", str(properties)]
        self._child: ChildProcess | None = None

    @classmethod
    @asynccontextmanager
    async def running(cls, installed: Kafka, directory: Path, *, is_plain: bool = False) -> AsyncIterator[System]:
        """A new node in `directory`. Only if it `is_plain` every config has its default. Raises ApiError."""
        endpoint, controller = free_endpoints(2)
        settings = {**_settings(endpoint, controller, directory / "data"), **({} if is_plain else QUICK_DELETION)}
        properties = _write(directory, settings)
        await format_directories(_java(installed), [properties], ["-t", random_cluster_id()])
        system = cls(installed, directory, endpoint, properties)
        try:
            await system.start()
            yield system
        finally:
            if system._child is not None:
                await system.kill()

    @property
    def bootstrap_server(self) -> str:
        """Where it listens."""
        return str(self._endpoint)

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    @property
    def data_path(self) -> Path:
        """Its log directory."""
        return self._data_path

    async def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def start(self) -> None:
        """Start it, and wait until it answers. Raises ApiError with its last words if it ends instead."""
        self._child = ChildProcess([*ends_with_parent(), *self._command], self._log_path, os.environ)
        try:
            await self.topics.until_led({})
        except ApiError as error:
            words = " / ".join(self._child.last_lines(LOG_LINES)) or "none"
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"{self.label} does not start; its last words: {words}"
            ) from error

    @property
    def _process(self) -> ChildProcess:
        check(self._child is not None, "it was started")
        return self._child  # type: ignore[return-value]


def _java(installed: Kafka) -> list[str]:
    return [str(installed.java), *JVM_OPTIONS, "-cp", str(installed.jars / "*")]


def _write(directory: Path, settings: Mapping[str, object]) -> Path:
    """The file of the settings, in a new directory."""
    directory.mkdir()
    properties = directory / "kafka.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    return properties


def _settings(endpoint: Endpoint, controller: Endpoint, data_path: Path) -> dict[str, object]:
    """What has no default, and one replica where a node by itself has no others."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{endpoint},CONTROLLER://{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data_path,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
