"""The faults of brokers. `kraftlog.chaos.nemesis` and `kraftlog.chaos.partitions` have the faults of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from kraftbase.errors import ApiError
from kraftbase.partition import TopicPartition
from kraftbase.types import NodeId
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.brokers.cluster import with_brokers
from kraftlog.chaos.brokers.evidence_faults import (
    ClogBroker,
    FillAcceptQueue,
    KillAndStart,
    RefuseForAMoment,
    ResetConnections,
    ShutDownAndStart,
)
from kraftlog.chaos.nemesis import (
    Calm,
    GracefulRestart,
    Kill,
    KillLeader,
    Nemesis,
    PauseLeader,
    PauseOne,
    RestartStorm,
)
from kraftlog.chaos.partitions import FillDisk, Link, Partition, SlowLink, between
from kraftlog.chaos.schedule import Kind
from statemachine.query.partition_descriptions import ElectionType


class KillBroker(Kill):
    """Kills any broker."""

    name = "kill a broker"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """Choose any broker."""
        return [self.random.choice(with_brokers(arena).broker_ids)]


class KillLeadingBroker(Kill):
    """Kills a broker that leads a partition."""

    name = "kill a leading broker"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """Choose a leading broker."""
        return [await with_brokers(arena).leading_broker(self.random)]


class KillAllButOne(Kill):
    """Kills every broker but one."""

    name = "kill all brokers but one"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """Choose all brokers but one."""
        broker_ids = with_brokers(arena).broker_ids
        return self.random.sample(broker_ids, len(broker_ids) - 1)


class KillAllBrokers(Kill):
    """Kills every broker."""

    name = "kill all brokers"

    async def choose(self, arena: Arena) -> list[NodeId]:
        """Choose all brokers."""
        return list(with_brokers(arena).broker_ids)


class BrokerStorm(RestartStorm):
    """Kills and starts the same broker again and again."""

    name = "restart storm of a broker"

    def candidates(self, arena: Arena) -> list[NodeId]:
        """Return the brokers."""
        return with_brokers(arena).broker_ids


class ShutDownBroker(GracefulRestart):
    """Controlled shutdown of a broker: its partitions get other leaders first."""

    name = "controlled shutdown"

    async def choose(self, arena: Arena) -> NodeId:
        """Choose a leading broker."""
        return await with_brokers(arena).leading_broker(self.random)


class PauseBroker(PauseOne):
    """Pauses a broker: a follower that leaders wait for, or a leader that does not know that it has been replaced."""

    name = "pause a broker"

    async def choose(self, arena: Arena) -> NodeId:
        """Choose any broker."""
        return self.random.choice(with_brokers(arena).broker_ids)


class PauseLeadingBroker(PauseOne):
    """Pauses a leading broker."""

    name = "pause a leading broker"

    async def choose(self, arena: Arena) -> NodeId:
        """Choose a leading broker."""
        return await with_brokers(arena).leading_broker(self.random)


class IsolateBroker(Partition):
    """Cuts a broker off from all other brokers and all nodes; clients still reach it."""

    name = "isolate a broker"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """Choose all links of a leading broker."""
        return between([await with_brokers(arena).leading_broker(self.random)], arena.cluster.node_ids)


class CutFromControllers(Partition):
    """Cuts a leading broker off from the controllers, but not from followers and clients: it is fenced unknowingly."""

    name = "cut a broker from the controllers"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """Choose the broker's links to the voters."""
        return between([await with_brokers(arena).leading_broker(self.random)], arena.cluster.voter_ids)


class CutFollowers(Partition):
    """Cuts the links between two brokers, one way or both; the controllers still reach them."""

    name = "cut between brokers"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """Choose links between two brokers."""
        one, other = self.random.sample(with_brokers(arena).broker_ids, 2)
        return [(one, other)] if self.random.random() < 0.5 else between([one], [other])


