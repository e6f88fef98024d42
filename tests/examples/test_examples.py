"""The examples do what they say."""

from __future__ import annotations

import asyncio
from pathlib import Path

from examples.audit import AuditListener
from examples.counter import count
from examples.partition_moves import PartitionMoves, follow_metadata
from kraftbase.types import Offset
from kraftlog.admin.client.client import AdminClient
from kraftpb.v1 import metadata_pb2
from raft.observe import observe
from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.raft.nodes import running_cluster
from tests.statemachine.builders import assigned
from tests.statemachine.waiting import until


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
        async with asyncio.timeout(100):
            await observe(address, AuditListener(lines.append), end_offset=last_offset + 1)
        [line] = [line for line in lines if "orders" in line]
        assert f"offset={last_offset}" in line
        assert " topic " in line


async def test_a_line_tells_of_each_partition_that_moves_and_of_nothing_else(tmp_path: Path) -> None:
    directory, lines = tmp_path / "followed", list[str]()
    directory.mkdir()
    async with admin_cluster(tmp_path / "cluster") as cluster, AdminClient([cluster.endpoints[1]]) as client:
        for broker_id in (1, 2):
            epoch = await client.register_broker(broker_id, [("PLAINTEXT", "localhost", 9092)])
            await client.broker_heartbeat(broker_id, epoch, epoch + 1)
        await client.create_topics([assigned("orders", {0: [1, 2], 1: [2, 1]}), assigned("logs", {0: [2]})])

        async def follow_so_far() -> None:
            end_offset = Offset(await client.applied_end_offset())
            async with asyncio.timeout(100):
                address = str(cluster.endpoints[1])
                await follow_metadata(address, PartitionMoves(lines.append), directory, end_offset)

        await follow_so_far()
        assert lines == []
        await client.fence_broker(2)
        await until(lambda: cluster.nodes[1].store.applied_end_offset == cluster.nodes[1].node.replica.high_watermark)
        await follow_so_far()  # goes on where it ended
    assert sorted(lines) == ["logs-0: leader 2 -> none", "orders-1: leader 2 -> 1"]
