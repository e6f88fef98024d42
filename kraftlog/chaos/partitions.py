"""Faults of links and of a disk."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from itertools import product
from random import Random

from kraftbase.types import NodeId
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.nemesis import Nemesis

Link = tuple[NodeId, NodeId]


class Partition(Nemesis):
    """Cuts some links for a while."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._links: list[Link] = []

    async def start(self, arena: Arena) -> None:
        """Cut the links as quickly as possible after each other."""
        self._links = list(await self.choose(arena))
        arena.note(f"cut {self._links}")
        arena.counts["partitions"] += 1
        for source, target in self._links:
            await arena.cut(source, target)

    async def stop(self, arena: Arena) -> None:
        """Repair the links."""
        for source, target in self._links:
            await arena.mend(source, target)
        arena.note(f"mend {self._links}")

    @abstractmethod
    async def choose(self, arena: Arena) -> Iterable[Link]:
        """Return the links to cut."""


class IsolateOne(Partition):
    """Cuts one node off from all others, in both directions."""

    name = "isolate one"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """Choose all links of a node."""
        return between([self.any_node(arena)], arena.cluster.node_ids)


class IsolateLeader(Partition):
    """Cuts the leader off from all other nodes; clients still reach it."""

    name = "isolate the leader"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """Choose all links of the leader."""
        return between([await self.leader_or_any(arena)], arena.cluster.node_ids)


class Split(Partition):
    """Separates a minority of the voters from the majority; each observer is on one side or the other."""

    name = "split"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """Choose all links between the sides."""
        voter_ids = arena.cluster.voter_ids
        minority = self.random.sample(voter_ids, (len(voter_ids) - 1) // 2)
        observer_ids = [node_id for node_id in arena.cluster.node_ids if node_id not in voter_ids]
        side = [*minority, *(node_id for node_id in observer_ids if self.random.random() < 0.5)]
        return between(side, [node_id for node_id in arena.cluster.node_ids if node_id not in side])


class OneWayCut(Partition):
    """Cuts the link from one node to another; the other direction works."""

    name = "one-way cut"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """Choose one link between voters, in one direction."""
        source, target = self.random.sample(arena.cluster.voter_ids, 2)
        return [(source, target)]


class SlowLink(Nemesis):
    """Slows down everything that a node sends and receives."""

    name = "slow link"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victim: NodeId | None = None

    async def start(self, arena: Arena) -> None:
        """Slow the node's links down."""
        self._victim = self.choose(arena)
        await arena.slow(self._victim)

    async def stop(self, arena: Arena) -> None:
        """Undo the slowdown."""
        if self._victim is not None:
            await arena.restore(self._victim)

    def choose(self, arena: Arena) -> NodeId:
        """Choose any node."""
        return self.any_node(arena)


class FillDisk(Nemesis):
    """Fills the disk of one voter."""

    name = "fill the disk"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victim: NodeId | None = None

    async def start(self, arena: Arena) -> None:
        """Fill the disk."""
        candidates = self.candidates(arena)
        if candidates:
            self._victim = self.random.choice(candidates)
            await arena.fill_disk(self._victim)

    async def stop(self, arena: Arena) -> None:
        """Free the disk."""
        if self._victim is not None:
            await arena.free_disk(self._victim)

    def candidates(self, arena: Arena) -> list[NodeId]:
        """Return the nodes whose disk may be filled."""
        return [node_id for node_id in arena.disks if node_id in arena.cluster.voter_ids]


def between(side: Iterable[NodeId], others: Iterable[NodeId]) -> list[Link]:
    """Return all links between the nodes of two groups, in both directions; a node has no link to itself."""
    pairs = [(one, other) for one, other in product(side, others) if one != other]
    return pairs + [(other, one) for one, other in pairs]
