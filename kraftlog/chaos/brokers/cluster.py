"""Voters and data brokers as one cluster: faults treat a broker as one more node."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

from kraftbase.checks import check
from kraftbase.errors import ApiError
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.chaos.arena import Arena
from kraftlog.local.brokers import BrokerDied, LocalBrokers
from kraftlog.local.cluster import Command, LocalCluster, NodeDied
from kraftlog.local.cluster_directory import ClusterDirectory
from statemachine.query.descriptions import PartitionDescription


class ClusterWithBrokers(LocalCluster):
    """The nodes of a directory and brokers, all by their ids. `client` belongs to the same event loop."""

    def __init__(
        self, directory: ClusterDirectory, command: Command, brokers: LocalBrokers, client: AdminClient
    ) -> None:
        super().__init__(directory, command)
        self.brokers = brokers
        self.client = client
        self.broker_ids = [NodeId(broker_id) for broker_id in brokers.broker_ids]

    @property
    def node_ids(self) -> list[NodeId]:
        """All nodes, then all brokers."""
        return super().node_ids + self.broker_ids

    def log_path(self, node_id: NodeId) -> Path:
        """The file with its log lines."""
        return self.brokers.log_path(node_id) if self._is_broker(node_id) else super().log_path(node_id)

    def is_running(self, node_id: NodeId) -> bool:
        """Whether its process runs."""
        return self.brokers.is_running(node_id) if self._is_broker(node_id) else super().is_running(node_id)

    def pid(self, node_id: NodeId) -> int:
        """The id of its process."""
        return self.brokers.pid(node_id) if self._is_broker(node_id) else super().pid(node_id)

    async def start(self, node_ids: Iterable[NodeId] | None = None) -> None:
        """Start nodes, then brokers; wait until nodes answer and brokers are unfenced. Raises NodeDied, ApiError."""
        nodes, brokers = self._parted(node_ids)
        if nodes:
            await super().start(nodes)
        if brokers:
            try:
                await self.brokers.start(brokers)
            except BrokerDied as death:
                raise NodeDied(death.code, str(death)) from None

    async def kill(self, node_id: NodeId, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal that ends the process of a node or broker, and wait for its end."""
        if self._is_broker(node_id):
            await self.brokers.kill(node_id, number)
        else:
            await super().kill(node_id, number)

    def send_signal(self, node_id: NodeId, number: signal.Signals) -> None:
        """Send a signal to the process of a node or broker."""
        if self._is_broker(node_id):
            self.brokers.send_signal(node_id, number)
        else:
            super().send_signal(node_id, number)

    async def stop(self, node_ids: Iterable[NodeId] | None = None) -> None:
        """Stop brokers, each with a controlled shutdown, then nodes."""
        nodes, brokers = self._parted(node_ids)
        if brokers:
            await self.brokers.stop(brokers)
        if nodes:
            await super().stop(nodes)

    async def answers(self, node_id: NodeId) -> bool:
        """Whether a node answers, or a broker is unfenced."""
        if not self._is_broker(node_id):
            return await super().answers(node_id)
        with suppress(ApiError):
            return await self.brokers.is_up(node_id)
        return False

    async def partitions(self) -> dict[str, tuple[PartitionDescription, ...]]:
        """Return the partitions of every topic. Raises ApiError."""
        listed = await self.client.list_topics()
        described = await self.client.describe_topics([topic.name for topic in listed.topics])
        return {topic.name: topic.partitions for topic in described.topics}

    async def leading_broker(self, random: Random) -> NodeId:
        """Return a broker that leads a partition; any broker if no leader is found."""
        fallback = random.choice(self.broker_ids)
        leaders: list[int] = []
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                leaders = [part.leader for parts in (await self.partitions()).values() for part in parts]
        led = [NodeId(leader) for leader in leaders if leader >= 0]
        return random.choice(led) if led else fallback

    def _is_broker(self, node_id: NodeId) -> bool:
        return node_id in self.broker_ids

    def _parted(self, node_ids: Iterable[NodeId] | None) -> tuple[list[NodeId], list[NodeId]]:
        wanted = self.node_ids if node_ids is None else list(node_ids)
        nodes = [node_id for node_id in wanted if not self._is_broker(node_id)]
        return nodes, [node_id for node_id in wanted if self._is_broker(node_id)]


LOOK_SECONDS = 2.0
"""How long a fault looks for a partition's leader."""


def with_brokers(arena: Arena) -> ClusterWithBrokers:
    """Return the cluster of an arena, which must have brokers."""
    check(isinstance(arena.cluster, ClusterWithBrokers), "faults of brokers need a cluster with brokers")
    return arena.cluster  # type: ignore[return-value]
