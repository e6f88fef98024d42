"""The examples do what they say."""

from __future__ import annotations

import asyncio
from pathlib import Path

from examples.audit import AuditListener
from examples.counter import count
from kraftpb.v1 import metadata_pb2
from raft.observe import observe
from tests.raft.nodes import running_cluster


async def test_every_nodes_counter_ends_at_the_same_value(tmp_path: Path) -> None:
    assert await count(tmp_path, [5, 7, 30]) == [42, 42, 42]


async def test_the_audit_listener_writes_a_line_for_every_record(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        leader = await cluster.leader()
        topic = metadata_pb2.TopicRecord(name="orders", topic_id=bytes(16))
        record = metadata_pb2.MetadataRecord(topic=topic)
        last_offset = await leader.append([record.SerializeToString()])
        lines: list[str] = []
        address = str(cluster.nodes[1].identity.endpoint)
        async with asyncio.timeout(20):
            await observe(address, AuditListener(lines.append), end_offset=last_offset + 1)
        [line] = [line for line in lines if "orders" in line]
        assert f"offset={last_offset}" in line
        assert " topic " in line
