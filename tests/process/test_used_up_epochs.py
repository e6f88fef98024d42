"""A quorum whose epochs are used up elects no leader again, and `restore` makes a working one of its snapshot."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Epoch, NodeId
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from raft.core.election_state import ElectionState
from raft.storage.quorum_state import COPY_NAMES, QuorumStateStore, decode_copy
from tests.kraftlog.command_line import Run
from tests.process.conftest import addresses
from tests.statemachine.waiting import until

pytestmark = pytest.mark.process

LAST_EPOCH = 2**31 - 2
"""The last one that a leader can have."""


def stored_epoch(cluster: LocalCluster, node_id: NodeId) -> int:
    """By its files, which the node may be writing."""
    paths = [cluster.directory.data_path(node_id) / name for name in COPY_NAMES]
    copies = [decode_copy(path.read_bytes(), str(path)) for path in paths]
    return max(copy[1].epoch for copy in copies if copy is not None)


def use_up(cluster: LocalCluster, epoch: int) -> None:
    """What an attacker leaves who has claimed epochs for months: on every disk, hardly one before the last."""
    for node_id in cluster.voter_ids:
        with closing(QuorumStateStore(PosixFileSystem(), str(cluster.directory.data_path(node_id)))) as store:
            store.load()
            store.save(ElectionState(epoch=Epoch(epoch)))


async def create_topic(cluster: LocalCluster, name: str) -> None:
    async with AdminClient(cluster.bootstrap_servers) as client, living_brokers(client, (1,)):
        await client.create_topics([NewTopic(name, 1, 1)])


async def topics(cluster: LocalCluster) -> list[str]:
    """Those of any node: each has applied what the leader has committed."""
    await cluster.wait_until_level()
    async with AdminClient(cluster.bootstrap_servers) as client:
        return [topic.name for topic in (await client.list_topics()).topics]


def saved(run: Run, cluster: LocalCluster, path: Path) -> dict[str, Any]:
    at = ("--bootstrap-server", addresses(cluster), "--output", "json")
    assert run("snapshot", "create", *at).code == 0
    path.mkdir()
    found: dict[str, Any] = run("snapshot", "save", *at, "--to", path).json()
    return found


@pytest.mark.parametrize("snapshot_of_the_last_epoch", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_restore_is_the_way_out_of_used_up_epochs(
    run: Run, tmp_path: Path, snapshot_of_the_last_epoch: bool
) -> None:
    old = LocalCluster(open_or_create(tmp_path / "old", voters=3))
    async with old.running():
        await create_topic(old, "orders")
        snapshot = await asyncio.to_thread(saved, run, old, tmp_path / "before")
    use_up(old, LAST_EPOCH - 1)
    async with old.running():
        leader = await old.wait_for_leader()
        assert (await old.describe(leader)).current_leader.leader_epoch == LAST_EPOCH
        if snapshot_of_the_last_epoch:
            await create_topic(old, "payments")
            snapshot = await asyncio.to_thread(saved, run, old, tmp_path / "after")
            assert snapshot["Epoch"] == LAST_EPOCH
        await old.kill(leader)
        others = [node_id for node_id in old.voter_ids if node_id != leader]
        await until(lambda: any(stored_epoch(old, node_id) > LAST_EPOCH for node_id in others), 60)
        await old.start([leader])
        for node_id in old.voter_ids:
            node = await old.describe(node_id)
            assert node.current_leader.leader_epoch < 2**31 - 1 or node.current_leader.leader_id < 0
    new = tmp_path / "new"
    said = await asyncio.to_thread(run, "restore", "--snapshot", snapshot["Path"], "--dir", new, "--output", "json")
    assert said.json()["Epoch"] < 100_000
    restored = LocalCluster(open_or_create(new))
    async with restored.running():
        assert await topics(restored) == (["orders", "payments"] if snapshot_of_the_last_epoch else ["orders"])
        await create_topic(restored, "returns")
        await restored.kill(await restored.wait_for_leader())
        await restored.wait_for_leader()  # and it elects again
        assert "returns" in await topics(restored)
