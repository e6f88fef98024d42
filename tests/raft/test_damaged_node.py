"""A node whose log was damaged while it was down: fetched again from the others, refused without any."""

from __future__ import annotations

from pathlib import Path

import pytest

from raft.core.errors import CorruptLog
from raft.core.types import NodeId
from raft.storage.recovering import RECOVERING_NAME
from tests.raft.nodes import Cluster, running_cluster

RECORDS = [b"record %d" % number for number in range(20)]


async def append_all(cluster: Cluster) -> None:
    client = await cluster.leader()
    for record in RECORDS:
        await client.append([record])


def flip_a_byte(cluster: Cluster, node_id: int) -> Path:
    """A byte of a record in the middle of the log rots; returns the log's directory."""
    directory = cluster.base / f"node-{node_id}" / "log"
    (segment,) = directory.glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(RECORDS[5])] ^= 0xFF
    segment.write_bytes(data)
    return directory


async def test_a_damaged_voter_fetches_its_log_again_and_takes_part(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await append_all(cluster)
        for recorder in cluster.recorders.values():
            await recorder.has_records(len(RECORDS))
        leader_id = (await cluster.leader()).node_key.node_id
        damaged = next(node_id for node_id in cluster.nodes if node_id != leader_id)
        await cluster.stop(damaged)
        directory = flip_a_byte(cluster, damaged)
        await cluster.start(damaged)
        await cluster.recorders[damaged].has_records(len(RECORDS))
        assert cluster.recorders[damaged].records == RECORDS
        # Now its vote is needed: the third one goes, and the two must commit together.
        third = next(node_id for node_id in cluster.nodes if node_id not in (leader_id, damaged))
        await cluster.stop(third)
        client = await cluster.leader()
        await client.append([b"one more"])
        await cluster.recorders[damaged].has_records(len(RECORDS) + 1)
        assert not cluster.nodes[damaged].replica.is_recovering
        assert not (directory / RECOVERING_NAME).exists()
        await cluster.start(third)


async def test_a_damaged_sole_voter_does_not_start_and_changes_nothing(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await append_all(cluster)
        await cluster.stop(1)
        directory = flip_a_byte(cluster, 1)
        before = {path: path.read_bytes() for path in directory.iterdir()}
        with pytest.raises(CorruptLog, match="no other voter"):
            await cluster.start(NodeId(1))
        assert {path: path.read_bytes() for path in directory.iterdir()} == before
        del cluster._stacks[1]
