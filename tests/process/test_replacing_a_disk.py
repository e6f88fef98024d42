"""docs/operations/replacing-a-disk.md, command by command, whichever voter lags."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.admin.client.connection import describe_quorum
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from raft.storage.directory import SNAPSHOTS_NAME
from snapshot.names import BOOTSTRAP_NAME
from tests.kraftlog.command_line import Run
from tests.paths import ROOT
from tests.process.conftest import addresses

pytestmark = pytest.mark.process

PAGE = ROOT / "docs" / "operations" / "replacing-a-disk.md"
LOST = NodeId(3)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three voters that do not run."""
    cluster = LocalCluster(open_or_create(tmp_path / "cluster", voters=3))
    try:
        yield cluster
    finally:
        asyncio.run(cluster.stop())


def commands(section: str) -> list[list[str]]:
    """The command lines of a section of the page, in order, without the program's name."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    return [line.split()[1:] for block in blocks for line in block.splitlines()]


def follow(run: Run, cluster: LocalCluster, lines: list[list[str]], words: dict[str, str]) -> list[str]:
    """Do what the lines say; what the last command but `start` printed."""
    printed: list[str] = []
    for line in lines:
        given = [words.get(word, word) for word in line]
        given = [re.sub("NEW$", words.get("NEW", "NEW"), word) for word in given]
        if given[0] == "start":
            node_id = NodeId(int(re.findall(r"node-(\d)[.]toml", given[-1])[0]))
            asyncio.run(cluster.start([node_id]))
        else:
            printed = run(*given).lines()
    return printed


def write(run: Run, cluster: LocalCluster, name: str) -> None:
    at = ("--bootstrap-server", addresses(cluster))
    named = ("--entity-type", "brokers", "--entity-name", "")
    run("configs", "alter", *at, *named, "--add-config", f"{name}=1000001").lines()


def lose_disk(run: Run, cluster: LocalCluster, lagging: NodeId | None) -> None:
    """Voter 3's directory goes; what was written last is on it and on one other voter, if one lags."""
    asyncio.run(cluster.start())
    asyncio.run(cluster.wait_until_voters_take_part())
    asyncio.run(cluster.wait_for_leader())
    write(run, cluster, "message.max.bytes")
    if lagging is not None:
        asyncio.run(cluster.stop([lagging]))
        asyncio.run(cluster.wait_for_leader())
    write(run, cluster, "log.retention.bytes")
    asyncio.run(cluster.kill(LOST))
    shutil.rmtree(cluster.directory.data_path(LOST))
    if lagging is not None:
        asyncio.run(cluster.start([lagging]))


def words_for(cluster: LocalCluster) -> dict[str, str]:
    configs = {f"node-{number}.toml": str(cluster.directory.config_path(NodeId(number))) for number in (1, 2, 3)}
    return {"ID": cluster.cluster_id, "SERVERS": addresses(cluster), **configs}


def check(run: Run, cluster: LocalCluster) -> None:
    """The voter takes part, and everything is there."""
    at = ("--bootstrap-server", addresses(cluster))
    asyncio.run(wait_until_joined(cluster))
    described = run("configs", "describe", *at, "--entity-type", "brokers", "--entity-name", "").output
    assert "message.max.bytes" in described
    assert "log.retention.bytes" in described


async def wait_until_joined(cluster: LocalCluster) -> None:
    async with asyncio.timeout(100):
        while True:
            try:
                found = await describe_quorum(cluster.bootstrap_servers)
            except ApiError:
                continue  # no leader yet
            voter = next(state for state in found.current_voters if state.replica_key.node_id == LOST)
            if voter.log_end_offset == found.high_watermark and not voter.recovering:
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("lagging", [1, *(pytest.param(other, marks=pytest.mark.slow) for other in (None, 2))])
def test_with_directory_ids(run: Run, cluster: LocalCluster, lagging: int | None) -> None:
    lose_disk(run, cluster, None if lagging is None else NodeId(lagging))
    words = words_for(cluster)
    lines = commands("With directory ids")
    (words["NEW"],) = follow(run, cluster, lines[:1], words)
    (words["LIST"],) = follow(run, cluster, lines[1:2], words)
    plain = ("format", "--config", words["node-3.toml"], "--cluster-id", cluster.cluster_id)
    assert run(*plain).is_error(ErrorCode.KAFKA_STORAGE_ERROR, "--replace")
    follow(run, cluster, lines[2:4], words)
    for node_id in (1, 2):
        asyncio.run(cluster.stop([NodeId(node_id)]))
        words["node-N.toml"] = words[f"node-{node_id}.toml"]
        follow(run, cluster, lines[4:], words)
    check(run, cluster)


@pytest.mark.parametrize("lagging", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_with_node_ids_only(run: Run, cluster: LocalCluster, lagging: int) -> None:
    for node_id in cluster.node_ids:
        (cluster.directory.data_path(node_id) / SNAPSHOTS_NAME / BOOTSTRAP_NAME).unlink()
    lose_disk(run, cluster, NodeId(lagging))
    follow(run, cluster, commands("With node ids only"), words_for(cluster))
    check(run, cluster)
