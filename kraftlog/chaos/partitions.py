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
    """Some links carry nothing for a while."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._links: list[Link] = []

    async def start(self, arena: Arena) -> None:
        """Cut them, as nearly at once as can be."""
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
        """Which."""


class IsolateOne(Partition):
    """One node is cut off from all others, in both directions."""

    name = "isolate one"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """All its links."""
        return between([self.any_node(arena)], arena.cluster.node_ids)


class IsolateLeader(Partition):
    """The leader is alone, and still answers clients."""

    name = "isolate the leader"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """All its links."""
        return between([await self.leader_or_any(arena)], arena.cluster.node_ids)


class Split(Partition):
    """A minority of the voters is separated from the majority; each observer is on one side or the other."""

    name = "split"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """Everything between the sides."""
        voter_ids = arena.cluster.voter_ids
        minority = self.random.sample(voter_ids, (len(voter_ids) - 1) // 2)
        observer_ids = [node_id for node_id in arena.cluster.node_ids if node_id not in voter_ids]
        side = [*minority, *(node_id for node_id in observer_ids if self.random.random() < 0.5)]
        return between(side, [node_id for node_id in arena.cluster.node_ids if node_id not in side])


class OneWayCut(Partition):
    """What one node sends to another is lost; the other direction works."""

    name = "one-way cut"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """One link between voters, one way."""
        source, target = self.random.sample(arena.cluster.voter_ids, 2)
        return [(source, target)]


class SlowLink(Nemesis):
    """Everything that a node sends and receives takes longer."""

    name = "slow link"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victim: NodeId | None = None

    async def start(self, arena: Arena) -> None:
        """Slow it down."""
        self._victim = self.choose(arena)
        await arena.slow(self._victim)

    async def stop(self, arena: Arena) -> None:
        """As before."""
        if self._victim is not None:
            await arena.restore(self._victim)

    def choose(self, arena: Arena) -> NodeId:
        """Whose: any node's."""
        return self.any_node(arena)


class FillDisk(Nemesis):
    """There is no room left on the disk of one voter."""

    name = "fill the disk"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._victim: NodeId | None = None

    async def start(self, arena: Arena) -> None:
        """Fill it."""
        candidates = self.candidates(arena)
        if candidates:
            self._victim = self.random.choice(candidates)
            await arena.fill_disk(self._victim)

    async def stop(self, arena: Arena) -> None:
        """Free it."""
        if self._victim is not None:
            await arena.free_disk(self._victim)

    def candidates(self, arena: Arena) -> list[NodeId]:
        """Whose disk may be filled."""
        return [node_id for node_id in arena.disks if node_id in arena.cluster.voter_ids]


def between(side: Iterable[NodeId], others: Iterable[NodeId]) -> list[Link]:
    """All links between the nodes of two groups, in both directions; a node has none to itself."""
    pairs = [(one, other) for one, other in product(side, others) if one != other]
    return pairs + [(other, one) for one, other in pairs]
