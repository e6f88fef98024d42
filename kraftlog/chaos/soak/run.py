"""One soak: steady load without faults, then with faults, then peace; all nodes are sampled every second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.chaos import checks
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.availability import windows
from kraftlog.chaos.disk import DiskUnavailable, SmallDisk, mount_disks
from kraftlog.chaos.lanes import Lane
from kraftlog.chaos.network import Loopback
from kraftlog.chaos.partitions import FillDisk
from kraftlog.chaos.soak.bounds_checker import BoundsChecker
from kraftlog.chaos.soak.faults import LANES
from kraftlog.chaos.soak.limits import SETTINGS
from kraftlog.chaos.soak.load import SteadyLoad
from kraftlog.chaos.soak.samples import Sample, take_sample
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import ClusterDirectory, open_or_create
from kraftlog.sim.quorum.registers.history import Outcome

SAMPLE_SECONDS: Final = 1.0
VOTERS: Final = 3
OBSERVERS: Final = 1
STEADY_SHARE: Final = 1 / 3
"""The share of the time without faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run."""

    seconds: float
    """The time of the run. It takes longer if a kind of fault has not been injected by then."""
    seed: int
    directory: Path
    operations_per_second: float
    lanes: Sequence[Lane] = LANES
    """If empty, the whole run is without faults."""


@dataclass(slots=True)
class Phase:
    """A part of the run, and the number of operations in it."""

    name: str
    began: float
    ended: float = 0.0
    acknowledged: int = 0
    elections: int = 0
    """By how much the epoch has grown."""

    @property
    def operations_per_second(self) -> float:
        """The acknowledged operations per second."""
        return self.acknowledged / max(self.ended - self.began, 0.001)


class Soak:
    """One run and its results."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = Random(plan.seed)
        self.checker = BoundsChecker(plan.operations_per_second)
        self.arena: Arena | None = None
        self.load: SteadyLoad | None = None
        self.phases: list[Phase] = []
        self.left_out: dict[str, str] = {}
        """Faults that this machine does not support, and why."""
        self.violations: list[str] = []
        self.under_way: dict[str, str] = {}
        """The current fault of each lane."""
        self.latest: Sequence[Sample] = ()
        """The last sample of every node."""
        self._starts_seen = 0

    async def run(self) -> bool:
        """Carry out the run; return whether no bound and no other check was violated."""
        async with self._arena() as arena:
            load = self.load = SteadyLoad(
                arena.cluster.bootstrap_servers, self.plan.operations_per_second, self._derived()
            )
            try:
                async with load.prepared():
                    await self._work(arena, load)
                    if self.checker.runaway is None:
                        await self._come_to_rest(arena)
            except (ApiError, TimeoutError) as error:
                self.violations.append(f"the cluster did not settle: {error!r}")
            self.violations += arena.deaths
        self.violations += self.checker.violations()
        return not self.violations

    # --- parts ------------------------------------------------------------------------------------------------------

    async def _work(self, arena: Arena, load: SteadyLoad) -> None:
        """Run all phases under load, or until a node's files grow without bound; then check the acknowledgments."""
        working = asyncio.create_task(load.run())
        watching = asyncio.create_task(arena.watch())
        sampling = asyncio.create_task(self._sample(arena))
        phases = asyncio.create_task(self._phases(arena, load))
        try:
            await asyncio.wait((working, watching, sampling, phases), return_when=asyncio.FIRST_COMPLETED)
            owed = arena.truth.finish()
        finally:
            load.stop()
            for task in (watching, phases, sampling):
                task.cancel()
            await asyncio.gather(working, watching, phases, sampling, return_exceptions=True)
        for task in (working, watching, sampling, phases):
            if not task.cancelled():
                task.result()
        began = arena.truth.now() - arena.elapsed_seconds
        self.violations += checks.windows_served(windows(owed, load.acknowledged_at), began)

    async def _phases(self, arena: Arena, load: SteadyLoad) -> None:
        steady_seconds = self.plan.seconds * (STEADY_SHARE if self.plan.lanes else 1)
        epoch = await arena.cluster.newest_epoch()
        async with self._phase("without faults", arena, load) as steady:
            await asyncio.sleep(steady_seconds)
        steady.elections = await arena.cluster.newest_epoch() - epoch
        if steady.elections:
            self.violations.append(f"without faults, in {steady_seconds:g} s, the epoch rose by {steady.elections}")
        if self.plan.lanes:
            faulty = await self._faults(arena, load)
            faulty.elections = await arena.cluster.newest_epoch() - epoch - steady.elections

    async def _faults(self, arena: Arena, load: SteadyLoad) -> Phase:
        until_seconds = arena.elapsed_seconds + self.plan.seconds * (1 - STEADY_SHARE)

        def is_over() -> bool:
            return arena.elapsed_seconds >= until_seconds

        async with self._phase("with faults", arena, load) as phase, asyncio.TaskGroup() as lanes:
            for lane in self.plan.lanes:
                possible = [kind for kind in lane.kinds if kind.fault.name not in self.left_out]
                lane = replace(lane, kinds=possible)
                lanes.create_task(lane.run(arena, self._derived(), is_over, self.under_way))
        await arena.heal()
        await arena.cluster.wait_for_leader()
        return phase

    @asynccontextmanager
    async def _phase(self, name: str, arena: Arena, load: SteadyLoad) -> AsyncIterator[Phase]:
        phase = Phase(name, arena.elapsed_seconds)
        self.phases.append(phase)
        before = load.outcomes[Outcome.ACKNOWLEDGED]
        try:
            yield phase
        finally:
            phase.ended = arena.elapsed_seconds
            phase.acknowledged = load.outcomes[Outcome.ACKNOWLEDGED] - before

    async def _sample(self, arena: Arena) -> None:
        """Sample every node each second, until the files of one grow without bound."""
        while self.checker.runaway is None:
            await self._look(arena)
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _look(self, arena: Arena) -> None:
        cluster = arena.cluster
        pids = {node_id: cluster.pid(node_id) if cluster.is_running(node_id) else None for node_id in cluster.node_ids}
        paths = {node_id: cluster.directory.data_path(node_id) for node_id in cluster.node_ids}

        def look() -> list[Sample]:
            return [take_sample(arena.elapsed_seconds, node_id, paths[node_id], pid) for node_id, pid in pids.items()]

        self.latest = await asyncio.to_thread(look)
        self.checker.see_samples(self.latest, arena.readings)
        for start in arena.starts[self._starts_seen :]:
            self.checker.see_start(start)
        self._starts_seen = len(arena.starts)

    async def _come_to_rest(self, arena: Arena) -> None:
        """Check after the load that all nodes have the same state, and that their resources are within the bounds."""
        await checks.until_level(arena.cluster)
        self.violations += checks.databases_agree(arena.cluster)
        await self._look(arena)

    @asynccontextmanager
    async def _arena(self) -> AsyncIterator[Arena]:
        async with AsyncExitStack() as stack:
            directory = open_or_create(
                self.plan.directory / "cluster", voters=VOTERS, observers=OBSERVERS, settings=SETTINGS
            )
            disks = self._small_disks(directory, stack)
            network = Loopback()
            cluster = LocalCluster(directory, network.command)
            stack.push_async_callback(cluster.stop)
            arena = self.arena = Arena(cluster, network, disks, self.plan.directory / "journal.txt")
            await asyncio.gather(*(arena.start(node_id) for node_id in cluster.node_ids))
            if arena.deaths:
                raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, arena.deaths[0])
            self.checker.see_first_starts(arena.starts)
            self._starts_seen = len(arena.starts)
            await cluster.wait_for_leader()
            yield arena

    def _small_disks(self, directory: ClusterDirectory, stack: AsyncExitStack) -> list[SmallDisk]:
        node_id = NodeId(VOTERS)
        try:
            return mount_disks({node_id: directory.data_path(node_id)}, stack)
        except DiskUnavailable as error:
            self.left_out[FillDisk.name] = str(error)
            return []

    def _derived(self) -> Random:
        return Random(self.random.getrandbits(64))
