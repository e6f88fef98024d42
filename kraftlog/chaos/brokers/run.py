"""One run: voters and brokers, clients that record every answer, faults for a while, then peace and the checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.brokers import checks, large_requests
from kraftlog.chaos.brokers.clients import BACK_SECONDS, Clients, read_back
from kraftlog.chaos.brokers.cluster import ClusterWithBrokers, with_brokers
from kraftlog.chaos.brokers.evidence_faults import NEEDS_NAMESPACES, ClogBroker
from kraftlog.chaos.brokers.faults import OTHER_KINDS, PROCESS_KINDS, FillBrokerDisk, FillNodeDisk
from kraftlog.chaos.brokers.fencings import Fencings, read_logs
from kraftlog.chaos.brokers.freshness import Freshness
from kraftlog.chaos.brokers.large_requests import LargeRequests
from kraftlog.chaos.brokers.ledger import At, Ledger
from kraftlog.chaos.disk import SIZE_MEGABYTES, DiskUnavailable, SmallDisk, mount_disks
from kraftlog.chaos.lanes import Lane
from kraftlog.chaos.namespaces import Namespaces, NamespacesUnavailable
from kraftlog.chaos.network import Loopback
from kraftlog.chaos.partitions import Partition, SlowLink
from kraftlog.chaos.schedule import OTHER_REST_SECONDS, PROCESS_REST_SECONDS, Kind
from kraftlog.local.brokers import FIRST_BROKER_ID, LocalBrokers
from kraftlog.local.cluster_directory import ClusterDirectory, open_or_create

VOTERS: Final = 3
BROKERS: Final = 3
PRODUCERS: Final = 3
MEGABYTES_A_MINUTE: Final = 8
"""How much a small disk grows with the length of the run: the clients' records of that time fit twice."""

SETTINGS: Final = {"broker.session.timeout.ms": 2_500, "leader.imbalance.check.interval.seconds": 5}
"""A killed broker can register again when its session has expired: with these values 200 kills take minutes."""
CONFIGS: Final = {
    "allow.plaintext": "true",
    "broker.heartbeat.interval.ms": "250",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "200",
    "log.segment.bytes": "1048576",
}
"""The configs of every broker: ISRs change within seconds, and logs have many segments."""
TOPICS: Final = (
    NewTopic("three", 6, 3, configs={"min.insync.replicas": "2"}),
    NewTopic("two", 3, 2, configs={"min.insync.replicas": "1", "flush.before.ack": "false"}),
)
"""One topic needs two disks for an acknowledgment. In the other the only copy in sync may be in one page cache."""
LARGE_TOPIC: Final = NewTopic(large_requests.TOPIC, 1, 3)
PEACE_SECONDS: Final = 10.0
"""How long large requests continue after all faults: four sessions."""
READ_BACK_SECONDS: Final = 20.0
"""How often everything is read back, and how long that may take while there are faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run."""

    seconds: float
    """How long faults are injected. The run takes longer if a kind of fault has not been injected by then."""
    kills: int
    """Faults continue until this many kills of brokers."""
    seed: int
    directory: Path
    network: str
    """auto, namespaces, or loopback, on which no link can be cut."""
    process_kinds: Sequence[Kind] = PROCESS_KINDS
    other_kinds: Sequence[Kind] = OTHER_KINDS
    peace_seconds: float = PEACE_SECONDS


