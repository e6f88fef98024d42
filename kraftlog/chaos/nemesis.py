"""The faults. Each has a name, breaks something when it starts, and repairs it when it stops.

A fault draws its target from its own random numbers when it starts, because the leader is known only then.
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
"""The time from the start of the process to the next kill, unless it answers first. A start takes about a second."""


class Nemesis(ABC):
    """One fault, used once."""

    name: ClassVar[str]

    def __init__(self, random: Random) -> None:
        self.random = random

    @abstractmethod
    async def start(self, arena: Arena) -> None:
        """Break something."""

    async def stop(self, arena: Arena) -> None:  # noqa: B027 (some need no repair)
        """Repair what this fault broke, and nothing that other faults broke."""

    def any_node(self, arena: Arena) -> NodeId:
        """Return any node, voter or observer."""
        return self.random.choice(arena.cluster.node_ids)

    async def leader_or_any(self, arena: Arena) -> NodeId:
        """Return the leader; any voter if no leader is found."""
        fallback = self.random.choice(arena.cluster.voter_ids)
        return await arena.leader() or fallback


class Kill(Nemesis):
    """Sends SIGKILL to some nodes at once, and starts them again at the end."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victims: list[NodeId] = []

    async def start(self, arena: Arena) -> None:
        """Kill the nodes."""
        self._victims = await self.choose(arena)
        await asyncio.gather(*(arena.kill(node_id) for node_id in self._victims))

    async def stop(self, arena: Arena) -> None:
        """Start the nodes."""
        await asyncio.gather(*(arena.start(node_id) for node_id in self._victims))

    @abstractmethod
    async def choose(self, arena: Arena) -> list[NodeId]:
        """Return the nodes to kill."""


class KillOne(Kill):
    """Kills any node."""

    name = "kill one"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """Choose any node."""
        return [self.any_node(arena)]


class LoseDatabase(KillOne):
    """Kills a node and removes its database: the node starts with its snapshots and its log."""

    name = "lose a database"

    async def start(self, arena: Arena) -> None:
        """Kill the node, and remove the files."""
        await super().start(arena)
        for node_id in self._victims:
            await arena.lose_database(node_id)


class KillLeader(Kill):
    """Kills the leader."""

    name = "kill the leader"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """Choose the leader."""
        return [await self.leader_or_any(arena)]


class KillMajority(Kill):
    """Kills a majority of the voters."""

    name = "kill a majority"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """Choose a majority of the voters."""
        voter_ids = arena.cluster.voter_ids
        return self.random.sample(voter_ids, len(voter_ids) // 2 + 1)


class KillAll(Kill):
    """Kills every node."""

    name = "kill all"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """Choose all nodes."""
        return list(arena.cluster.node_ids)


class RestartStorm(Nemesis):
    """Kills the same node again and again, during its start or as soon as it answers."""

    name = "restart storm"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victim: NodeId | None = None

    async def start(self, arena: Arena) -> None:
        """Kill and start the node five times."""
        self._victim = self.random.choice(self.candidates(arena))
        for _ in range(STORM_KILLS):
            await arena.kill(self._victim)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.random.uniform(*STORM_LIFE_SECONDS)):
                    await arena.start(self._victim)

    def candidates(self, arena: Arena) -> list[NodeId]:
        """Return the nodes to choose from: the voters, unless a subclass has others."""
        return arena.cluster.voter_ids

    async def stop(self, arena: Arena) -> None:
        """Wait until the node has started."""
        if self._victim is not None:
            await arena.start(self._victim)


class GracefulRestart(Nemesis):
    """Sends SIGTERM to a node, which shuts down gracefully, and starts it again."""

    name = "graceful restart"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victim: NodeId | None = None

    async def start(self, arena: Arena) -> None:
        """Stop the node."""
        self._victim = await self.choose(arena)
        await arena.terminate(self._victim)

    async def stop(self, arena: Arena) -> None:
        """Start the node."""
        if self._victim is not None:
            await arena.start(self._victim)

    async def choose(self, arena: Arena) -> NodeId:
        """Choose any node."""
        return self.any_node(arena)


class ResignLeader(GracefulRestart):
    """Sends SIGTERM to the leader, which resigns in favor of its successors."""

    name = "resign the leader"

    async def choose(self, arena: Arena) -> NodeId:
        """Choose the leader."""
        return await self.leader_or_any(arena)


class PauseOne(Nemesis):
    """Pauses a node with SIGSTOP. Its connections stay open, and it continues later without noticing."""

    name = "pause one"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victim: NodeId | None = None

    async def start(self, arena: Arena) -> None:
        """Pause the node; another one if it does not run."""
        chosen = await self.choose(arena)
        running = [node_id for node_id in arena.cluster.node_ids if arena.cluster.is_running(node_id)]
        self._victim = chosen if chosen in running or not running else self.random.choice(running)
        arena.pause(self._victim)

    async def stop(self, arena: Arena) -> None:
        """Let the node continue."""
        if self._victim is not None:
            arena.resume(self._victim)

    async def choose(self, arena: Arena) -> NodeId:
        """Choose any node."""
        return self.any_node(arena)


class PauseLeader(PauseOne):
    """Pauses the leader, which still believes that it leads when it continues."""

    name = "pause the leader"

    async def choose(self, arena: Arena) -> NodeId:
        """Choose the leader."""
        return await self.leader_or_any(arena)


class Calm(Nemesis):
    """No fault: the cluster gets time to show that it serves."""

    name = "calm"

    async def start(self, arena: Arena) -> None:
        """Does nothing."""
