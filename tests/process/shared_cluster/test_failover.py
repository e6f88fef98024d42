"""SIGKILL of the leader while a client writes: it is replaced, nothing acknowledged is lost, it comes back."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.failover import Writer, kill_leader, lost
from kraftlog.bench.workload import create_topic_operation
from kraftlog.local.cluster import LocalCluster, NodeDied
from kraftlog.local.cluster_directory import open_or_create
from kraftlog.local.consistency_check import node_counts
from raft.listener import BatchReader, Listener
from raft.observe import observe
from tests.effort import all_cases
from tests.kraftlog.command_line import Run
from tests.process.conftest import addresses

pytestmark = pytest.mark.process


class Recorder(Listener):
    """Remembers where each batch began and ended."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    async def handle_commit(self, reader: BatchReader) -> None:
        with reader:
            self.ranges += [(batch.base_offset, batch.end_offset) for batch in reader]


async def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(cluster: LocalCluster) -> None:
    recorder = Recorder()
    following = asyncio.create_task(observe(cluster.bootstrap_servers, recorder))
    async with AdminClient(cluster.bootstrap_servers) as client:
        writer = Writer(client, callers=16)
        async with writer.writing():
            for _ in range(2 if all_cases() else 1):
                await writer.wait_for_acknowledgements(200)
                killed, _ = await kill_leader(cluster, writer)
                await writer.wait_for_acknowledgements(200)
                await cluster.start([killed])
                await cluster.wait_until_applied(writer.end_offset)
    assert await lost(cluster, writer) == dict.fromkeys(cluster.node_ids, 0)
    async with asyncio.timeout(100):
        while not recorder.ranges or recorder.ranges[-1][1] < writer.end_offset:
            await asyncio.sleep(0.02)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    ends = [0, *(end for _, end in recorder.ranges)]
    assert [base for base, _ in recorder.ranges] == ends[:-1]
    await cluster.wait_until_applied(Offset(ends[-1]))
    async with asyncio.timeout(100):  # what nodes and brokers write by themselves may move the log's end meanwhile
        while len({node_counts(cluster.directory.data_path(node_id)) for node_id in cluster.node_ids}) != 1:
            await cluster.wait_until_level()


async def test_a_killed_leader_is_replaced_although_no_fetch_timeout_expires(tmp_path: Path) -> None:
    """Its followers find its port closed (RF-30)."""
    hours = {"controller.quorum.fetch.timeout.ms": 36_000_000}
    async with LocalCluster(open_or_create(tmp_path, voters=3, observers=0, settings=hours)).running() as cluster:
        leader = await cluster.wait_for_leader()
        async with AdminClient(cluster.bootstrap_servers) as client:
            first = await client.execute(create_topic_operation("without-brokers"))  # refused, by the leader
            await cluster.wait_until_applied(first.state_end_offset)
            await cluster.kill(leader)
            assert await cluster.wait_for_leader() != leader
            second = await client.execute(create_topic_operation("without-brokers"))
            assert second.state_end_offset > first.state_end_offset


async def test_a_leader_that_stands_still_is_replaced_and_follows_when_it_goes_on(cluster: LocalCluster) -> None:
    leader = await cluster.wait_for_leader()
    epoch = (await cluster.describe(leader)).current_leader.leader_epoch
    cluster.send_signal(leader, signal.SIGSTOP)
    try:
        assert await cluster.wait_for_leader() != leader
        async with AdminClient(cluster.bootstrap_servers) as client:
            result = await client.execute(create_topic_operation("while-it-stood-still"))
    finally:
        cluster.send_signal(leader, signal.SIGCONT)
    await cluster.wait_until_applied(result.end_offset)
    node = await cluster.describe(leader)
    assert node.role == "follower"
    assert node.current_leader.leader_epoch > epoch


def test_without_a_majority_there_is_an_error_and_with_it_all_goes_on(cluster: LocalCluster, run: Run) -> None:
    leader = asyncio.run(cluster.wait_for_leader())
    followers = [node_id for node_id in cluster.voter_ids if node_id != leader]
    at = ("--bootstrap-server", addresses(cluster))
    try:
        for node_id in followers:
            asyncio.run(cluster.kill(node_id))
        asyncio.run(_wait_until_nobody_leads(cluster))
        said = run("quorum", "describe", "--status", *at)
        assert said.is_error(ErrorCode.LEADER_NOT_AVAILABLE)
        said = run("topics", "create", "never", *at)
        assert said.code == 1
        assert said.errors.startswith("error: ")
        assert said.errors.count("\n") == 1
    finally:
        asyncio.run(cluster.start(followers))
    asyncio.run(cluster.wait_for_leader())
    assert run("topics", "create", "after-all", "--replication-factor", 1, *at).code == 0


async def test_a_node_that_cannot_start_is_reported_with_what_it_said(cluster: LocalCluster) -> None:
    observer = cluster.node_ids[-1]
    await cluster.stop([observer])
    meta = cluster.directory.data_path(observer) / "meta.properties"
    content = meta.read_bytes()
    meta.write_bytes(content[:-3])
    try:
        with pytest.raises(NodeDied) as died:
            await cluster.start([observer])
        assert died.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert f"node {observer} ended: " in str(died.value)
        assert "damaged" in str(died.value)
    finally:
        meta.write_bytes(content)
    await cluster.start([observer])


async def _wait_until_nobody_leads(cluster: LocalCluster) -> None:
    """A leader without a majority resigns (RF-32)."""
    async with asyncio.timeout(100):
        while True:
            try:
                await cluster.wait_for_leader(timeout_seconds=0.2)
            except ApiError as error:
                assert error.code is ErrorCode.LEADER_NOT_AVAILABLE
                return
            await asyncio.sleep(0.1)
