"""One soak of brokers: steady load without faults, then with faults, then rest; all are sampled every second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.chaos import nemesis
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.brokers import checks, faults
from kraftlog.chaos.brokers.clients import BACK_SECONDS, read_back
from kraftlog.chaos.brokers.cluster import ClusterWithBrokers, with_brokers
from kraftlog.chaos.brokers.large_requests import LargeRequests
from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.lanes import Lane
from kraftlog.chaos.network import Loopback
from kraftlog.chaos.schedule import Kind
from kraftlog.chaos.soak.brokers.bounds_checker import BrokersBoundsChecker
from kraftlog.chaos.soak.brokers.disturbances import Disturbance, IdleConnections, PassingTopics
from kraftlog.chaos.soak.brokers.ledger import RetainedLedger
from kraftlog.chaos.soak.brokers.limits import CONFIGS, LARGE_TOPIC, RETENTION_CHECK_MS, TOPICS
from kraftlog.chaos.soak.brokers.load import SteadyClients, log_starts
from kraftlog.chaos.soak.brokers.samples import BrokerSample, LogTail, take_broker_sample
from kraftlog.chaos.soak.limits import SETTINGS
from kraftlog.chaos.soak.run import SAMPLE_SECONDS
from kraftlog.chaos.soak.samples import Sample, take_sample
from kraftlog.local.brokers import LocalBrokers
from kraftlog.local.cluster_directory import open_or_create

VOTERS: Final = 3
BROKERS: Final = 3
STEADY_SHARE: Final = 1 / 2
"""The share of the time without faults."""
LARGE_REST_FIRST_SECONDS: Final = (0.1, 0.8)
"""The pause between large requests in the first quarter of the steady part. After it each broker has handled each kind,
and its allocator keeps the memory for them; what it keeps in addition later is growth."""
LARGE_REST_SECONDS: Final = (2.0, 6.0)
PEACE_SECONDS: Final = 10.0
"""How long the load continues after the faults, while no broker may be fenced."""
UNREAD_SECONDS: Final = 60.0
READ_BACK_SECONDS: Final = 20.0
"""How often everything is read back, and how long that may take while there are faults."""
STARTS_SECONDS: Final = 30.0
REST_SECONDS: Final = 3 * RETENTION_CHECK_MS / 1_000
"""The time after the clients have ended: idle connections are closed, and segments deleted."""
POLL_SECONDS: Final = 0.2

PROCESS_KINDS: Final = (
    Kind(faults.KillBroker, 4, (0.05, 2.0)),
    Kind(faults.KillLeadingBroker, 4, (0.05, 2.0)),
    Kind(faults.KillAllBrokers, 1, (0.05, 1.0)),
    Kind(faults.ShutDownBroker, 3, (0.05, 1.0)),
    Kind(nemesis.KillLeader, 3, (0.05, 2.0)),
    Kind(nemesis.KillOne, 2, (0.05, 2.0)),
    Kind(nemesis.GracefulRestart, 2, (0.05, 1.0)),
)
OTHER_KINDS: Final = (
    Kind(faults.PauseBroker, 2, (0.5, 12.0)),
    Kind(faults.PauseLeadingBroker, 2, (0.5, 12.0)),
    Kind(nemesis.PauseLeader, 1, (0.5, 5.0)),
    Kind(faults.ElectPreferred, 2, (0.05, 0.5)),
    Kind(faults.Reassign, 2, (0.5, 3.0)),
    Kind(nemesis.Calm, 2, (5.0, 8.0)),
)
LANES: Final = (Lane("processes", PROCESS_KINDS, (4.0, 10.0)), Lane("others", OTHER_KINDS, (1.0, 4.0)))
"""Brokers have time to settle after a kill: a soak detects what accumulates, not what a crash leaves behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run."""

    seconds: float
    """The time of the run. It takes longer if a kind of fault has not been injected by then."""
    seed: int
    directory: Path
    records_per_second: float
    lanes: Sequence[Lane] = LANES
    """If empty, the whole run is without faults."""


@dataclass(slots=True)
class Phase:
    """A part of the run, and the counts of its clients."""

    name: str
    began: float
    ended: float = 0.0
    acknowledged: int = 0
    read: int = 0
    elections: int = 0
    """By how much the epoch of the quorum has risen."""


class BrokersSoak:
    """One run and its results."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = Random(plan.seed)
        self.checker = BrokersBoundsChecker(plan.records_per_second)
        self.ledger = RetainedLedger()
        self.arena: Arena | None = None
        self.phases: list[Phase] = []
        self.violations: list[str] = []
        self.under_way: dict[str, str] = {}
        """The current fault of each lane."""
        self.latest: Sequence[BrokerSample] = ()
        """The last sample of every broker."""
        self.large_requests: LargeRequests | None = None
        self.disturbances: Sequence[Disturbance] = ()
        self.times_read_back = 0
        self._partitions = [At(topic.name, number) for topic in TOPICS for number in range(topic.num_partitions)]
        self._tails: dict[NodeId, LogTail] = {}

    async def run(self) -> bool:
        """Carry out the run; return whether no bound and no other check was violated."""
        async with self._arena() as arena:
            cluster = with_brokers(arena)
            sampling = asyncio.create_task(self._sample(arena))
            try:
                await cluster.client.create_topics([*TOPICS, LARGE_TOPIC])
                endpoints = [await cluster.brokers.endpoint(broker_id) for broker_id in cluster.broker_ids]
                servers = ",".join(map(str, endpoints))
                await checks.until_in_sync(cluster)
                await self._work(arena, servers, sampling)
                if self.checker.runaway is None:
                    await self._rest(arena, servers)
                    await self._compare_replicas(cluster)
            except (ApiError, TimeoutError) as error:
                self.violations.append(f"the cluster did not settle: {error!r}")
            finally:
                sampling.cancel()
                await asyncio.gather(sampling, return_exceptions=True)
            self.violations += arena.deaths + self.ledger.violations
            self.violations += [story for of in self.disturbances for story in of.violations]
        self.violations += self.checker.violations()
        return not self.violations

    @property
    def kinds(self) -> dict[NodeId, str]:
        """For each id, "broker" or "node"."""
        if self.arena is None:
            return {}
        broker_ids = with_brokers(self.arena).broker_ids
        return {node_id: "broker" if node_id in broker_ids else "node" for node_id in self.arena.cluster.node_ids}

    # --- parts ------------------------------------------------------------------------------------------------------

    async def _work(self, arena: Arena, servers: str, sampling: asyncio.Task[None]) -> None:
        """Run all phases under load, or until files grow without bound."""
        clients = SteadyClients(servers, self._partitions, self.ledger, self._derived(), self.plan.records_per_second)
        large = self.large_requests = LargeRequests(
            servers, self._partitions, self._derived(), LARGE_REST_FIRST_SECONDS
        )
        self.disturbances = (PassingTopics(servers), IdleConnections(servers, self._derived()))
        working = (large, *self.disturbances, clients)
        watching = asyncio.create_task(arena.watch())
        phases = asyncio.create_task(self._phases(arena))
        reading = asyncio.create_task(self._now_and_then(servers))
        for load in working:
            load.start()
        try:
            await asyncio.wait((phases, watching, sampling, reading), return_when=asyncio.FIRST_COMPLETED)
            for task in (phases, watching, sampling, reading):
                if task.done():
                    task.result()
            if self.checker.runaway is None:
                await asyncio.to_thread(clients.stop_producing)
                await self._until_read()
        finally:
            tasks = (watching, phases, reading)
            for task in tasks:
                task.cancel()
            stopping = (asyncio.to_thread(load.stop) for load in working)
            await asyncio.gather(*tasks, *stopping, return_exceptions=True)

    async def _phases(self, arena: Arena) -> None:
        async with self._phase("without faults", arena):
            self.checker.is_steady = True
            steady_seconds = self.plan.seconds * (STEADY_SHARE if self.plan.lanes else 1)
            await asyncio.sleep(steady_seconds / 4)
            if self.large_requests is not None:
                self.large_requests.rest_seconds = LARGE_REST_SECONDS
            await asyncio.sleep(steady_seconds * 3 / 4)
            self.checker.end_steady_part(self.kinds, arena.elapsed_seconds)
        if self.plan.lanes:
            async with self._phase("with faults", arena):
                await self._faults(arena)
            await arena.heal()
            await checks.until_in_sync(with_brokers(arena))
        await checks.until_all_produce(self.ledger, self._partitions)
        self.violations += await checks.none_is_fenced(with_brokers(arena), PEACE_SECONDS)

    async def _faults(self, arena: Arena) -> None:
        until_seconds = arena.elapsed_seconds + self.plan.seconds * (1 - STEADY_SHARE)
        async with asyncio.TaskGroup() as lanes:
            for lane in self.plan.lanes:
                is_over = lambda: arena.elapsed_seconds >= until_seconds  # noqa: E731
                lanes.create_task(lane.run(arena, self._derived(), is_over, self.under_way))

    async def _until_read(self) -> None:
        """Wait until readers have received all acknowledged records. Raises TimeoutError."""
        async with asyncio.timeout(UNREAD_SECONDS):
            while self.ledger.unread():  # noqa: ASYNC110 (threads count)
                await asyncio.sleep(POLL_SECONDS)

    async def _rest(self, arena: Arena, servers: str) -> None:
        """Check, after the clients have ended, that processes have released their resources and logs are complete."""
        await asyncio.sleep(REST_SECONDS)
        await self._look(arena)
        self.checker.see_rest(self.kinds)
        await asyncio.to_thread(self._read_all, servers)

    def _read_all(self, servers: str) -> None:
        """Read and compare all records that retention has left. Those that it deletes now are not required."""
        found = read_back(servers, self.ledger.offsets_to_find(), BACK_SECONDS)
        starts: dict[At, int] = {}
        deadline = time.monotonic() + STARTS_SECONDS
        while len(starts) < len(self._partitions) and time.monotonic() < deadline:
            starts |= log_starts(servers, [at for at in self._partitions if at not in starts])
        for at in self._partitions:
            if at not in starts:
                self.violations.append(f"no leader of {at} reported its log start within {STARTS_SECONDS:g} s")
                continue
            self.ledger.forget(at, starts[at])
            self.ledger.compare_all(at, found.get(at, {}))
        self.times_read_back += 1

    async def _now_and_then(self, servers: str) -> None:
        """Read everything back periodically, as far as faults and retention allow, until cancelled."""
        while True:
            await asyncio.sleep(READ_BACK_SECONDS)
            ends = self.ledger.offsets_to_find()
            for at, found in (await asyncio.to_thread(read_back, servers, ends, READ_BACK_SECONDS)).items():
                if found:
                    self.ledger.compare(at, found, 1 + max(found), min(found))
            self.times_read_back += 1

    async def _compare_replicas(self, cluster: ClusterWithBrokers) -> None:
        """Stop all brokers, and check that the replicas of each partition agree, apart from deleted segments."""
        await checks.until_in_sync(cluster)
        described = await cluster.partitions()
        await cluster.stop(cluster.broker_ids)
        self.violations += await asyncio.to_thread(checks.replicas_agree, cluster.brokers, described, is_retained=True)

    @asynccontextmanager
    async def _phase(self, name: str, arena: Arena) -> AsyncIterator[None]:
        phase = Phase(name, arena.elapsed_seconds)
        self.phases.append(phase)
        epoch = await arena.cluster.newest_epoch()
        acknowledged, read = self.ledger.counts["acknowledged"], self.ledger.counts["read"]
        try:
            yield
        finally:
            phase.ended = arena.elapsed_seconds
            phase.acknowledged = self.ledger.counts["acknowledged"] - acknowledged
            phase.read = self.ledger.counts["read"] - read
        phase.elections = await arena.cluster.newest_epoch() - epoch

    async def _sample(self, arena: Arena) -> None:
        """Sample all processes every second, until the files of one grow without bound."""
        while self.checker.runaway is None:
            await self._look(arena)
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _look(self, arena: Arena) -> None:
        cluster = with_brokers(arena)
        pids = {node_id: cluster.pid(node_id) if cluster.is_running(node_id) else None for node_id in cluster.node_ids}

        def look() -> tuple[list[Sample], list[BrokerSample]]:
            now = arena.elapsed_seconds
            nodes = [
                take_sample(now, node_id, cluster.directory.data_path(node_id), pids[node_id])
                for node_id in cluster.voter_ids
            ]
            brokers = [
                take_broker_sample(
                    now, broker_id, cluster.brokers.data_path(broker_id), self._tails[broker_id], pids[broker_id]
                )
                for broker_id in cluster.broker_ids
            ]
            return nodes, brokers

        nodes, self.latest = await asyncio.to_thread(look)
        lines = {sample.node_id: self._tails[sample.node_id].look(sample.at_seconds) for sample in nodes}
        self.checker.see_nodes(nodes, lines, arena.readings)
        self.checker.created_topics = sum(of.counts["created"] for of in self.disturbances)
        self.checker.see_brokers(self.latest)

    @asynccontextmanager
    async def _arena(self) -> AsyncIterator[Arena]:
        async with AsyncExitStack() as stack:
            directory = open_or_create(self.plan.directory / "cluster", voters=VOTERS, observers=0, settings=SETTINGS)
            network = Loopback()
            nodes = tuple(directory.endpoints.values())
            client = await stack.enter_async_context(AdminClient(nodes))
            brokers = LocalBrokers(client, nodes, directory.path, BROKERS, None, CONFIGS)
            cluster = ClusterWithBrokers(directory, network.command, brokers, client)
            stack.push_async_callback(cluster.stop)
            arena = self.arena = Arena(cluster, network, (), self.plan.directory / "journal.txt")
            self._tails = {node_id: LogTail(cluster.log_path(node_id)) for node_id in cluster.node_ids}
            for node_ids in (cluster.voter_ids, cluster.broker_ids):
                await asyncio.gather(*(arena.start(node_id) for node_id in node_ids))
                if arena.deaths:
                    raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, arena.deaths[0])
                await cluster.wait_for_leader()
            yield arena

    def _derived(self) -> Random:
        return Random(self.random.getrandbits(64))
