"""Readers leave a node that cannot serve them, if another one can: it is cut off, silent, or behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kraftbase.endpoint import Endpoint
from raft import known_nodes, reader_contact
from raft.known_nodes import KnownNodes
from raft.node import Node
from raft.observe import observe
from raft.rpc.log_service import LogService
from tests.raft.nodes import Cluster, Recorder, running_cluster
from tests.raft.test_observe import following

NONE_LEVEL = "no node is level with a leader: reads may be stale"
FOLLOWS_ANOTHER = "reader follows another node"


@contextlib.contextmanager
def begins_with_the_first_address() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_nodes.random, "randrange", lambda _: 0)
        yield


@contextlib.contextmanager
def cut_off(node: Node) -> Iterator[None]:
    """It sends nothing to the others, which reach it, as do its readers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node._transport, "send", lambda _: None)
        yield


@contextlib.asynccontextmanager
async def reader_of_a_follower(cluster: Cluster, *, knows_others: bool = True) -> AsyncIterator[tuple[Recorder, int]]:
    """A reader that has begun at a follower, and that node."""
    leader = await cluster.leader()
    first = min(set(cluster.nodes) - {leader.node_key.node_id})
    reader = Recorder()
    await leader.append([b"before"])
    addresses = [node.identity.endpoint for _, node in sorted(cluster.nodes.items(), key=lambda item: item[0] != first)]
    given = [endpoint for endpoint in addresses if endpoint is not None]
    with begins_with_the_first_address():
        async with following(observe(given if knows_others else given[:1], reader)):
            await reader.has_records(1)
            yield reader, first


@pytest.mark.parametrize("knows_others", [True, False])
async def test_a_reader_leaves_a_node_that_is_cut_off_from_the_leader(tmp_path: Path, knows_others: bool) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        reader_of_a_follower(cluster, knows_others=knows_others) as (reader, first),
    ):
        with capture_logs() as logs, cut_off(cluster.nodes[first]):
            await (await cluster.leader()).append([b"meanwhile"])
            await reader.has_records(2)
        assert reader.records == [b"before", b"meanwhile"]
        assert [entry["event"] for entry in logs if entry["event"] in (FOLLOWS_ANOTHER, NONE_LEVEL)] == [
            FOLLOWS_ANOTHER
        ]


async def test_a_new_reader_does_not_begin_at_a_node_that_is_cut_off(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        first = min(set(cluster.nodes) - {leader.node_key.node_id})
        node = cluster.nodes[first]
        with cut_off(node), begins_with_the_first_address():
            async with asyncio.timeout(100):
                while node.behind_ms() <= node.replica.config.readers_leave_after_ms:
                    await asyncio.sleep(0.05)
            await (await cluster.leader()).append([b"meanwhile"])
            reader = Recorder()
            endpoint = node.identity.endpoint
            assert endpoint is not None
            async with following(observe([endpoint], reader)):
                await reader.has_records(1)


async def test_a_reader_for_which_no_node_is_level_stays_warns_once_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_contact, "LOOK_SECONDS", 0.2)
    async with running_cluster(tmp_path) as cluster, reader_of_a_follower(cluster) as (reader, _):
        with capture_logs() as logs, contextlib.ExitStack() as all_cut_off:
            for node in cluster.nodes.values():
                all_cut_off.enter_context(cut_off(node))
            async with asyncio.timeout(100):
                while not any(entry["event"] == NONE_LEVEL for entry in logs):
                    await asyncio.sleep(0.05)
            looked_until = asyncio.get_running_loop().time() + 3
            while asyncio.get_running_loop().time() < looked_until:  # the reader checks again several times
                await asyncio.sleep(0.1)
        await (await cluster.leader()).append([b"afterwards"])
        await reader.has_records(2)
        assert [entry["event"] for entry in logs].count(NONE_LEVEL) == 1


async def test_a_node_of_an_older_version_is_left_when_its_stream_ends_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogService, "_leader_contact", lambda self: None)
    monkeypatch.setattr(reader_contact, "SILENCE_SECONDS", 0.3)
    async with running_cluster(tmp_path) as cluster, reader_of_a_follower(cluster) as (reader, first):
        with capture_logs() as logs:
            await asyncio.sleep(2)
            await cluster.stop(first)
            await (await cluster.leader()).append([b"meanwhile"])
            await reader.has_records(2)
        assert not any(entry["event"] == FOLLOWS_ANOTHER for entry in logs)


def test_readers_with_the_same_addresses_spread_over_the_nodes() -> None:
    given = [Endpoint("127.0.0.1", port) for port in (1, 2, 3)]
    assert {KnownNodes(given).next() for _ in range(200)} == set(given)


async def test_a_reader_passes_over_a_node_of_another_cluster(tmp_path: Path) -> None:
    """Such as a node of the cluster before a restore, at an address that is still given."""
    async with (
        running_cluster(tmp_path / "a", voter_count=1) as other,
        running_cluster(tmp_path / "b", voter_count=1) as cluster,
    ):
        await other.leader()
        await (await cluster.leader()).append([b"here"])
        addresses = [of.nodes[1].identity.endpoint for of in (other, cluster)]
        reader = Recorder()
        given = [endpoint for endpoint in addresses if endpoint is not None]
        with begins_with_the_first_address():
            async with following(observe(given, reader, cluster_id=cluster.cluster_id)):
                await reader.has_records(1)
        assert reader.records == [b"here"]
