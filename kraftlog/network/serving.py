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
"""Open files that connections leave to the rest of the process: the logs have 256, SQLite and gRPC some more."""

__all__ = ["Limits", "Listener", "Network", "serving"]


class Network:
    """Listeners that clients can connect to."""

    def __init__(self, connections: Connections) -> None:
        self.ports: dict[str, int] = {}
        """By listener, the port that it is bound to."""
        self._connections = connections

    def longest_request(self) -> str | None:
        """Which request has kept the loop for longest since the last call, such as "Fetch from 127.0.0.1:41832"."""
        return self._connections.take_longest()

    @property
    def counters(self) -> Counters:
        """What was counted so far."""
        return self._connections.counters

    def show(self, registry: Registry) -> None:
        """Have a registry show what is counted, and how long requests take."""
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
    """Hand the requests of clients to `handler` within the block. `offered` are the versions of each API, by its key.

    `on_fatal` is called with what must end the process, such as an InvariantViolation of a handler. Without
    `allow_plaintext` only loopback addresses can be listened on. At the end nothing more is accepted or read; answers
    that were written are sent, for `drain_timeout_ms` at most; then all connections are closed.

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
            for one in bound:
                stack.callback(one.close)
                sockets.append((listener.name, one))
        servers: list[asyncio.Server] = []
        stack.push_async_callback(_close, servers, connections)
        for name, one in sockets:
            made = functools.partial(Connection, connections, name)
            servers.append(await connections.loop.create_server(made, sock=one, backlog=BACKLOG))
        yield network


def _affordable(limits: Limits) -> Limits:
    """The limits, without connections that would take the open files of the logs."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files_max == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections_max=min(limits.connections_max, max(1, files_max - FILES_KEPT)))


async def _close(servers: list[asyncio.Server], connections: Connections) -> None:
    """Accept nothing more, then close the connections."""
    for server in servers:
        server.close()
    await connections.close()
    for server in servers:
        await server.wait_closed()
