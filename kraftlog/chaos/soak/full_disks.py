"""Every voter has a disk of 100 MB: load fills the disks until the cluster stops, then the disks grow.

The disks must be full of log, database and snapshots, and not of files that could be deleted. Once there is room, the
same processes must continue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.chaos import checks
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.disk import DiskUnavailable, SmallDisk
from kraftlog.chaos.network import Loopback
from kraftlog.chaos.soak.limits import MEBIBYTE
from kraftlog.chaos.soak.load import BROKER_ID, create_topic, error_message
from kraftlog.chaos.soak.samples import FileKind, Sample, take_sample
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import ClusterDirectory, open_or_create

VOTERS: Final = 3
DISK_MEGABYTES: Final = 100
GROWTH_MEGABYTES: Final = 50
CALLERS: Final = 8
PARTITIONS_PER_TOPIC: Final = 50
TIMEOUT_MS: Final = 2000

STILL_SECONDS: Final = 6.0
"""The cluster has stopped when nothing was acknowledged for this long, the time of two elections."""
FILL_SECONDS_MAX: Final = 300.0
FULL_FREE_BYTES: Final = 2 * MEBIBYTE
"""A disk with less free space is full: a voter keeps some room for the records of a new leader."""
WORTH_KEEPING: Final = (FileKind.LOG, FileKind.DATABASE, FileKind.SNAPSHOTS)
WORTH_KEEPING_SHARE_MIN: Final = 0.75
"""The required share of the bytes on a full disk. Consider a voter whose disk becomes full during a long read, for
example while it takes a snapshot: its write-ahead log has grown by about 20 MB for this reader, and the database has no
room for the new rows in it."""
GO_ON_SECONDS_MAX: Final = 30.0
"""The time in which the cluster must continue after there is room: writes are tried again every few seconds."""
GO_ON_ACKNOWLEDGED: Final = 20


@dataclass(frozen=True, slots=True)
class FullDisk:
    """A voter's disk when the cluster had stopped."""

    sample: Sample
    free_bytes: int

    @property
    def is_full(self) -> bool:
        """Whether the disk is full."""
        return self.free_bytes < FULL_FREE_BYTES

    @property
    def share_worth_keeping(self) -> float:
        """The share of log, database and snapshots in its contents."""
        return sum(self.sample.file_bytes[kind] for kind in WORTH_KEEPING) / max(self.sample.total_bytes, 1)


@dataclass(slots=True)
class Filling:
    """Callers that create topic after topic, each as soon as the previous request is answered."""

    acknowledged: int = 0
    acknowledged_at: float = field(default_factory=time.monotonic)
    """When the last operation was acknowledged."""
    last_error: str = ""
    is_stopped: bool = False
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def run(self, client: AdminClient) -> None:
        """Work until it is stopped."""
        await asyncio.gather(*(self._call(client) for _ in range(CALLERS)))

    async def _call(self, client: AdminClient) -> None:
        while not self.is_stopped:
            operation = create_topic(f"filling-{next(self._numbers)}", PARTITIONS_PER_TOPIC)
            try:
                message = error_message(await client.execute(operation))
            except ApiError as error:
                message = str(error)
            if message is None:
                self.acknowledged += 1
                self.acknowledged_at = time.monotonic()
            else:
                self.last_error = message
                await asyncio.sleep(0.1)  # some refusals are immediate