class BrokersRun:
    """One run and its results."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = Random(plan.seed)
        self.ledger = Ledger()
        self.network: Namespaces | Loopback | None = None
        self.arena: Arena | None = None
        self.left_out: dict[str, str] = {}
        """Faults that this machine does not support, and why."""
        self.violations: list[str] = []
        self.under_way: dict[str, str] = {}
        """The current fault of each lane."""
        self.times_read_back = 0
        self.large_requests: LargeRequests | None = None
        self.freshness: Freshness | None = None
        self.fencings: Fencings | None = None

    async def run(self) -> bool:
        """Carry out the run; return whether there was no violation."""
        async with self._arena() as arena:
            cluster = with_brokers(arena)
            try:
                endpoints = await self._prepare(cluster)
                servers = ",".join(map(str, endpoints.values()))
                freshness = self.freshness = Freshness(arena, endpoints, LARGE_TOPIC.name)
                await self._storm(arena, servers, freshness)
                await asyncio.to_thread(self._read_all, servers)
                await self._compare_replicas(cluster)
            except (ApiError, TimeoutError) as error:
                self.violations.append(f"after all faults had ended the cluster did not settle: {error!r}")
            self.violations += arena.deaths + self.ledger.violations
            self.violations += await asyncio.to_thread(self._compare_fencings, arena)
            if self.freshness is not None:
                self.violations += self.freshness.violations
        return not self.violations

    @property
    def kills(self) -> int:
        """How many brokers were killed."""
        if self.arena is None:
            return 0
        return sum(self.arena.killed[broker_id] for broker_id in with_brokers(self.arena).broker_ids)

    # --- parts ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _arena(self) -> AsyncIterator[Arena]:
        async with AsyncExitStack() as stack:
            network = self.network = self._choose_network()
            stack.push_async_callback(network.close)
            directory = open_or_create(
                self.plan.directory / "cluster",
                voters=VOTERS,
                observers=0,
                settings=SETTINGS,
                endpoints=network.endpoints()[:VOTERS],
            )
            await network.start(directory)
            nodes = tuple(directory.endpoints.values())
            client = await stack.enter_async_context(AdminClient(nodes))
            places = network if isinstance(network, Namespaces) else None
            brokers = LocalBrokers(client, nodes, directory.path, BROKERS, None, CONFIGS, places, "info")
            disks = self._small_disks(directory, brokers, stack)
            cluster = ClusterWithBrokers(directory, network.command, brokers, client)
            stack.push_async_callback(cluster.stop)
            arena = self.arena = Arena(cluster, network, disks, self.plan.directory / "journal.txt")
            for node_ids in (cluster.voter_ids, cluster.broker_ids):
                await asyncio.gather(*(arena.start(node_id) for node_id in node_ids))
                if arena.deaths:
                    raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, arena.deaths[0])
                await cluster.wait_for_leader()
            yield arena

    def _choose_network(self) -> Namespaces | Loopback:
        node_ids = [*range(1, VOTERS + 1), *range(FIRST_BROKER_ID, FIRST_BROKER_ID + BROKERS)]
        reason = "no link of the loopback can be cut"
        if self.plan.network != "loopback":
            try:
                network = Namespaces.create([NodeId(node_id) for node_id in node_ids])
            except NamespacesUnavailable as error:
                if self.plan.network == "namespaces":
                    raise
                reason = f"no network namespaces: {error}"
            else:
                if network.slow_link is None:
                    reason = "the kernel has no queueing discipline for it"
                    self.left_out |= dict.fromkeys((SlowLink.name, ClogBroker.name), reason)
                return network
        for kind in self.plan.other_kinds:
            if issubclass(kind.fault, (Partition, SlowLink, *NEEDS_NAMESPACES)):
                self.left_out[kind.fault.name] = reason
        return Loopback()

    def _small_disks(
        self, directory: ClusterDirectory, brokers: LocalBrokers, stack: AsyncExitStack
    ) -> list[SmallDisk]:
        voter_id, broker_id = NodeId(VOTERS), NodeId(brokers.broker_ids[-1])
        data = {voter_id: directory.data_path(voter_id), broker_id: brokers.data_path(broker_id)}
        data[broker_id].mkdir()
        try:
            return mount_disks(data, stack, SIZE_MEGABYTES + round(self.plan.seconds / 60 * MEGABYTES_A_MINUTE))
        except DiskUnavailable as error:
            self.left_out |= dict.fromkeys((FillBrokerDisk.name, FillNodeDisk.name), str(error))
            return []

    async def _prepare(self, cluster: ClusterWithBrokers) -> dict[NodeId, Endpoint]:
        """Create the topics; return the endpoints of the brokers."""
        await cluster.client.create_topics([*TOPICS, LARGE_TOPIC])
        return {broker_id: await cluster.brokers.endpoint(broker_id) for broker_id in cluster.broker_ids}

    async def _storm(self, arena: Arena, servers: str, freshness: Freshness) -> None:
        partitions = [At(topic.name, number) for topic in TOPICS for number in range(topic.num_partitions)]
        clients = Clients(servers, partitions, self.ledger, self._derived(), PRODUCERS)
        large = self.large_requests = LargeRequests(servers, partitions, self._derived())
        tasks = [asyncio.create_task(work) for work in (arena.watch(), self._now_and_then(servers), freshness.run())]

        def is_over() -> bool:
            return arena.elapsed_seconds >= self.plan.seconds and self.kills >= self.plan.kills

        clients.start()
        large.start()
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
            await checks.until_in_sync(with_brokers(arena))
            await checks.until_all_produce(self.ledger, partitions)
            self.violations += await checks.none_is_fenced(with_brokers(arena), self.plan.peace_seconds)
            self.violations += await asyncio.to_thread(clients.until_all_is_read, BACK_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
            stopping = (asyncio.to_thread(of.stop) for of in (large, clients))
            await asyncio.gather(*tasks, *stopping, return_exceptions=True)

    async def _now_and_then(self, servers: str) -> None:
        """Read everything back periodically, as far as the faults allow, until cancelled."""
        while True:
            await asyncio.sleep(READ_BACK_SECONDS)
            ends = self.ledger.offsets_to_find()
            for at, found in (await asyncio.to_thread(read_back, servers, ends, READ_BACK_SECONDS)).items():
                self.ledger.compare(at, found, 1 + max(found, default=-1))
            self.times_read_back += 1

    def _read_all(self, servers: str) -> None:
        """Read everything back at the end, and compare it."""
        ends = self.ledger.offsets_to_find()
        for at, found in read_back(servers, ends, BACK_SECONDS).items():
            self.ledger.compare_all(at, found)
        self.times_read_back += 1

    async def _compare_replicas(self, cluster: ClusterWithBrokers) -> None:
        """Stop all brokers, and check that the replicas of each partition have the same batches."""
        await checks.until_in_sync(cluster)
        described = await cluster.partitions()
        await cluster.stop(cluster.broker_ids)
        self.violations += await asyncio.to_thread(checks.replicas_agree, cluster.brokers, described)

    def _compare_fencings(self, arena: Arena) -> list[str]:
        """Return the violations of brokers that were fenced although they lived."""
        cluster = arena.cluster
        session_seconds = SETTINGS["broker.session.timeout.ms"] / 1000
        fencings = self.fencings = Fencings(arena.chronicle, cluster.voter_ids, session_seconds)
        fencings.compare(read_logs(map(cluster.log_path, cluster.node_ids)))
        return fencings.violations

    def _derived(self) -> Random:
        return Random(self.random.getrandbits(64))
