"""A directory of the version before starts, serves and can be looked at; a quorum may be of both versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient, Alteration
from kraftlog.local.cluster import LocalCluster, start_command
from kraftlog.local.consistency_check import node_counts
from tests.kraftlog.command_line import Run, run
from tests.statemachine.builders import TOPIC
from tests.statemachine.waiting import until
from tests.upgrade.old_version import NODE_IDS, OLD_TOPICS, old_code, old_directory, start_command_of

__all__ = ["run"]
pytestmark = pytest.mark.process


@pytest.mark.parametrize("node_id", NODE_IDS)
def test_files_of_the_version_before_can_be_looked_at(tmp_path: Path, run: Run, node_id: int) -> None:
    data = old_directory(tmp_path).data_path(NodeId(node_id))
    assert run("verify", data).code == 0
    frames = [json.loads(line) for line in run("dump-log", data, "--decode").lines()]
    assert all(name in json.dumps(frames) for name in OLD_TOPICS)


def test_a_snapshot_of_the_version_before_can_be_looked_at(tmp_path: Path, run: Run) -> None:
    (snapshot,) = (old_directory(tmp_path).data_path(NodeId(1)) / "snapshots").glob("*.checkpoint")
    assert run("snapshot", "verify", snapshot).code == 0
    assert run("shell", "--snapshot", snapshot, "ls", "/topics").lines() == ["orders", "payments"]


async def test_a_directory_of_the_version_before_starts_and_serves(tmp_path: Path) -> None:
    cluster = LocalCluster(old_directory(tmp_path))
    async with cluster.running():
        await cluster.wait_until_applied(await _set_retention(cluster, 1))
        await _agree(cluster, retention_ms=1)
        async with AdminClient(cluster.bootstrap_servers) as client:
            described = await client.describe_topics()
    assert {topic.name: len(topic.partitions) for topic in described.topics} == OLD_TOPICS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("hand_overs", [1, pytest.param(2, marks=pytest.mark.slow)])
async def test_a_quorum_is_upgraded_node_by_node(tmp_path: Path, hand_overs: int) -> None:
    """At each step nodes of both versions run; whoever leads hands over, so that each version leads some.

    With one, the leader hands over at every other step.
    """
    directory = old_directory(tmp_path)
    old = start_command_of(old_code(tmp_path / "old-code"))
    are_new: set[str] = set()
    cluster = LocalCluster(directory, lambda path: start_command(path) if path.name in are_new else [*old, str(path)])
    retention_ms = 0
    async with cluster.running():
        for step, node_id in enumerate(cluster.node_ids):
            await cluster.stop([node_id])
            are_new.add(directory.config_path(node_id).name)
            await cluster.start([node_id])
            for _ in range(0 if hand_overs == 1 and step % 2 else hand_overs):
                leader_id = await cluster.wait_for_leader()
                retention_ms += 1
                await cluster.wait_until_applied(await _set_retention(cluster, retention_ms))
                await cluster.stop([leader_id])
                await cluster.wait_for_leader()
                await cluster.start([leader_id])
        retention_ms += 1
        await cluster.wait_until_applied(await _set_retention(cluster, retention_ms))
        await _agree(cluster, retention_ms)


async def _set_retention(cluster: LocalCluster, retention_ms: int) -> int:
    async with AdminClient(cluster.bootstrap_servers) as client:
        await client.alter_configs([Alteration(TOPIC, "orders", "retention.ms", str(retention_ms))])
        return client.last_end_offset


async def _agree(cluster: LocalCluster, retention_ms: int) -> None:
    """Every node has the same, and the last thing that was acknowledged."""
    paths = [cluster.directory.data_path(node_id) for node_id in cluster.node_ids]
    await until(lambda: len({node_counts(path) for path in paths}) == 1)  # a controller registers meanwhile
    for node_id in cluster.node_ids:
        async with AdminClient([cluster.endpoint(node_id)]) as client:
            answer = await client.query("SELECT value FROM configs WHERE name = 'retention.ms'")
            assert [list(row) for row in answer.rows] == [[str(retention_ms)]], node_id
