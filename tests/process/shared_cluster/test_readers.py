"""Readers of a node whose process is stopped, and still has their connections: they go on at another one."""

from __future__ import annotations

import asyncio
import signal

import pytest

from kraftlog.admin.client.client import AdminClient
from kraftlog.local.cluster import LocalCluster
from raft import known_nodes
from raft.observe import watch
from raft.reader_contact import SILENCE_SECONDS
from statemachine.query.descriptions import NewTopic

pytestmark = pytest.mark.process


async def test_a_reader_of_a_stopped_node_goes_on_at_another_one(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_nodes.random, "randrange", lambda _: 0)
    leader = await cluster.wait_for_leader()
    first = min(set(cluster.voter_ids) - {leader})
    others = [cluster.endpoint(node_id) for node_id in cluster.voter_ids if node_id != first]
    stream = watch([cluster.endpoint(first)])
    async with AdminClient(others) as client:
        until_offset = (await client.list_topics()).applied_end_offset
        async for watched in stream:
            if watched.high_watermark >= until_offset:
                break
        cluster.send_signal(first, signal.SIGSTOP)
        try:
            created = await client.create_topics([NewTopic("seen-elsewhere", num_partitions=1, replication_factor=1)])
            assert created
            async with asyncio.timeout(10 * SILENCE_SECONDS):
                async for watched in stream:
                    if any(b"seen-elsewhere" in batch.data for batch in watched.batches):
                        break
        finally:
            cluster.send_signal(first, signal.SIGCONT)
            await stream.aclose()
        await client.delete_topics(["seen-elsewhere"])
