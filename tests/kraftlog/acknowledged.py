"""What whole nodes have acknowledged, and whether they still hold it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from kraftbase.errors import ApiError
from kraftlog.admin.client.client import AdminClient
from kraftlog.commands import cluster_admin
from raft.node import Node
from tests.kraftlog.whole_nodes import WholeNodes
from tests.raft.nodes import PATIENT
from tests.statemachine.waiting import until

WAIT_SECONDS = 60
PAUSE_SECONDS = 0.1
"""Between two questions, each of which takes all nodes some time."""


class AcknowledgingNodes(WholeNodes):
    """Three voters, maybe an observer, and the quotas that they have acknowledged; each is of a user of its own."""

    def __init__(self, base: Path) -> None:
        super().__init__(base, voter_count=3)
        self.nodes: dict[int, Node] = {}
        self.acknowledged: set[str] = set()
        self.settings: dict[str, Any] = {"quorum": PATIENT}
        """Fields of every node's configuration."""

    def path(self, node_id: int) -> Path:
        return self.base / f"node-{node_id}"

    async def up(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.nodes[node_id] = await self.start(node_id, **self.settings)

    async def down(self, *node_ids: int) -> None:
        for node_id in node_ids:
            del self.nodes[node_id]
            await self.stop(node_id)

    async def write(self, count: int) -> None:
        """Some more; each is acknowledged when this returns."""
        for _ in range(count):
            user = f"user-{len(self.acknowledged)}"
            async with asyncio.timeout(WAIT_SECONDS):
                while not await self._is_acknowledged(user):
                    await asyncio.sleep(PAUSE_SECONDS)  # no leader
            self.acknowledged.add(user)

    async def _is_acknowledged(self, user: str) -> bool:
        entity = cluster_admin.quota_entity({"user": user}, {})
        at = [self.endpoints[node_id] for node_id in self.nodes]
        try:
            await cluster_admin.alter_client_quotas(
                at, cluster_admin.quota_alterations(entity, ["producer_byte_rate=5"], [])
            )
        except ApiError:
            return False
        return True

    async def held_by(self, node_id: int) -> set[str]:
        """The users whose quotas a node shows."""
        async with AdminClient([self.endpoints[node_id]]) as client:
            described = await client.describe_client_quotas()
        return {str(part.entity_name) for quota in described.quotas for part in quota.entity}

    async def all_hold_what_was_acknowledged(self) -> None:
        """Wait until every node that is up does."""
        async with asyncio.timeout(WAIT_SECONDS):
            for node_id in self.nodes:
                while True:
                    try:
                        if await self.held_by(node_id) == self.acknowledged:
                            break
                    except ApiError:
                        pass  # it does not answer yet
                    await asyncio.sleep(PAUSE_SECONDS)

    async def led(self) -> int:
        """The id of the leader, once there is one."""
        await until(lambda: self._leader() is not None, WAIT_SECONDS)
        leader = self._leader()
        assert leader is not None
        return leader

    def _leader(self) -> int | None:
        return next((node_id for node_id, node in self.nodes.items() if node.replica.is_leader), None)


def copied(source: Path, target: Path) -> Path:
    """A copy of a file or directory, in the place of whatever is there."""
    gone(target)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)
    return target


def gone(path: Path) -> None:
    """Take a file or directory away, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