class FullDisks:
    """One run and its results."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stage = "starting"
        self.left_out: str | None = None
        """The reason if this machine does not support such disks."""
        self.filling = Filling()
        self.found: list[FullDisk] = []
        self.fill_seconds = 0.0
        self.acknowledged_when_full = 0
        self.go_on_seconds: float | None = None
        """How long after the growth of the disks operations were acknowledged again."""
        self.violations: list[str] = []

    async def run(self) -> bool:
        """Carry out the run; return whether there was no violation, or the machine does not support such disks."""
        try:
            async with self._arena() as (arena, disks):
                try:
                    await self._fill_and_grow(arena, disks)
                except (ApiError, TimeoutError) as error:
                    self.violations.append(f"the cluster did not settle: {error!r}")
                self.violations += arena.deaths
        except DiskUnavailable as error:
            self.left_out = str(error)
        return not self.violations

    # --- parts ------------------------------------------------------------------------------------------------------

    async def _fill_and_grow(self, arena: Arena, disks: Sequence[SmallDisk]) -> None:
        servers = arena.cluster.bootstrap_servers
        async with AdminClient(servers, timeout_ms=TIMEOUT_MS) as client, living_brokers(client, [BROKER_ID]):
            watching = asyncio.create_task(arena.watch())
            working = asyncio.create_task(self.filling.run(client))
            try:
                await self._fill(arena, disks)
                await self._grow(arena, disks)
            finally:
                self.filling.is_stopped = True
                watching.cancel()
                await asyncio.gather(working, watching, return_exceptions=True)
            working.result()
            self.stage = "load ended"
            await checks.until_level(arena.cluster)
            self.violations += checks.databases_agree(arena.cluster)

    async def _fill(self, arena: Arena, disks: Sequence[SmallDisk]) -> None:
        self.stage = "filling"
        began = self.filling.acknowledged_at = time.monotonic()
        while (idle_seconds := time.monotonic() - self.filling.acknowledged_at) < STILL_SECONDS:
            if time.monotonic() - began > FILL_SECONDS_MAX:
                self.violations.append(f"the disks are not full after {FILL_SECONDS_MAX:g} s")
                break
            await asyncio.sleep(STILL_SECONDS - idle_seconds)
        self.fill_seconds = self.filling.acknowledged_at - began
        self.acknowledged_when_full = self.filling.acknowledged
        arena.note(f"the cluster has stopped after {self.filling.acknowledged} topics: {self.filling.last_error}")
        paths = [(disk, arena.cluster.directory.data_path(disk.node_id)) for disk in disks]
        self.found = [
            FullDisk(take_sample(arena.elapsed_seconds, disk.node_id, path, None), disk.free_bytes)
            for disk, path in paths
        ]
        self.violations += not_worth_keeping(self.found)

    async def _grow(self, arena: Arena, disks: Sequence[SmallDisk]) -> None:
        self.stage = "continuing"
        for disk in disks:
            await asyncio.to_thread(disk.grow, GROWTH_MEGABYTES)
        arena.note("the disks have grown")
        began, before = time.monotonic(), self.filling.acknowledged
        while self.filling.acknowledged - before < GO_ON_ACKNOWLEDGED:
            if time.monotonic() - began > GO_ON_SECONDS_MAX:
                self.violations.append(
                    f"{GO_ON_SECONDS_MAX:g} s after there was room only {self.filling.acknowledged - before} operations"
                    f" were acknowledged; the last error: {self.filling.last_error}"
                )
                return
            await asyncio.sleep(0.05)
        self.go_on_seconds = time.monotonic() - began
        arena.note(f"the cluster continues after {self.go_on_seconds:.2f} s")

    @asynccontextmanager
    async def _arena(self) -> AsyncIterator[tuple[Arena, list[SmallDisk]]]:
        async with AsyncExitStack() as stack:
            directory = open_or_create(self.directory / "cluster", voters=VOTERS)
            disks = [
                self._mounted(directory, SmallDisk(node_id, directory.data_path(node_id), DISK_MEGABYTES), stack)
                for node_id in sorted(directory.voter_ids)
            ]
            network = Loopback()
            cluster = LocalCluster(directory, network.command)
            stack.push_async_callback(cluster.stop)
            arena = Arena(cluster, network, (), self.directory / "journal.txt")
            await asyncio.gather(*(arena.start(node_id) for node_id in cluster.node_ids))
            if arena.deaths:
                raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, arena.deaths[0])
            await cluster.wait_for_leader()
            yield arena, disks

    @staticmethod
    def _mounted(directory: ClusterDirectory, disk: SmallDisk, stack: AsyncExitStack) -> SmallDisk:
        disk.mount()
        stack.callback(disk.unmount)
        return disk


def not_worth_keeping(found: Sequence[FullDisk]) -> list[str]:
    """Return the violations on the disks of a cluster that has stopped."""
    full = [disk for disk in found if disk.is_full]
    if not full:
        free = ", ".join(f"node {disk.sample.node_id} has {disk.free_bytes:,} bytes" for disk in found)
        return [f"the cluster has stopped, although no disk is full: {free}"]
    return [
        f"the disk of node {disk.sample.node_id} is full, and only {disk.share_worth_keeping:.0%} of its contents is"
        f" log, database and snapshots; {WORTH_KEEPING_SHARE_MIN:.0%} is required: "
        + ", ".join(f"{kind} {size:,}" for kind, size in disk.sample.file_bytes.items() if size)
        for disk in full
        if disk.share_worth_keeping < WORTH_KEEPING_SHARE_MIN
    ]
