"""A broker's network: its listeners, and the connections of its clients.

async with serving(handler, [Listener("PLAINTEXT", "localhost", 9092)], Limits(), offered, on_fatal=end) as network:
    network.ports["PLAINTEXT"]
"""

from __future__ import annotations

import asyncio
import functools
import resource
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

from kraftbase.errors import ConfigurationError
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.notation import Versions
from kraftlog.network.connection import Connection
from kraftlog.network.connections import Connections
from kraftlog.network.counters import Counters, show_counters
from kraftlog.network.limits import Limits, Listener
from kraftlog.network.listening import BACKLOG, bind, port_of
from kraftlog.network.requests import Handler
from kraftlog.telemetry.registry import Registry

FILES_KEPT: Final = 512
"""Open files left for the rest of the process: the logs have 256, SQLite and gRPC some more."""

__all__ = ["Limits", "Listener", "Network", "serving"]


class Network:
    """The listeners of a broker."""

    def __init__(self, connections: Connections) -> None:
        self.ports: dict[str, int] = {}
        """The bound port, by listener."""
        self._connections = connections

    def longest_request(self) -> str | None:
        """Return the request that took longest since the last call, such as "Fetch from 127.0.0.1:41832", if any."""
        return self._connections.take_longest()

    @property
    def counters(self) -> Counters:
        """The counts so far."""
        return self._connections.counters

    def show(self, registry: Registry) -> None:
        """Add the counts and the times of requests to a registry."""
        times = {api_of(key).name: histogram for key, histogram in self._connections.times.items()}
        show_counters(registry, lambda: self.counters, times)


@asynccontextmanager
async def serving(
    handler: Handler,
    listeners: Sequence[Listener],
    limits: Limits,
    offered: Mapping[int, Versions],
    *,
    on_fatal: Callable[[BaseException], None],
    allow_plaintext: bool = False,
) -> AsyncIterator[Network]:
    """Pass clients' requests to `handler` within the block. `offered` are the versions of each API, by the API's key.

    `on_fatal` is called with an error that must end the process, such as an InvariantViolation in a handler. Without
    `allow_plaintext` only loopback addresses are accepted. At the end nothing more is accepted or read; written answers
    are sent, for `drain_timeout_ms` at most; then all connections are closed.

    Raises ConfigurationError if a listener cannot be bound.
    """
    names = [listener.name for listener in listeners]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"listeners {', '.join(names)}: give each a name of its own")
    connections = Connections(handler, _affordable(limits), offered, on_fatal)
    network = Network(connections)
    async with AsyncExitStack() as stack:
        sockets: list[tuple[str, socket.socket]] = []
        for listener in listeners:
            bound = await bind(listener, allow_plaintext)
            network.ports[listener.name] = port_of(bound)
            for sock in bound:
                stack.callback(sock.close)
                sockets.append((listener.name, sock))
        servers: list[asyncio.Server] = []
        stack.push_async_callback(_close, servers, connections)
        for name, sock in sockets:
            made = functools.partial(Connection, connections, name)
            servers.append(await connections.loop.create_server(made, sock=sock, backlog=BACKLOG))
        yield network


def _affordable(limits: Limits) -> Limits:
    """Return the limits with `connections_max` low enough that connections leave open files for the logs."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files_max == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections_max=min(limits.connections_max, max(1, files_max - FILES_KEPT)))


async def _close(servers: list[asyncio.Server], connections: Connections) -> None:
    """Accept no further connections, then close those that exist."""
    for server in servers:
        server.close()
    await connections.close()
    for server in servers:
        await server.wait_closed()
