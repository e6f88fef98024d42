"""kraftlog as one of the systems: three voters, a stream to the leader, and a Watch of a follower."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from kraftbase.endpoint import Endpoint
from kraftbase.types import Offset
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.peers.system import System, Watch, WhenVisible
from kraftlog.bench.throughput import single_operation
from kraftlog.bench.workload import bench_cluster, execute_once, prepared
from raft.observe import watch


class OwnSystem(System):
    """The operation is AlterConfigs of one config of a topic: one record."""

    def __init__(self, client: AdminClient, follower: Endpoint) -> None:
        self._client = client
        self._follower = follower

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path) -> AsyncIterator[System]:
        """A new cluster in `directory`, running within the block."""
        async with (
            bench_cluster(directory, "kraftlog", observers=0) as cluster,
            AdminClient(cluster.bootstrap_servers) as client,
            prepared(client),
        ):
            leader = await cluster.wait_for_leader()
            follower = next(node_id for node_id in cluster.voter_ids if node_id != leader)
            yield cls(client, cluster.endpoint(follower))

    async def submit(self) -> int:
        """Carry out one operation and return its end offset."""
        return (await execute_once(self._client, single_operation())).end_offset

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[WhenVisible]:
        """Watch a follower in this process, with the stream that `kraftlog.observe` uses."""
        found = Watch()
        start_offset = Offset(await self.submit())
        async with found.fed_by(self._follow(start_offset, found)) as when_visible:
            yield when_visible

    async def _follow(self, start_offset: Offset, found: Watch) -> None:
        async with aclosing(watch([self._follower], start_offset=start_offset)) as stream:
            async for watched in stream:
                if watched.batches:
                    found.reached(watched.batches[-1].end_offset)
