"""A cluster that is restored from a snapshot: the old one's metadata, offsets that continue, and no old node in it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.admin.client.connection import describe_node
from kraftlog.config.config import render_config
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import free_endpoints, open_or_create
from kraftlog.offline.restore import EPOCH_JUMP
from kraftpb.v1 import common_pb2, log_pb2, quorum_pb2, quorum_pb2_grpc
from raft.core.types import OffsetAndEpoch
from snapshot.names import snapshot_name
from tests.kraftlog.command_line import Run, command, environment, kraftlog, running_brokers
from tests.process.conftest import addresses, running

pytestmark = pytest.mark.process

QUESTIONS = (
    ("topics", "describe"),
    ("brokers", "list"),
    ("configs", "describe", "--entity-type", "brokers", "--entity-name", "1"),
    ("configs", "describe", "--entity-type", "brokers", "--entity-name", ""),
)


class Old(NamedTuple):
    """A cluster that was stopped, and what there is of it."""

    cluster: LocalCluster
    snapshot: Path
    snapshot_id: OffsetAndEpoch
    answers: list[Any]


def answers(run: Run, cluster: LocalCluster) -> list[Any]:
    at = ("--bootstrap-server", addresses(cluster), "--output", "json")
    return [run(*question, *at).json() for question in QUESTIONS]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Old:
    """Topics, some deleted, brokers that have shut down, one registered twice, and configs; a snapshot, and more."""
    tmp_path, run = tmp_path_factory.mktemp("old"), kraftlog
    cluster = LocalCluster(open_or_create(tmp_path / "old", voters=3))
    with running(cluster):
        at = ("--bootstrap-server", addresses(cluster))
        with running_brokers(addresses(cluster), 1, options=("--rack", "r")):
            pass
        with running_brokers(addresses(cluster), 1, 2, 3, options=("--rack", "r")):
            for name in ("orders", "gone", "payments"):
                of_three = ("--partitions", 3, "--replication-factor", 3, "--config", "retention.ms=5")
                assert run("topics", "create", name, *at, *of_three).code == 0
            assert run("topics", "delete", "gone", *at).code == 0
        for name in ("1", ""):
            change = (
                "--entity-type",
                "brokers",
                "--entity-name",
                name,
                "--add-config",
                f"background.threads={len(name) + 2}",
            )
            assert run("configs", "alter", *at, *change).code == 0
        created = run("snapshot", "create", *at, "--output", "json").json()
        saved = run("snapshot", "save", *at, "--to", tmp_path, "--output", "json").json()
        assert saved["EndOffset"] == created["EndOffset"]
        found = answers(run, cluster)
        later = ("--entity-type", "brokers", "--entity-name", "", "--add-config", "background.threads=9")
        assert run("configs", "alter", *at, *later).code == 0
    snapshot_id = OffsetAndEpoch(epoch=Epoch(saved["Epoch"]), offset=Offset(saved["EndOffset"]))
    return Old(cluster, Path(saved["Path"]), snapshot_id, found)


def status(run: Run, cluster: LocalCluster) -> dict[str, Any]:
    at = ("--bootstrap-server", addresses(cluster), "--output", "json")
    found: dict[str, Any] = run("quorum", "describe", "--status", *at).json()
    return found


def restored(run: Run, old: Old, path: Path, *options: object) -> LocalCluster:
    """Not started yet."""
    said = run("restore", "--snapshot", old.snapshot, "--dir", path, *options, "--output", "json").json()
    cluster = LocalCluster(open_or_create(path))
    assert (said["ClusterId"], said["FromClusterId"]) == (cluster.cluster_id, old.cluster.cluster_id)
    assert cluster.cluster_id != old.cluster.cluster_id
    assert (said["EndOffset"], said["Epoch"]) == (old.snapshot_id.offset, old.snapshot_id.epoch + EPOCH_JUMP)
    return cluster


def new_snapshot_name(old: Old) -> str:
    return snapshot_name(OffsetAndEpoch(epoch=Epoch(old.snapshot_id.epoch + EPOCH_JUMP), offset=old.snapshot_id.offset))


def test_a_restored_cluster_has_the_metadata_and_goes_on(run: Run, old: Old, tmp_path: Path) -> None:
    cluster = restored(run, old, tmp_path / "new", "--voters", 3)
    with running(cluster):
        asyncio.run(cluster.wait_until_applied(old.snapshot_id.offset + 1))
        assert answers(run, cluster) == old.answers
        assert [topic["Topic"] for topic in old.answers[0]] == ["orders", "payments"]
        before = status(run, cluster)
        assert before["ClusterId"] == cluster.cluster_id
        assert before["LeaderEpoch"] > old.snapshot_id.epoch + EPOCH_JUMP
        assert before["HighWatermark"] > old.snapshot_id.offset
        described = [asyncio.run(cluster.describe(node_id)) for node_id in cluster.voter_ids]
        assert {node.log_start_offset for node in described} == {old.snapshot_id.offset}

        at = ("--bootstrap-server", addresses(cluster))
        registered = run("brokers", "register", *at, "--id", 4, "--endpoint", "PLAINTEXT://localhost:9099").lines()
        broker_epoch = int(registered[0].partition(" with epoch ")[2].partition(";")[0])
        assert broker_epoch > max(broker["BrokerEpoch"] for broker in old.answers[1])
        assert broker_epoch > old.snapshot_id.offset
        with running_brokers(addresses(cluster), 1, 2, 3):
            assert run("topics", "create", "new", *at, "--replication-factor", 3).code == 0
            assert run("topics", "delete", "orders", *at).code == 0
            assert run("topics", "create", "payments", *at).is_error(ErrorCode.TOPIC_ALREADY_EXISTS, "payments")
        assert run("snapshot", "create", *at).code == 0
        asyncio.run(cluster.wait_until_applied(status(run, cluster)["HighWatermark"]))
        found = answers(run, cluster)
        assert sorted(topic["Topic"] for topic in found[0]) == ["new", "payments"]
        rows = run("quorum", "describe", "--replication", *at, "--output", "json").json()
        assert [row["Condition"] for row in rows] == ["", "", ""]
    for node_id in cluster.voter_ids:
        said = run("verify", cluster.directory.data_path(node_id))
        assert said.code == 0, said
    with running(cluster):  # and from its own database, log and snapshots
        assert answers(run, cluster) == found
        assert status(run, cluster)["LeaderEpoch"] > before["LeaderEpoch"]


def test_a_sole_voter_is_restored(run: Run, old: Old, tmp_path: Path) -> None:
    with running(restored(run, old, tmp_path / "new", "--voters", 1)) as cluster:
        assert answers(run, cluster) == old.answers


def write_config(path: Path, node_id: int, listener: Endpoint, voters: dict[int, Endpoint]) -> Path:
    voting = [f"{voter}@{endpoint}" for voter, endpoint in voters.items()]
    settings = {"node.id": node_id, "log.dir": f"node-{node_id}", "listeners": str(listener)}
    path.write_text(render_config({**settings, "controller.quorum.voters": voting}))
    return path


@contextmanager
def started(*configs: Path) -> Iterator[None]:
    """Nodes as `kraftlog start` runs them, which listen."""
    nodes = [
        subprocess.Popen(
            command("start", "--config", config),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(),
        )
        for config in configs
    ]
    try:
        for node in nodes:
            assert node.stdout is not None
            assert "listens on" in node.stdout.readline()
        yield
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait(30)
            if node.stdout is not None:
                node.stdout.close()


def test_nodes_are_restored_one_by_one_and_an_empty_observer_fetches_the_snapshot(
    run: Run, old: Old, tmp_path: Path
) -> None:
    endpoints = dict(zip((1, 2, 3, 9), free_endpoints(4), strict=True))
    voters = {node_id: endpoints[node_id] for node_id in (1, 2, 3)}
    configs = [
        write_config(tmp_path / f"node-{node_id}.toml", node_id, endpoints[node_id], voters) for node_id in endpoints
    ]
    (cluster_id,) = run("random-uuid").lines()
    for config in configs[:3]:
        new = ("--config", config, "--cluster-id", cluster_id)
        assert run("restore", "--snapshot", old.snapshot, *new).code == 0
    assert run("format", "--config", configs[3], "--cluster-id", cluster_id).code == 0
    with started(*configs):
        observer = asyncio.run(_applied(endpoints[9], old.snapshot_id.offset + 1))
        assert observer.log_start_offset == old.snapshot_id.offset
    copies = {(tmp_path / f"node-{node_id}" / "snapshots" / new_snapshot_name(old)).read_bytes() for node_id in (1, 9)}
    assert len(copies) == 1


async def _applied(endpoint: Endpoint, end_offset: int) -> log_pb2.DescribeNodeResponse:
    """What the node reports about itself when it has applied this much."""
    async with asyncio.timeout(100):
        while True:
            node = await describe_node(endpoint, timeout_seconds=10)
            if node.applied_end_offset >= end_offset:
                return node
            await asyncio.sleep(0.05)


def test_a_node_of_the_old_cluster_is_refused(run: Run, old: Old, tmp_path: Path) -> None:
    cluster = restored(run, old, tmp_path / "new", "--voters", 3)
    with running(cluster):
        before = status(run, cluster)
        leader_id = NodeId(before["LeaderId"])
        follower_id = max(set(cluster.voter_ids) - {leader_id})
        asyncio.run(cluster.stop([follower_id]))
        config = cluster.directory.config_path(follower_id)
        text = config.read_text()
        old_data = old.cluster.directory.data_path(follower_id)
        config.write_text(text.replace(f'log.dir = "node-{follower_id}"', f'log.dir = "{old_data}"'))
        try:
            with pytest.raises(ApiError) as refused:
                asyncio.run(cluster.start([follower_id]))
            assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
            answer = asyncio.run(_vote_for_an_old_node(cluster, leader_id, old))
            assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
            assert not answer.vote_granted
            with running_brokers(addresses(cluster), 1):
                assert run("topics", "create", "meanwhile", "--bootstrap-server", addresses(cluster)).code == 0
            during = status(run, cluster)
            assert (during["LeaderId"], during["LeaderEpoch"]) == (leader_id, before["LeaderEpoch"])
            node = asyncio.run(cluster.describe(follower_id))
            assert (node.cluster_id, node.current_leader.leader_epoch < EPOCH_JUMP) == (old.cluster.cluster_id, True)
        finally:
            asyncio.run(cluster.stop([follower_id]))
            config.write_text(text)
        asyncio.run(cluster.start([follower_id]))
        asyncio.run(cluster.wait_until_applied(status(run, cluster)["HighWatermark"]))


async def _vote_for_an_old_node(cluster: LocalCluster, asked: NodeId, old: Old) -> quorum_pb2.VoteResponse:
    """What a node of the new cluster answers to a candidate of the old one in a later epoch."""
    async with grpc.aio.insecure_channel(str(cluster.endpoint(asked))) as channel:
        stub = quorum_pb2_grpc.QuorumServiceStub(channel)
        return await stub.Vote(
            quorum_pb2.VoteRequest(
                cluster_id=old.cluster.cluster_id,
                voter_key=common_pb2.ReplicaKey(node_id=asked),
                replica_key=common_pb2.ReplicaKey(node_id=1 if asked != 1 else 2),
                replica_epoch=3 * EPOCH_JUMP,
                last_offset_epoch=3 * EPOCH_JUMP - 1,
                last_offset=10**9,
            ),
            timeout=10,
        )
