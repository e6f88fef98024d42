"""Real nodes for tests: sockets on loopback, files below a temporary directory, everything on the test's loop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

from kraftbase.endpoint import Endpoint
from kraftbase.files.files import FileSystem
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import NodeId, Offset
from kraftbase.uuids import random_cluster_id
from kraftlog.local.cluster_directory import free_endpoints
from raft.client import RaftClient
from raft.core.config import QuorumConfig
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch, ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.host import HostedState, hosted_node
from raft.listener import BatchReader, Listener
from raft.node import Node, end_process
from raft.storage.directory import DataDirectory
from raft.storage.segmented_log import LogConfig
from snapshot.log_start_policy import LogStartConfig
from tests.statemachine.waiting import until

QUICK = QuorumConfig(election_timeout_ms=150, fetch_timeout_ms=600, fetch_max_wait_ms=200, request_timeout_ms=1000)
CALM = dataclasses.replace(QUICK, fetch_timeout_ms=60_000)
"""No voter misses its leader in a test's time, however busy the machine: an epoch more has another cause."""
PATIENT = QuorumConfig(election_timeout_ms=500, fetch_timeout_ms=3_000, fetch_max_wait_ms=200, request_timeout_ms=3_000)
"""For several whole nodes on one event loop: on a busy machine, a node that starts delays the others for seconds, and
with `QUICK` each delay is an election. A leader that is stopped resigns, and is replaced as soon as with `QUICK`.
"""


async def until_voters_take_part(nodes: Iterable[Node]) -> None:
    """Return when no voter among `nodes` is new: a new one cannot stand in for another one that stops (RF-112).

    What starts several voters awaits this before a test may stop one of them.
    """
    started = list(nodes)
    await until(lambda: not any(node.replica.is_recovering for node in started))


_handed_out: set[int] = set()


def free_port() -> int:
    """A port that no process listens on, that no outgoing connection gets, and that no other test has."""
    while True:
        (endpoint,) = free_endpoints(1)
        if endpoint.port not in _handed_out:
            _handed_out.add(endpoint.port)
            return endpoint.port


class Recorder(Listener):
    """Keeps every record and every leader, and lets a test wait for them."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.end_offset = Offset(0)
        self._changed = asyncio.Event()

    async def handle_commit(self, reader: BatchReader) -> None:
        with reader:
            for batch in reader:
                self.records.extend(batch.records)
            self.end_offset = reader.end_offset
        self._changed.set()

    async def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        self.leaders.append(leader_and_epoch)
        self._changed.set()

    async def has_records(self, count: int) -> None:
        async with asyncio.timeout(100):
            while len(self.records) < count:
                self._changed.clear()
                await self._changed.wait()

    async def has_leader(self, leader_id: NodeId) -> None:
        async with asyncio.timeout(100):
            while not self.leaders or self.leaders[-1].leader_id != leader_id:
                self._changed.clear()
                await self._changed.wait()

    async def has_any_leader(self) -> LeaderAndEpoch:
        async with asyncio.timeout(100):
            while not self.leaders or self.leaders[-1].leader_id is None:
                self._changed.clear()
                await self._changed.wait()
        return self.leaders[-1]


class Cluster:
    """Nodes by id, each with its client and a recorder."""

    def __init__(
        self,
        base: Path,
        voter_count: int,
        log_start: LogStartConfig | None = None,
        *,
        make_recorder: Callable[[], Recorder] = Recorder,
    ) -> None:
        self.base = base
        self.log_start = log_start
        self._make_recorder = make_recorder
        self.cluster_id = random_cluster_id()
        self.voters = VoterSet(
            Voter(ReplicaKey(NodeId(node_id)), Endpoint("127.0.0.1", free_port()))
            for node_id in range(1, voter_count + 1)
        )
        self.nodes: dict[int, Node] = {}
        self.clients: dict[int, RaftClient] = {}
        self.recorders: dict[int, Recorder] = {}
        self._stacks: dict[int, contextlib.AsyncExitStack] = {}

    async def start(
        self,
        node_id: int,
        *,
        config: QuorumConfig = QUICK,
        log_config: LogConfig | None = None,
        files: FileSystem | None = None,
        applied: OffsetAndEpoch = LOG_BEGINNING,
        on_fatal: Callable[[BaseException], None] = end_process,
    ) -> RaftClient:
        files = files or PosixFileSystem()
        path = str(self.base / f"node-{node_id}")
        DataDirectory.format(files, path, cluster_id=self.cluster_id, node_id=NodeId(node_id), ignore_formatted=True)
        voter = self.voters.get(NodeId(node_id))
        stack = self._stacks[node_id] = contextlib.AsyncExitStack()
        directory = stack.enter_context(contextlib.closing(DataDirectory.open(files, path)))
        node = await stack.enter_async_context(
            hosted_node(
                directory,
                endpoint=voter.endpoint if voter else Endpoint("127.0.0.1", free_port()),
                voters=self.voters,
                config=config,
                log_config=log_config,
                log_start=self.log_start,
                state=HostedState(applied=applied),
                on_fatal=on_fatal,
            )
        )
        self.nodes[node_id] = node
        client = self.clients[node_id] = RaftClient(node)
        recorder = self.recorders[node_id] = self._make_recorder()
        client.register(recorder)
        return client

    async def stop(self, node_id: int) -> None:
        del self.nodes[node_id], self.clients[node_id], self.recorders[node_id]
        await self._stacks.pop(node_id).aclose()

    async def leader(self) -> RaftClient:
        """The client of the node that leads and whose listener has been notified of it."""
        async with asyncio.timeout(100):
            while True:
                waits = {
                    asyncio.ensure_future(recorder.has_leader(NodeId(node_id))): node_id
                    for node_id, recorder in self.recorders.items()
                }
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
                for wait in done:
                    client = self.clients[waits[wait]]
                    if client.leader_and_epoch.leader_id == client.node_key.node_id:
                        return client


@contextlib.asynccontextmanager
async def running_cluster(base: Path, voter_count: int = 3, observer_count: int = 0) -> AsyncIterator[Cluster]:
    cluster = Cluster(base, voter_count)
    try:
        for node_id in range(1, voter_count + observer_count + 1):
            await cluster.start(node_id)
        await until_voters_take_part(cluster.nodes.values())
        yield cluster
    finally:
        await asyncio.gather(*(cluster.stop(node_id) for node_id in list(cluster.nodes)))
