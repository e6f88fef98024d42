"""One run: a cluster, clients, faults for a while, then peace and the checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.chaos import checks
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.availability import Window, longest_gap, windows
from kraftlog.chaos.committed import CommittedLog
from kraftlog.chaos.disk import DiskUnavailable, SmallDisk, mount_disks
from kraftlog.chaos.lanes import Lane
from kraftlog.chaos.network import Network, choose_network
from kraftlog.chaos.partitions import FillDisk, SlowLink
from kraftlog.chaos.schedule import OTHER_KINDS, OTHER_REST_SECONDS, PROCESS_KINDS, PROCESS_REST_SECONDS, Kind
from kraftlog.chaos.workload import Workload
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import ClusterDirectory, open_or_create
from kraftlog.sim.quorum.registers.linearizability import CheckResult
from raft.observe import observe

CLIENTS: Final = 5
FOLLOWER_TIMEOUT_SECONDS: Final = 60.0
SETTINGS: Final = {
    "metadata.log.segment.bytes": 256 * 1024,
    "metadata.log.preallocate.bytes": 64 * 1024,
    "metadata.log.max.record.bytes.between.snapshots": 64 * 1024,
    "metadata.max.retention.bytes": 512 * 1024,
    "metadata.start.offset.lag.time.max.ms": 20_000,
}
"""Small segments, many snapshots, and a log start that moves: so nodes are killed while they take, fetch or load a
snapshot, and while they delete the log below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run."""

    seconds: float
    """How long faults are injected. The run takes longer if a kind of fault has not been injected by then."""
    seed: int
    directory: Path
    voters: int = 5
    observers: int = 1
    network: str = "auto"
    process_kinds: Sequence[Kind] = PROCESS_KINDS
    other_kinds: Sequence[Kind] = OTHER_KINDS


class Run:
    """One run and its results."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = Random(plan.seed)
        self.network: Network | None = None
        self.arena: Arena | None = None
        self.workload: Workload | None = None
        self.left_out: dict[str, str] = {}
        """Faults that this machine does not support, and why."""
        self.violations: list[str] = []
        self.windows: list[Window] = []
        self.longest_gap_seconds = 0.0
        self.lost = 0
        self.register_results: dict[str, int] = {}
        """How many registers' histories are linearizable, not linearizable, or undecided."""
        self.snapshots = 0
        """How many snapshots the nodes have at the end."""
        self.log_starts: list[int] = []
        """The log start offsets of the nodes at the end."""
        self.under_way: dict[str, str] = {}
        """The current fault of each lane."""

    async def run(self) -> bool:
        """Carry out the run; return whether there was no violation."""
        async with AsyncExitStack() as stack:
            arena = await stack.enter_async_context(self._arena())
            self.workload = Workload(arena.cluster.bootstrap_servers, self._derived(), CLIENTS)
            await stack.enter_async_context(self.workload.prepared())
            followed = CommittedLog()
            following = asyncio.create_task(observe(arena.cluster.bootstrap_servers, followed))
            stack.callback(following.cancel)
            try:
                await self._storm(arena, self.workload)
                await self._check(arena, self.workload, followed)
            except (ApiError, TimeoutError) as error:
                self.violations.append(f"after all faults had ended the cluster did not settle: {error!r}")
            finally:
                self.workload.history.save(self.plan.directory / "history.jsonl")
        return not self.violations

    # --- parts ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _arena(self) -> AsyncIterator[Arena]:
        async with AsyncExitStack() as stack:
            plan = self.plan
            network = self.network = choose_network(plan.voters + plan.observers, plan.network)
            stack.push_async_callback(network.close)
            directory = open_or_create(
                plan.directory / "cluster",
                voters=plan.voters,
                observers=plan.observers,
                settings=SETTINGS,
                endpoints=network.endpoints(),
            )
            await network.start(directory)
            disks = self._small_disks(directory, stack)
            if network.slow_link is None:
                self.left_out[SlowLink.name] = "the kernel has no queueing discipline for it"
            cluster = LocalCluster(directory, network.command)
            network.attach(cluster)
            stack.push_async_callback(cluster.stop)
            arena = self.arena = Arena(cluster, network, disks, plan.directory / "journal.txt")
            await asyncio.gather(*(arena.start(node_id) for node_id in cluster.node_ids))
            if arena.deaths:
                raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, arena.deaths[0])
            await cluster.wait_for_leader()
            yield arena

    def _small_disks(self, directory: ClusterDirectory, stack: AsyncExitStack) -> list[SmallDisk]:
        node_id = NodeId(self.plan.voters)
        try:
            return mount_disks({node_id: directory.data_path(node_id)}, stack)
        except DiskUnavailable as error:
            self.left_out[FillDisk.name] = str(error)
            return []

    async def _storm(self, arena: Arena, workload: Workload) -> None:
        def is_over() -> bool:
            return arena.elapsed_seconds >= self.plan.seconds

        working = asyncio.create_task(workload.run())
        watching = asyncio.create_task(arena.watch())
        try:
            async with asyncio.TaskGroup() as lanes:
                for name, kinds, rest in (
                    ("processes", self.plan.process_kinds, PROCESS_REST_SECONDS),
                    ("others", self.plan.other_kinds, OTHER_REST_SECONDS),
                ):
                    possible = [kind for kind in kinds if kind.fault.name not in self.left_out]
                    lane = Lane(name, possible, rest)
                    lanes.create_task(lane.run(arena, self._derived(), is_over, self.under_way))
            await arena.heal()
            await arena.cluster.wait_for_leader()
        finally:
            workload.stop()
            watching.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)
        await working

    async def _check(self, arena: Arena, workload: Workload, followed: CommittedLog) -> None:
        end_offset = await checks.until_level(arena.cluster)
        await followed.wait_for(end_offset, FOLLOWER_TIMEOUT_SECONDS)
        intervals = arena.truth.finish()
        self.windows = windows(intervals, workload.acknowledged_at)
        gap_began, self.longest_gap_seconds = longest_gap(intervals, workload.acknowledged_at)
        began = arena.truth.now() - arena.elapsed_seconds
        arena.note(f"the longest unavailability: {self.longest_gap_seconds:.3f} s from {gap_began - began:.3f}")
        lost = checks.nothing_lost(workload.history.operations, followed)
        self.lost = len(lost)
        self.violations += arena.deaths + lost
        self.violations += checks.answers_agree(workload.history, followed)
        results, without_order = checks.linearizable(workload.history)
        self.register_results = {result.value: results[result] for result in CheckResult}
        self.violations += without_order
        self.violations += await checks.logs_agree(arena.cluster, followed, end_offset)
        self.log_starts = await checks.log_starts(arena.cluster)
        self.violations += checks.databases_agree(arena.cluster)
        self.snapshots, wrong = await checks.snapshots_agree(arena.cluster)
        self.violations += wrong
        self.violations += checks.windows_served(self.windows, began)

    def _derived(self) -> Random:
        return Random(self.random.getrandbits(64))
