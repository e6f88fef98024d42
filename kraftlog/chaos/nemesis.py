"""The faults. Each has a name, breaks something when it starts, and repairs it when it stops.

Its target is drawn from its own random numbers when it starts, because "the leader" is known only then.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from random import Random
from typing import ClassVar, Final

from kraftbase.types import NodeId
from kraftlog.chaos.arena import Arena

STORM_KILLS: Final = 5
STORM_LIFE_SECONDS: Final = (0.05, 2.0)
"""From the start of the process to the next kill, unless it answers before. A start takes about a second."""


class Nemesis(ABC):
    """One fault, used once."""

    name: ClassVar[str]

    def __init__(self, random: Random) -> None:
        self.random = random

    @abstractmethod
    async def start(self, arena: Arena) -> None:
        """Break something."""

    async def stop(self, arena: Arena) -> None:  # noqa: B027 (some need no repair)
        """Repair it, but not what other faults broke meanwhile."""

    def any_node(self, arena: Arena) -> NodeId:
        """A node, voter or observer."""
        return self.random.choice(arena.cluster.node_ids)

    async def leader_or_any(self, arena: Arena) -> NodeId:
        """The leader; some voter if none is found."""
        fallback = self.random.choice(arena.cluster.voter_ids)
        return await arena.leader() or fallback


class Kill(Nemesis):
    """SIGKILL of some nodes at once; they are started again in the end."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victims: list[NodeId] = []

    async def start(self, arena: Arena) -> None:
        """Kill them."""
        self._victims = await self.choose(arena)
        await asyncio.gather(*(arena.kill(node_id) for node_id in self._victims))

    async def stop(self, arena: Arena) -> None:
        """Start them."""
        await asyncio.gather(*(arena.start(node_id) for node_id in self._victims))

    @abstractmethod
    async def choose(self, arena: Arena) -> list[NodeId]:
        """Whom."""


class KillOne(Kill):
    """Any node."""

    name = "kill one"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """Any."""
        return [self.any_node(arena)]


class LoseDatabase(KillOne):
    """A node is killed, and comes back without its database: it has its snapshots and its log."""

    name = "lose a database"

    async def start(self, arena: Arena) -> None:
        """Kill it, and remove the files."""
        await super().start(arena)
        for node_id in self._victims:
            await arena.lose_database(node_id)


class KillLeader(Kill):
    """The leader."""

    name = "kill the leader"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """The leader."""
        return [await self.leader_or_any(arena)]


class KillMajority(Kill):
    """So many voters that the rest are no majority."""

    name = "kill a majority"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """A majority of the voters."""
        voter_ids = arena.cluster.voter_ids
        return self.random.sample(voter_ids, len(voter_ids) // 2 + 1)


class KillAll(Kill):
    """Every node."""

    name = "kill all"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """All."""
        return list(arena.cluster.node_ids)


class RestartStorm(Nemesis):
    """The same node again and again, during its start or as soon as it answers."""

    name = "restart storm"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victim: NodeId | None = None

    async def start(self, arena: Arena) -> None:
        """Kill and start it five times."""
        self._victim = self.random.choice(self.candidates(arena))
        for _ in range(STORM_KILLS):
            await arena.kill(self._victim)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.random.uniform(*STORM_LIFE_SECONDS)):
                    await arena.start(self._victim)

    def candidates(self, arena: Arena) -> list[NodeId]:
        """Of which it is one: the voters, unless a subclass says otherwise."""
        return arena.cluster.voter_ids

    async def stop(self, arena: Arena) -> None:
        """Let its start complete."""
        if self._victim is not None:
            await arena.start(self._victim)


class GracefulRestart(Nemesis):
    """SIGTERM: the node stops in its own order."""

    name = "graceful restart"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victim: NodeId | None = None

    async def start(self, arena: Arena) -> None:
        """Stop it."""
        self._victim = await self.choose(arena)
        await arena.terminate(self._victim)

    async def stop(self, arena: Arena) -> None:
        """Start it."""
        if self._victim is not None:
            await arena.start(self._victim)

    async def choose(self, arena: Arena) -> NodeId:
        """Any node."""
        return self.any_node(arena)


class ResignLeader(GracefulRestart):
    """The leader resigns in favor of its successors, as a leader does that is stopped with SIGTERM."""

    name = "resign the leader"

    async def choose(self, arena: Arena) -> NodeId:
        """The leader."""
        return await self.leader_or_any(arena)


class PauseOne(Nemesis):
    """SIGSTOP: the node is paused with all connections open, and continues later without noticing."""

    name = "pause one"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victim: NodeId | None = None

    async def start(self, arena: Arena) -> None:
        """Pause it; another node if it was killed meanwhile."""
        chosen = await self.choose(arena)
        running = [node_id for node_id in arena.cluster.node_ids if arena.cluster.is_running(node_id)]
        self._victim = chosen if chosen in running or not running else self.random.choice(running)
        arena.pause(self._victim)

    async def stop(self, arena: Arena) -> None:
        """Let it continue."""
        if self._victim is not None:
            arena.resume(self._victim)

    async def choose(self, arena: Arena) -> NodeId:
        """Any node."""
        return self.any_node(arena)


class PauseLeader(PauseOne):
    """The leader is paused, and still believes that it leads when it continues."""

    name = "pause the leader"

    async def choose(self, arena: Arena) -> NodeId:
        """The leader."""
        return await self.leader_or_any(arena)


class Calm(Nemesis):
    """Nothing: the cluster gets time to show that it serves."""

    name = "calm"

    async def start(self, arena: Arena) -> None:
        """Nothing."""