class CutOffNode(Partition):
    """Cuts a node that does not lead off from the other nodes. Brokers that follow it must switch to another node."""

    name = "cut a node from the others"

    async def choose(self, arena: Arena) -> Iterable[Link]:
        """Choose the node's links to the other voters."""
        leader = await arena.leader()
        followers = [node_id for node_id in arena.cluster.voter_ids if node_id != leader]
        return between([self.random.choice(followers)], arena.cluster.voter_ids)


class FillBrokerDisk(FillDisk):
    """Fills the disk of a broker."""

    name = "fill the disk of a broker"

    def candidates(self, arena: Arena) -> list[NodeId]:
        """Return the broker with a small disk."""
        return [node_id for node_id in arena.disks if node_id in with_brokers(arena).broker_ids]


class FillNodeDisk(FillDisk):
    """Fills the disk of a node: brokers that follow it must switch to another node."""

    name = "fill the disk of a node"


class ElectPreferred(Nemesis):
    """A preferred election of every partition."""

    name = "preferred election"

    async def start(self, arena: Arena) -> None:
        """Request the election."""
        with suppress(ApiError):
            outcomes = await with_brokers(arena).client.elect_leaders(ElectionType.PREFERRED)
            arena.note(f"preferred election: {len(outcomes)} partitions")
            arena.counts["elections"] += 1


class Reassign(Nemesis):
    """Reassigns some partitions to other replicas, or to the same ones in another order."""

    name = "reassign"

    async def start(self, arena: Arena) -> None:
        """Request the reassignments."""
        cluster = with_brokers(arena)
        with suppress(ApiError):
            wanted = {
                TopicPartition(topic, of.partition_id): self.random.sample(
                    cluster.broker_ids, len(of.replicas) - len(of.adding_replicas)
                )
                for topic, partitions in (await cluster.partitions()).items()
                for of in partitions
                if self.random.random() < REASSIGNED_SHARE
            }
            outcomes = await cluster.client.alter_partition_reassignments(wanted)
            arena.note(f"reassign: {', '.join(f'{at.topic}-{at.partition_id} to {to}' for at, to in wanted.items())}")
            arena.counts["reassignments"] += sum(1 for outcome in outcomes if not outcome.code)


REASSIGNED_SHARE: Final = 0.4
"""The share of the partitions that one fault reassigns."""

PROCESS_KINDS: Final = (
    Kind(KillBroker, 5, (0.05, 0.6)),
    Kind(KillLeadingBroker, 6, (0.05, 0.6)),
    Kind(KillAllButOne, 3, (0.05, 1.0)),
    Kind(KillAllBrokers, 2, (0.05, 1.0)),
    Kind(BrokerStorm, 2, (0.05, 0.1)),
    Kind(ShutDownBroker, 2, (0.05, 1.0)),
    Kind(KillAndStart, 3, (0.05, 0.1)),
    Kind(ShutDownAndStart, 2, (0.05, 0.1)),
    Kind(KillLeader, 1, (0.05, 0.6)),
)
OTHER_KINDS: Final = (
    Kind(PauseBroker, 2, (0.1, 8.0)),
    Kind(PauseLeadingBroker, 2, (0.1, 8.0)),
    Kind(PauseLeader, 1, (0.1, 4.0)),
    Kind(IsolateBroker, 2, (0.5, 8.0)),
    Kind(CutFromControllers, 2, (0.5, 8.0)),
    Kind(CutFollowers, 3, (0.5, 8.0)),
    Kind(SlowLink, 1, (1.0, 6.0)),
    Kind(ClogBroker, 2, (1.0, 6.0)),
    Kind(FillAcceptQueue, 2, (0.3, 8.0)),
    Kind(ResetConnections, 2, (0.05, 1.0)),
    Kind(RefuseForAMoment, 4, (0.05, 1.0)),
    Kind(CutOffNode, 3, (1.0, 10.0)),
    Kind(FillBrokerDisk, 2, (1.0, 6.0)),
    Kind(FillNodeDisk, 2, (2.0, 10.0)),
    Kind(ElectPreferred, 2, (0.05, 0.5)),
    Kind(Reassign, 3, (0.05, 3.0)),
    Kind(Calm, 2, (5.0, 8.0)),
)
