"""A quorum whose voters have no directory ids gets them, node by node, without standing still (RF-80)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from raft.storage.directory import SNAPSHOTS_NAME
from snapshot.names import BOOTSTRAP_NAME
from tests.kraftlog.command_line import Run
from tests.process.conftest import addresses

pytestmark = pytest.mark.process

DESCRIBE_SECONDS = 60.0
"""However busy the machine, a node that runs has answered by then."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three voters that run."""
    cluster = LocalCluster(open_or_create(tmp_path / "cluster", voters=3))
    try:
        yield cluster
    finally:
        asyncio.run(cluster.stop())


def bootstrap_path(cluster: LocalCluster, node_id: int) -> Path:
    return cluster.directory.data_path(NodeId(node_id)) / SNAPSHOTS_NAME / BOOTSTRAP_NAME


def forget_directory_ids(cluster: LocalCluster) -> None:
    """Make the directories what they were before there were bootstrap checkpoints."""
    for node_id in cluster.node_ids:
        bootstrap_path(cluster, node_id).unlink()


def start(cluster: LocalCluster, *node_ids: int) -> None:
    asyncio.run(cluster.start([NodeId(node_id) for node_id in node_ids]))
    asyncio.run(cluster.wait_for_leader())


def kraft_version(run: Run, cluster: LocalCluster) -> int:
    said = run("quorum", "describe", "--status", "--bootstrap-server", addresses(cluster), "--output", "json").json()
    return int(said["KRaftVersion"])


def test_a_new_cluster_knows_its_voters_by_their_directories(run: Run, cluster: LocalCluster) -> None:
    start(cluster, 1, 2, 3)
    assert kraft_version(run, cluster) == 1
    assert len({bootstrap_path(cluster, node_id).read_bytes() for node_id in (1, 2, 3)}) == 1
    (shown,) = run("voters", "show", "--bootstrap-server", addresses(cluster)).lines()
    assert [part.partition("@")[0] for part in shown.split(",")] == ["1", "2", "3"]


def test_an_old_quorum_gets_directory_ids_node_by_node_and_takes_writes_all_the_while(
    run: Run, cluster: LocalCluster
) -> None:
    at = ("--bootstrap-server", addresses(cluster))
    forget_directory_ids(cluster)
    start(cluster, 1, 2, 3)
    assert kraft_version(run, cluster) == 0
    told = run("quorum", "describe", "--status", *at)
    assert "the voters have no directory ids" in told.errors
    (voters,) = run("voters", "show", *at).lines()
    for node_id in (1, 2, 3):
        config = cluster.directory.config_path(NodeId(node_id))
        change = ("voters", "set", "--config", config, "--initial-controllers", voters)
        assert run(*change).is_error(ErrorCode.KAFKA_STORAGE_ERROR, "in use")
        asyncio.run(cluster.stop([NodeId(node_id)]))
        run(*change).lines()
        start(cluster, node_id)
        run(
            "configs",
            "alter",
            *at,
            "--entity-type",
            "brokers",
            "--entity-name",
            "",
            "--add-config",
            f"message.max.bytes={node_id}000000",
        ).lines()
    assert kraft_version(run, cluster) == 1
    assert run("voters", "show", *at).lines() == [voters]


def test_a_voter_with_another_directory_does_not_vote(run: Run, cluster: LocalCluster) -> None:
    """Its log is gone; its configuration, and its own voter set, still name its node id.

    The leader is the one that is stopped. On a busy machine the other voter may have become the leader meanwhile: it
    leads on until its followers were silent for a fetch timeout.
    """
    data = cluster.directory.data_path(NodeId(3))
    data.rename(data.with_name("lost"))
    config = cluster.directory.config_path(NodeId(3))
    run("format", "--config", config, "--cluster-id", cluster.cluster_id).lines()
    bootstrap_path(cluster, 3).parent.mkdir()
    bootstrap_path(cluster, 3).write_bytes(bootstrap_path(cluster, 1).read_bytes())
    start(cluster, 1, 2, 3)
    described = ("quorum", "describe", "--replication", "--bootstrap-server", addresses(cluster), "--output", "json")
    rows = {(row["NodeId"], row["Status"]): row for row in run(*described).json()}
    assert rows[3, "Follower"]["LogEndOffset"] == -1
    asyncio.run(cluster.stop([asyncio.run(cluster.wait_for_leader())]))
    (remaining,) = {NodeId(1), NodeId(2)} & {node_id for node_id in cluster.node_ids if cluster.is_running(node_id)}
    while asyncio.run(cluster.describe(remaining, DESCRIBE_SECONDS)).role == "leader":
        time.sleep(0.05)
    with pytest.raises(ApiError, match="no voter leads"):
        asyncio.run(cluster.wait_for_leader(timeout_seconds=4))


def test_voters_that_do_not_fit_are_refused_and_nothing_changes(run: Run, cluster: LocalCluster) -> None:
    config = cluster.directory.config_path(NodeId(1))
    path = bootstrap_path(cluster, 1)
    before = path.read_bytes()
    start(cluster, 1, 2, 3)
    (shown,) = run("voters", "show", "--bootstrap-server", addresses(cluster)).lines()
    asyncio.run(cluster.stop())
    voters = shown.split(",")
    fresh = [run("random-uuid").lines()[0] for _ in range(2)]
    others = [voter.rpartition(":")[0] for voter in voters]
    change = ("voters", "set", "--config", config, "--initial-controllers")
    for given, words in (
        (voters[:2], "name the same voters"),
        ([f"{others[0]}:{fresh[0]}", *voters[1:]], "name that one"),
        ([voters[0], *(f"{other}:{new}" for other, new in zip(others[1:], fresh, strict=True))], "one disk at a time"),
        ([*voters[:2], f"{others[2]}:{voters[1].rpartition(':')[2]}"], "same directory id"),
    ):
        refused = run(*change, ",".join(given))
        assert refused.code == 1
        assert words in refused.errors
        assert path.read_bytes() == before
    run(*change, ",".join([*voters[:2], f"{others[2]}:{fresh[0]}"])).lines()
    assert path.read_bytes() != before
