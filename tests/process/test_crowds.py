"""Strangers in crowds: empty streams, streams that are not read, reads in a closed loop. Peers and writers continue."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.admin.client.connection import describe_node
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from raft.rpc.limits import ServiceLimits
from raft.rpc.options import REQUEST_BYTES_MAX
from tests.effort import all_cases

pytestmark = pytest.mark.process

STREAMS = 4_200 if all_cases() else 1_050
FEW_STREAMS = {} if all_cases() else {"service.calls.max": 1_024, "service.replica.streams.max": 250}
"""A node that takes fewer than `STREAMS`, as one does with the defaults that has four times as many to take."""
UNREAD_STREAMS = 400 if all_cases() else 100
UNREAD_TOPICS = 40 if all_cases() else 30
UNREAD_BYTES_MAX = 256 * 1024 * 1024
READERS = 20

PATIENT = {"controller.quorum.fetch.timeout.ms": 5_000, "controller.quorum.request.timeout.ms": 5_000}
"""A busy machine changes no epoch by itself, as it would after 2 s; a peer that is refused for good still does."""

STRANGER = Path(__file__).with_name("stranger.py")
UNFINISHED = Path(__file__).with_name("unfinished_messages.py")


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    """Three voters of the test's own, without anything in their log; a parameter has more settings."""
    settings = PATIENT | getattr(request, "param", {})
    cluster = LocalCluster(open_or_create(tmp_path, voters=3, observers=0, settings=settings))
    try:
        asyncio.run(cluster.start())
        asyncio.run(cluster.wait_until_voters_take_part())
        asyncio.run(cluster.wait_for_leader())
        yield cluster
    finally:
        asyncio.run(cluster.stop())


@contextlib.asynccontextmanager
async def stranger(kind: str, cluster: LocalCluster, node_id: int, count: int) -> AsyncIterator[None]:
    """A process that does what `stranger.py` says, from the moment that all of it is under way."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        STRANGER,
        kind,
        str(cluster.endpoint(NodeId(node_id))),
        str(count),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"under way\n"
        yield
    finally:
        process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def unfinished_messages(
    cluster: LocalCluster, node_id: int, streams: int, message_bytes: int
) -> AsyncIterator[int]:
    """`unfinished_messages.py`, from the moment that it has sent the number of bytes that is returned."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        UNFINISHED,
        str(cluster.endpoint(NodeId(node_id))),
        str(streams),
        str(message_bytes),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        words, _, sent = (await asyncio.wait_for(process.stdout.readline(), 60)).partition(b": ")
        assert words == b"under way"
        yield int(sent)
    finally:
        process.kill()
        await process.wait()


def resident_bytes(cluster: LocalCluster, node_id: int) -> int:
    status = Path(f"/proc/{cluster.pid(NodeId(node_id))}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


async def epoch(cluster: LocalCluster, node_id: int) -> int:
    node = await describe_node(cluster.endpoint(NodeId(node_id)), timeout_seconds=20)
    return node.current_leader.leader_epoch


@pytest.mark.parametrize("cluster", [FEW_STREAMS], indirect=True)
@pytest.mark.parametrize("kind", ["empty-fetches", pytest.param("empty-executes", marks=pytest.mark.slow)])
async def test_thousands_of_empty_streams_change_no_epoch(cluster: LocalCluster, kind: str) -> None:
    leader = await cluster.wait_for_leader()
    follower = next(node_id for node_id in cluster.voter_ids if node_id != leader)
    before = await epoch(cluster, follower)
    async with stranger(kind, cluster, leader, STREAMS), stranger(kind, cluster, follower, STREAMS):
        await asyncio.sleep(12)  # two fetch timeouts and more
        assert await cluster.wait_for_leader() == leader
        # A node that restarts finds its place among them.
        other = next(node_id for node_id in cluster.voter_ids if node_id not in (leader, follower))
        await cluster.kill(other)
        await cluster.start([other])
    assert await epoch(cluster, follower) == before


async def test_streams_that_are_not_read_cost_little_memory(cluster: LocalCluster) -> None:
    leader = await cluster.wait_for_leader()
    async with AdminClient(cluster.bootstrap_servers) as client, living_brokers(client, (1,)):
        for number in range(UNREAD_TOPICS):
            await client.create_topics([NewTopic(f"t{number}", 1_000, 1)])
    before = resident_bytes(cluster, leader)
    async with stranger("unread-watches", cluster, leader, UNREAD_STREAMS):
        await asyncio.sleep(3)
        assert resident_bytes(cluster, leader) - before <= UNREAD_BYTES_MAX
    async with stranger("unread-fetches", cluster, leader, UNREAD_STREAMS):
        await asyncio.sleep(3)
        assert resident_bytes(cluster, leader) - before <= UNREAD_BYTES_MAX


async def test_messages_that_never_end_cost_little_memory(cluster: LocalCluster) -> None:
    """As many streams as a node takes, and on each a message as large as a request may be, but for its last byte."""
    leader = await cluster.wait_for_leader()
    before = resident_bytes(cluster, leader)
    streams = ServiceLimits().operation_streams_max
    async with unfinished_messages(cluster, leader, streams, REQUEST_BYTES_MAX) as sent_bytes:
        assert sent_bytes == streams * (5 + REQUEST_BYTES_MAX - 1)  # all of it is in the node
        assert resident_bytes(cluster, leader) - before <= UNREAD_BYTES_MAX
        async with AdminClient(cluster.bootstrap_servers) as client:
            await client.list_topics()
    async with unfinished_messages(cluster, leader, 100, 16 * 1024 * 1024) as sent_bytes:
        assert sent_bytes <= 100 * REQUEST_BYTES_MAX
        assert resident_bytes(cluster, leader) - before <= UNREAD_BYTES_MAX


async def test_readers_in_a_closed_loop_stop_no_writer(cluster: LocalCluster) -> None:
    """How much they leave is the figure of `kraftlog bench crowd`; what holds them back, see `test_reads_wait.py`."""
    leader = await cluster.wait_for_leader()
    before = await epoch(cluster, leader)
    async with (
        AdminClient(cluster.bootstrap_servers) as client,
        living_brokers(client, (1,)),
        stranger("reads", cluster, leader, READERS),
    ):
        for number in range(200 if all_cases() else 60):
            await client.create_topics([NewTopic(f"t{number}", 1, 1)])
    assert await epoch(cluster, leader) == before
