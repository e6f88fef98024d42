"""A TCP proxy in front of each voter, for machines without network namespaces. Needs Linux, but no privileges.

    voter N listens at 127.0.0.1:P; the voter list, the same on every node, has 127.0.0.2:P, the address of the proxy

The proxy finds the owner of a connection in /proc: if the socket at its other end belongs to a node's process, the link
may be cut; otherwise the connection is a client's and never cut. Bytes on a cut link are held back, not dropped, which
is how TCP behaves after a partition ends. Until then the connection stays open and delivers nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.types import NodeId
from kraftlog.chaos.socket_owners import SocketOwners
from kraftlog.local.cluster import LocalCluster, start_command
from kraftlog.local.cluster_directory import ClusterDirectory, free_endpoints

PROXY_HOST: Final = "127.0.0.2"
NODE_HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 64 * 1024
SLOW_SECONDS: Final = 0.04


class Links:
    """The directed links that are cut, and the nodes whose links are slow. Connections wait for them here."""

    def __init__(self) -> None:
        self._cut: dict[tuple[NodeId | None, NodeId | None], asyncio.Event] = {}
        self.slow: set[NodeId | None] = set()

    @property
    def are_well(self) -> bool:
        """Whether no link is cut or slow."""
        return not self._cut and not self.slow

    def cut(self, source: NodeId, target: NodeId) -> None:
        """Hold back the bytes that `source` sends to `target`."""
        self._cut.setdefault((source, target), asyncio.Event())

    def mend(self, source: NodeId, target: NodeId) -> None:
        """Undo `cut`: send the held bytes and all later ones."""
        opened = self._cut.pop((source, target), None)
        if opened is not None:
            opened.set()

    async def pass_through(self, source: NodeId | None, target: NodeId | None) -> None:
        """Wait until the link is not cut, and for the delay of a slow link."""
        while (opened := self._cut.get((source, target))) is not None:
            await opened.wait()
        if source is not None and target is not None and {source, target} & self.slow:
            await asyncio.sleep(SLOW_SECONDS)


@dataclass(slots=True)
class Connection:
    """A connection to one voter."""

    peer: Endpoint
    """The address at the other end."""
    target: NodeId
    source: NodeId | None = None
    is_source_known: bool = False


class ProxyNetwork:
    """The proxies of one cluster."""

    def __init__(self, node_count: int, reason: str | None = None) -> None:
        """`reason` is why network namespaces are not used."""
        self._endpoints = [Endpoint(PROXY_HOST, endpoint.port) for endpoint in free_endpoints(node_count)]
        self._reason = reason
        self._links = Links()
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._cluster: LocalCluster | None = None
        self._owners = SocketOwners(self._processes)

    @property
    def description(self) -> str:
        """The network, as reports name it."""
        return "a TCP proxy in front of each voter" + (f" ({self._reason})" if self._reason else "")

    @property
    def slow_link(self) -> str | None:
        """What a slow link is on this network."""
        return f"{SLOW_SECONDS * 1000:g} ms later each way"

    def endpoints(self) -> Sequence[Endpoint]:
        """Return the addresses of the proxies."""
        return self._endpoints

    async def start(self, directory: ClusterDirectory) -> None:
        """Change the listeners of the voters to other addresses, and listen at their advertised ones."""
        for node_id in sorted(directory.voter_ids):
            front = directory.endpoints[node_id]
            path = directory.config_path(node_id)
            text = path.read_text(encoding="utf-8")
            behind = Endpoint(NODE_HOST, front.port)
            path.write_text(text.replace(f'listeners = "{front}"', f'listeners = "{behind}"'), encoding="utf-8")
            self._servers.append(await self._serve(node_id, front, behind))

    def command(self, config_path: Path) -> list[str]:
        """Return the usual command line of a node."""
        return start_command(config_path)

    def attach(self, cluster: LocalCluster) -> None:
        """Learn the cluster whose processes may own connections."""
        self._cluster = cluster

    async def cut(self, source: NodeId, target: NodeId) -> None:
        """Hold back the bytes that `source` sends to `target`."""
        self._links.cut(source, target)

    async def mend(self, source: NodeId, target: NodeId) -> None:
        """Undo `cut`."""
        self._links.mend(source, target)

    async def slow(self, node_id: NodeId) -> None:
        """Slow both directions down."""
        self._links.slow.add(node_id)

    async def restore(self, node_id: NodeId) -> None:
        """Undo `slow`, in both directions."""
        self._links.slow.discard(node_id)

    async def close(self) -> None:
        """End every connection."""
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    # --- connections --------------------------------------------------------------------------------------------------

    async def _serve(self, node_id: NodeId, front: Endpoint, behind: Endpoint) -> asyncio.Server:
        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
            with suppress(OSError, asyncio.CancelledError):
                await self._carry(reader, writer, node_id, behind)
            writer.close()

        return await asyncio.start_server(carry, front.host, front.port)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: NodeId, behind: Endpoint
    ) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(behind.host, behind.port)
        connection = Connection(Endpoint(*writer.get_extra_info("peername")[:2]), target)
        pumps = [
            asyncio.create_task(self._pump(reader, inner_writer, connection, is_request=True)),
            asyncio.create_task(self._pump(inner_reader, writer, connection, is_request=False)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            inner_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection, *, is_request: bool
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._wait_for_link(connection, is_request)
            writer.write(data)
            await writer.drain()
        await self._wait_for_link(connection, is_request)

    async def _wait_for_link(self, connection: Connection, is_request: bool) -> None:
        """Wait until the connection's link is open. Its owner is looked up only if some link is cut or slow."""
        if self._links.are_well:
            return
        if not connection.is_source_known:
            connection.source = await self._owners.owner(connection.peer)
            connection.is_source_known = True
        ends = (connection.source, connection.target)
        await self._links.pass_through(*(ends if is_request else ends[::-1]))

    def _processes(self) -> dict[NodeId, int]:
        cluster = self._cluster
        if cluster is None:
            return {}
        return {node_id: cluster.pid(node_id) for node_id in cluster.node_ids if cluster.is_running(node_id)}
