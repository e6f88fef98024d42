"""Three stock Kafka controllers, without brokers, and a client that speaks their protocol.

Their settings are Kafka's defaults, and their JVM options those of Kafka's own start script. By default a controller
waits up to 25 ms for more records before it writes (`controller.quorum.append.linger.ms`), which is most of the time of
one operation. A controller has no watch, so a follower is queried again and again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.uuids import random_cluster_id
from kraftlog.bench.peers.kafka_requests import Connection
from kraftlog.bench.peers.processes import Servers, servers
from kraftlog.bench.peers.system import System, WhenVisible
from kraftlog.local.child import ChildProcess
from kraftlog.local.cluster_directory import free_endpoints

CONTROLLERS: Final = 3
VALUE_MIN: Final = 100
VALUE_MAX: Final = 3_600_000
"""The range of values that Kafka allows for `interval.ms`."""

JVM_OPTIONS: Final = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)

_VALUES: Final = itertools.cycle(range(VALUE_MIN, VALUE_MAX + 1))


class KafkaSystem(System):
    """The operation is IncrementalAlterConfigs of one config: one record."""

    def __init__(self, active: Endpoint, follower: Endpoint) -> None:
        self._active = active
        self._follower = follower
        self._idle: list[Connection] = []

    @classmethod
    @asynccontextmanager
    async def running(cls, java: Path, jars: Path, directory: Path) -> AsyncIterator[System]:
        """A new cluster in `directory`, running within the block. Raises ApiError if it does not start."""
        async with controllers([str(java), *JVM_OPTIONS, "-cp", str(jars / "*")], directory) as (running, endpoints, _):
            active = await running.until(lambda: _active(endpoints))
            system = cls(active, next(endpoint for endpoint in endpoints if endpoint != active))
            try:
                yield system
            finally:
                system.close()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._idle:
            connection.close()

    async def submit(self) -> int:
        """Set a new value and return it. Each concurrent caller has its own connection."""
        connection = self._idle.pop() if self._idle else await Connection.open(self._active)
        value = next(_VALUES)
        try:
            await connection.alter(value)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return value

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[WhenVisible]:
        """Send DescribeConfigs again and again after the acknowledgement, each after the previous answer."""
        connection = await Connection.open(self._follower)

        async def when_visible(place: int) -> int:
            while await connection.describe() != place:
                pass
            return time.monotonic_ns()

        try:
            yield when_visible
        finally:
            connection.close()


@asynccontextmanager
async def controllers(
    java_command: Sequence[str],
    directory: Path,
    settings: Mapping[str, object] | None = None,
    format_options: Sequence[str] = (),
) -> AsyncIterator[tuple[Servers, list[Endpoint], str]]:
    """Run three new controllers in `directory` within the block. Yield them, their endpoints and their cluster id.

    `settings` are added to their files, `format_options` to the options of Kafka's format tool. Raises ApiError.
    """
    endpoints, cluster_id = free_endpoints(CONTROLLERS), random_cluster_id()
    files = _write_properties(directory, endpoints, settings or {})
    await format_directories(java_command, files, ["-t", cluster_id, *format_options])
    commands = {file.stem: [*java_command, "kafka.Kafka", str(file)] for file in files}
    async with servers("Kafka", commands, directory, os.environ) as running:
        yield running, endpoints, cluster_id


async def _active(endpoints: Sequence[Endpoint]) -> Endpoint | None:
    """Return the endpoint of the controller that accepts a change, None if no controller does."""
    for endpoint in endpoints:
        try:
            connection = await Connection.open(endpoint)
        except ApiError:
            continue
        try:
            await connection.alter(next(_VALUES))
        except ApiError:
            continue
        else:
            return endpoint
        finally:
            connection.close()
    return None


def _write_properties(directory: Path, endpoints: Sequence[Endpoint], settings: Mapping[str, object]) -> list[Path]:
    voters = ",".join(f"{node_id}@{endpoint}" for node_id, endpoint in enumerate(endpoints, 1))
    files = []
    for node_id, endpoint in enumerate(endpoints, 1):
        file = directory / f"kafka-{node_id}.properties"
        properties = {
            "process.roles": "controller",
            "node.id": node_id,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{endpoint}",
            "log.dirs": directory / f"kafka-{node_id}",
            **settings,
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        files.append(file)
    return files


async def format_directories(java_command: Sequence[str], files: Sequence[Path], options: Sequence[str]) -> None:
    """Format the directories of nodes with Kafka's tool, by their properties files. Raises ApiError if it fails."""
    tool = [*java_command, "kafka.tools.StorageTool", "format", *options, "-c"]
    logs = [file.with_suffix(".format.log") for file in files]
    children = [ChildProcess([*tool, str(file)], log, os.environ) for file, log in zip(files, logs, strict=True)]
    codes = await asyncio.gather(*(child.wait() for child in children))
    for child, code in zip(children, codes, strict=True):
        if code != 0:
            words = " / ".join(child.last_lines(3)) or "none"
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Kafka's format tool ended with code {code}: {words}")
