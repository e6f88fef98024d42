"""Faults that look to a controller like the end of a broker's process; mostly the process lives (CT-65)."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, suppress
from random import Random
from typing import Final

from kraftbase.checks import check
from kraftbase.types import NodeId
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.brokers.cluster import with_brokers
from kraftlog.chaos.chronicle import Span
from kraftlog.chaos.namespaces import Namespaces
from kraftlog.chaos.nemesis import Nemesis, PauseOne
from kraftlog.chaos.partitions import SlowLink
from kraftlog.network.listening import BACKLOG

RESETS: Final = 3
RESET_PAUSE_SECONDS: Final = (0.02, 1.0)
REFUSED_SECONDS: Final = (0.01, 0.05)
"""Shorter than the time after which CT-65 assumes the end of a process, even with small delays."""
CONNECT_SECONDS: Final = 0.5


class RestartAtOnce(Nemesis):
    """Ends a leading broker and starts it again at once: the controller may not have noticed its end."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victim: NodeId | None = None

    async def start(self, arena: Arena) -> None:
        """End the broker, and start it."""
        self._victim = await with_brokers(arena).leading_broker(self.random)
        await self.end(arena, self._victim)
        await arena.start(self._victim)

    async def stop(self, arena: Arena) -> None:
        """Wait until the broker has started."""
        if self._victim is not None:
            await arena.start(self._victim)

    async def end(self, arena: Arena, victim: NodeId) -> None:
        """End the broker."""
        raise NotImplementedError


class KillAndStart(RestartAtOnce):
    """Ends the broker with SIGKILL."""

    name = "kill a broker and start it at once"

    async def end(self, arena: Arena, victim: NodeId) -> None:
        """SIGKILL."""
        await arena.kill(victim)


class ShutDownAndStart(RestartAtOnce):
    """Ends the broker with SIGTERM."""

    name = "shut down a broker and start it at once"

    async def end(self, arena: Arena, victim: NodeId) -> None:
        """SIGTERM."""
        await arena.terminate(victim)


class FillAcceptQueue(PauseOne):
    """Pauses a broker, fills its accept queue with connections, and resets its connections to the controllers."""

    name = "fill a broker's accept queue"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._connections = ExitStack()

    async def choose(self, arena: Arena) -> NodeId:
        """Choose a leading broker."""
        return await with_brokers(arena).leading_broker(self.random)

    async def start(self, arena: Arena) -> None:
        """Pause the broker, fill its queue, and reset its connections."""
        await super().start(arena)
        if self._victim not in arena.truth.paused:
            return
        endpoint = network_of(arena).endpoint(self._victim)
        for _ in range(2 * BACKLOG):
            connection = self._connections.enter_context(socket.socket())
            connection.setblocking(False)
            with suppress(BlockingIOError):
                connection.connect(endpoint)
        arena.counts["accept queues filled"] += await self._is_full(arena, endpoint.host, endpoint.port)
        await reset(arena, self._victim)

    async def stop(self, arena: Arena) -> None:
        """Close the connections, and let the broker continue."""
        self._connections.close()
        await super().stop(arena)

    async def _is_full(self, arena: Arena, host: str, port: int) -> bool:
        """Whether a further connection gets no answer."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            return True
        except OSError:
            return False
        writer.close()
        return False


class ResetConnections(Nemesis):
    """Resets the connections of a live broker to the controllers, several times in a row."""

    name = "reset a broker's connections"

    async def start(self, arena: Arena) -> None:
        """Reset the connections."""
        victim = self.random.choice(with_brokers(arena).broker_ids)
        for _ in range(RESETS):
            await reset(arena, victim)
            await asyncio.sleep(self.random.uniform(*RESET_PAUSE_SECONDS))


class RefuseForAMoment(Nemesis):
    """Resets the connections of a live broker and refuses new ones, for less than 100 ms."""

    name = "refuse connections to a broker for a moment"

    async def start(self, arena: Arena) -> None:
        """Refuse connections several times."""
        victim = self.random.choice(with_brokers(arena).broker_ids)
        for _ in range(RESETS):
            seconds = self.random.uniform(*REFUSED_SECONDS)
            arena.note(f"refuse connections to {victim} for {seconds:.3f} s")
            spans = await network_of(arena).refuse(victim, arena.cluster.voter_ids, seconds)
            arena.chronicle.refusals += [Span(victim, began, ended) for began, ended in spans]
            arena.counts["refusals"] += 1
            await asyncio.sleep(self.random.uniform(*RESET_PAUSE_SECONDS))


class ClogBroker(SlowLink):
    """Slows the links of a broker down, and resets its connections to the controllers."""

    name = "clog the links of a broker"

    async def start(self, arena: Arena) -> None:
        """Slow the links down, and reset the connections."""
        await super().start(arena)
        if self._victim is not None:
            await reset(arena, self._victim)

    def choose(self, arena: Arena) -> NodeId:
        """Choose any broker."""
        return self.random.choice(with_brokers(arena).broker_ids)


NEEDS_NAMESPACES: Final = (FillAcceptQueue, ResetConnections, RefuseForAMoment)
"""The faults that only network namespaces can inject."""


async def reset(arena: Arena, broker_id: NodeId) -> None:
    """Reset a broker's connections to all voters."""
    arena.note(f"reset the connections of {broker_id}")
    arena.counts["connections reset"] += 1
    await network_of(arena).reset(broker_id, arena.cluster.voter_ids)


def network_of(arena: Arena) -> Namespaces:
    """Return the network of an arena, which must be namespaces: elsewhere these faults are left out."""
    check(isinstance(arena.network, Namespaces), "connections are reset in network namespaces only")
    return arena.network  # type: ignore[return-value]
