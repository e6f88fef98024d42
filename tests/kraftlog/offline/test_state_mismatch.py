"""Three nodes, one of which applies a record wrongly: it is found, fenced and shown, and right after its restart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import NodeId
from kraftbase.uuids import random_cluster_id
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.connection import describe_quorum
from kraftlog.admin.client.operation_stream import OutcomeUnknown
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.commands.quorum import replication
from kraftlog.config.config import NodeConfig
from kraftlog.process.server import running_node
from raft.listener import CommittedBatch
from raft.storage.directory import DataDirectory
from statemachine.store.metadata_tables import STATE_DIGEST_INTERVAL_OFFSETS, MetadataTables, PreparedRun
from tests.raft.nodes import CALM, free_port
from tests.statemachine.builders import WithoutRecords, creatable
from tests.statemachine.builders import create as create_topics

NODE_IDS = (1, 2, 3)


class Nodes:
    """Nodes 1 to 3 on this loop, as `kraftlog start` runs them. `careless` ones pass over the records that they get."""

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.base = base
        self.careless: set[int] = set()
        self.endpoints = {node_id: Endpoint("127.0.0.1", free_port()) for node_id in NODE_IDS}
        self.cluster_id = random_cluster_id()
        self._stacks: dict[int, contextlib.AsyncExitStack] = {}
        prepared = MetadataTables._prepared

        def careless(tables: MetadataTables, batches: Iterable[CommittedBatch], rows_max: int | None) -> PreparedRun:
            if any(f"node-{node_id}/" in tables._name for node_id in self.careless):
                batches = [WithoutRecords(batch) for batch in batches]  # type: ignore[misc]
            return prepared(tables, batches, rows_max)

        monkeypatch.setattr(MetadataTables, "_prepared", careless)

    async def start(self, node_id: int) -> None:
        directory = self.base / f"node-{node_id}"
        DataDirectory.format(
            PosixFileSystem(),
            str(directory),
            cluster_id=self.cluster_id,
            node_id=NodeId(node_id),
            ignore_formatted=True,
        )
        config = NodeConfig(
            node_id=NodeId(node_id),
            directory=directory,
            listener=self.endpoints[node_id],
            voters=tuple((NodeId(voter_id), endpoint) for voter_id, endpoint in self.endpoints.items()),
            quorum=CALM,
        )
        stack = self._stacks[node_id] = contextlib.AsyncExitStack()
        await stack.enter_async_context(running_node(config))

    async def stop(self, node_id: int) -> None:
        await self._stacks.pop(node_id).aclose()

    async def close(self) -> None:
        for node_id in list(self._stacks):
            await self.stop(node_id)

    async def rows(self) -> dict[int, dict[str, Any]]:
        """What `quorum describe --replication` shows, by node."""
        response = await describe_quorum(list(self.endpoints.values()))
        return {row["NodeId"]: row for row in replication(response)}

    async def shows(self, node_id: int, condition: str) -> dict[int, dict[str, Any]]:
        async with asyncio.timeout(100):
            while (rows := await self.rows())[node_id]["Condition"] != condition:
                await asyncio.sleep(0.01)
        return rows

    async def leader(self) -> int:
        return next(node_id for node_id, row in (await self.rows()).items() if row["Status"] == "Leader")

    async def topics(self, node_id: int, min_applied_end_offset: int = 0) -> list[str]:
        async with AdminClient([self.endpoints[node_id]]) as client:
            listed = await client.list_topics(min_applied_end_offset=min_applied_end_offset)
            return [topic.name for topic in listed.topics]

    async def refuses(self, node_id: int) -> None:
        """Return when that node has heard that it must not be believed, and answers so."""
        async with asyncio.timeout(100):
            while True:
                try:
                    await self.topics(node_id)
                except ApiError as refused:
                    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
                    assert "differs from the quorum's at offset" in str(refused)
                    return


@contextlib.asynccontextmanager
async def running(base: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Nodes, AdminClient]]:
    nodes = Nodes(base, monkeypatch)
    try:
        for node_id in NODE_IDS:
            await nodes.start(node_id)
        async with AdminClient(list(nodes.endpoints.values())) as client, living_brokers(client, [1]):
            yield nodes, client
    finally:
        await nodes.close()


async def pass_over_a_topic(nodes: Nodes, client: AdminClient, careless: int) -> None:
    """Create topic "lost", of which node `careless` knows nothing, and continue to where digests are compared."""
    nodes.careless.add(careless)
    end_offset = await create(client, "lost", 1)
    for node_id in NODE_IDS:
        await nodes.topics(node_id, end_offset)  # all have applied it, each in its way
    nodes.careless.clear()
    # A leader that finds out by its own transaction has resigned before it answers.
    with contextlib.suppress(OutcomeUnknown):
        await create(client, "large", STATE_DIGEST_INTERVAL_OFFSETS)


async def create(client: AdminClient, name: str, partitions: int) -> int:
    result = await client.execute(create_topics(creatable(name, partitions)))
    assert not result.error_code, result
    return int(result.end_offset)


async def test_kafka_14275_a_follower_that_passed_over_a_record_is_fenced_and_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as (nodes, client):
        leader = await nodes.leader()
        victim = next(node_id for node_id in NODE_IDS if node_id != leader)
        await pass_over_a_topic(nodes, client, victim)
        rows = await nodes.shows(victim, "diverged")
        assert [row["Condition"] for row in rows.values()].count("") == 2
        await nodes.refuses(victim)
        await nodes.stop(victim)
        await nodes.start(victim)
        assert (tmp_path / f"node-{victim}" / "metadata.db.damaged").exists()
        await nodes.shows(victim, "")
        end_offset = await create(client, "after", 1)
        assert await nodes.topics(victim, end_offset) == ["after", "large", "lost"]


async def test_kafka_14275_a_leader_that_passed_over_a_record_hands_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as (nodes, client):
        victim = await nodes.leader()
        await pass_over_a_topic(nodes, client, victim)
        rows = await nodes.shows(victim, "diverged")
        assert rows[victim]["Status"] == "Follower"
        end_offset = await create(client, "after", 1)
        for node_id in NODE_IDS:
            if node_id != victim:
                assert await nodes.topics(node_id, end_offset) == ["after", "large", "lost"]
        await nodes.refuses(victim)


async def test_nodes_that_agree_are_not_fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, monkeypatch) as (nodes, client):
        for name in ("one", "two", "three"):
            end_offset = await create(client, name, STATE_DIGEST_INTERVAL_OFFSETS)
        for node_id in NODE_IDS:
            assert len(await nodes.topics(node_id, end_offset)) == 3
        assert {row["Condition"] for row in (await nodes.rows()).values()} == {""}
