"""One cluster of a voter and three brokers that is started for each damage from a copy of its files."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.connection import describe_node
from kraftlog.broker.settings import (
    CHECKPOINT_INTERVAL,
    HEARTBEAT_INTERVAL,
    HIGH_WATERMARK_CHECKPOINT_INTERVAL,
    PARTITIONS_NAME,
    REPLICA_FETCH_BACKOFF,
    REPLICA_FETCH_WAIT_MAX,
    REPLICA_LAG_MAX,
)
from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.damage.contents import BROKER_IDS
from kraftlog.chaos.damage.processes import VOTER, Processes, Spawner, broker_name
from kraftlog.local.cluster_directory import free_endpoints, open_or_create
from statemachine.query.descriptions import PartitionDescription

SETTINGS: Final = {"broker.session.timeout.ms": 20_000}
CONFIGS: Final = {
    HEARTBEAT_INTERVAL: "50",
    REPLICA_FETCH_BACKOFF: "50",
    REPLICA_FETCH_WAIT_MAX: "100",
    REPLICA_LAG_MAX: "20000",
    CHECKPOINT_INTERVAL: "300",
    HIGH_WATERMARK_CHECKPOINT_INTERVAL: "300",
}
"""The configs of every broker: short intervals, so that the run is fast. `SETTINGS` has a long session timeout, so that
no broker is fenced on a busy machine."""
START_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.03

Described = Mapping[At, PartitionDescription]


class Site:
    """The directory of the processes. It is always the same one, since its files have paths and ports."""

    def __init__(self, path: Path, spawner: Spawner) -> None:
        """Make the cluster's directory; nothing runs yet."""
        self.path = path
        voter, *brokers = free_endpoints(1 + len(BROKER_IDS))
        directory = open_or_create(path, voters=1, observers=0, settings=SETTINGS, endpoints=[voter])
        ports = {broker_id: endpoint.port for broker_id, endpoint in zip(BROKER_IDS, brokers, strict=True)}
        self.processes = Processes(spawner, directory, ports, CONFIGS)

    @property
    def endpoints(self) -> dict[int, Endpoint]:
        """Where the brokers listen."""
        return {broker_id: self.processes.endpoint(broker_id) for broker_id in BROKER_IDS}

    def client(self) -> AdminClient:
        """A client of the voter."""
        return AdminClient([self.processes.voter])

    def log_directory(self, broker_id: int) -> Path:
        """Where a broker keeps partitions."""
        return self.processes.data_path(broker_id) / PARTITIONS_NAME

    def output(self, broker_id: int) -> str:
        """What a broker has printed since the files were restored."""
        path = self.processes.log_path(broker_name(broker_id))
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def save(self, image: Path) -> None:
        """Copy everything to `image`. No process may be running."""
        for log in (self.path / "logs").iterdir():
            log.unlink()
        _copy(self.path, image)

    def restore(self, image: Path) -> None:
        """Restore the files from `image`. No process may be running."""
        shutil.rmtree(self.path)
        _copy(image, self.path)

    async def start(self, client: AdminClient, broker_ids: Iterable[int] = BROKER_IDS) -> set[int]:
        """Start the voter unless it runs, and these brokers; wait until each is unfenced or has ended.

        Return the unfenced brokers. Every broker must be fenced before. Raises ApiError(REQUEST_TIMED_OUT).
        """
        wanted = set(broker_ids)
        if not self.processes.is_running(VOTER):
            self.processes.start_voter()
            await describe_node(self.processes.voter, timeout_seconds=START_SECONDS, wait_for_ready=True)
        for broker_id in sorted(wanted):
            self.processes.start_broker(broker_id)
        up: set[int] = set()

        async def have_started() -> bool:
            ended = {of for of in wanted if not self.processes.is_running(broker_name(of))}
            listed = await client.list_brokers()
            up.clear()
            up.update({of.broker_id for of in listed.brokers if not of.fenced} & wanted - ended)
            return up | ended == wanted

        await until(have_started, START_SECONDS, f"not all of the brokers {sorted(wanted)} are unfenced")
        return set(up)

    async def stop(self, client: AdminClient, broker_id: int, *, is_killed: bool) -> None:
        """End a broker, and wait until the controller has fenced it."""
        await self.processes.end([broker_name(broker_id)], signal.SIGKILL if is_killed else signal.SIGTERM)
        if is_killed:
            await client.fence_broker(broker_id)

        async def is_fenced() -> bool:
            return all(of.fenced for of in (await client.list_brokers()).brokers if of.broker_id == broker_id)

        await until(is_fenced, START_SECONDS, f"broker {broker_id} is not fenced")

    async def described(self, client: AdminClient) -> Described:
        """Return every partition. Raises ApiError."""
        listed = await client.list_topics()
        described = await client.describe_topics([topic.name for topic in listed.topics])
        return {At(of.name, part.partition_id): part for of in described.topics for part in of.partitions}


def in_sync(described: Described, among: Collection[int] = BROKER_IDS) -> bool:
    """Whether every partition with replicas among these brokers is led by one of them, and all of them are in sync."""
    return all(
        part.leader in among and set(part.isr) == set(part.replicas) & set(among)
        for part in described.values()
        if set(part.replicas) & set(among)
    )


async def until(condition: Callable[[], Awaitable[bool]], seconds: float, problem: str) -> None:
    """Wait until an asynchronous condition holds; ApiError counts as false. Raises ApiError after the time."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                with suppress(ApiError):
                    if await condition():
                        return
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{problem} after {seconds:g} s") from None


def _copy(source: Path, target: Path) -> None:
    subprocess.run(  # noqa: S603 (the command is ours)
        ["/bin/cp", "-a", "--reflink=auto", str(source), str(target)], check=True
    )
