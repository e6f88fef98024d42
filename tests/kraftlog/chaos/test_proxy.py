"""The proxy: whose connections it cuts, in which direction, and what happens to the bytes."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.types import NodeId
from kraftlog.chaos.proxy import Links, ProxyNetwork
from kraftlog.chaos.socket_owners import SocketOwners, read_owners
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import ClusterDirectory, open_or_create

ONE, TWO = NodeId(1), NodeId(2)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the proxy reads /proc")


class ThisProcess(LocalCluster):
    """Says that node 1 runs and is this process, so that connections from here are its."""

    def is_running(self, node_id: NodeId) -> bool:
        return node_id == ONE

    def pid(self, node_id: NodeId) -> int:
        return os.getpid()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


def directory_of(tmp_path: Path, network: ProxyNetwork) -> ClusterDirectory:
    return open_or_create(tmp_path / "cluster", voters=2, endpoints=network.endpoints())


@asynccontextmanager
async def connection_to_two(
    tmp_path: Path, *, known: bool = True
) -> AsyncIterator[tuple[ProxyNetwork, asyncio.StreamReader, asyncio.StreamWriter]]:
    """An echo server stands for node 2; this process is node 1, or no node if not `known`."""
    network = ProxyNetwork(2)
    directory = directory_of(tmp_path, network)
    await network.start(directory)
    if known:
        network.attach(ThisProcess(directory))
    listener = directory.load_configs()[TWO].listener
    server = await asyncio.start_server(echo, listener.host, listener.port)
    reader, writer = await asyncio.open_connection(*network.endpoints()[1])
    try:
        yield network, reader, writer
    finally:
        writer.close()
        await network.close()
        server.close()


async def test_voters_listen_behind_the_address_that_all_are_told(tmp_path: Path) -> None:
    network = ProxyNetwork(2)
    directory = directory_of(tmp_path, network)
    await network.start(directory)
    try:
        for node_id, config in directory.load_configs().items():
            assert config.advertised_endpoint == network.endpoints()[node_id - 1]
            assert config.listener == Endpoint("127.0.0.1", config.advertised_endpoint.port)
    finally:
        await network.close()


async def test_bytes_pass(tmp_path: Path) -> None:
    async with connection_to_two(tmp_path) as (_, reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"


@pytest.mark.parametrize("link", [(ONE, TWO), (TWO, ONE)])
async def test_what_a_cut_link_carries_comes_when_it_is_mended(tmp_path: Path, link: tuple[NodeId, NodeId]) -> None:
    async with connection_to_two(tmp_path) as (network, reader, writer):
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        await network.cut(*link)
        writer.write(b"b")
        late = asyncio.ensure_future(reader.readexactly(1))
        await asyncio.wait([late], timeout=0.1)
        assert not late.done()
        await network.mend(*link)
        assert await late == b"b"


async def test_clients_are_never_cut(tmp_path: Path) -> None:
    async with connection_to_two(tmp_path, known=False) as (network, reader, writer):
        await network.cut(ONE, TWO)
        await network.cut(TWO, ONE)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"


async def test_a_node_that_does_not_listen_ends_the_connection(tmp_path: Path) -> None:
    async with connection_to_two(tmp_path) as (network, _, _):
        reader, writer = await asyncio.open_connection(*network.endpoints()[0])
        assert await reader.read() == b""
        writer.close()


async def test_links_wait_for_each_their_own() -> None:
    links = Links()
    links.cut(ONE, TWO)
    await links.pass_through(TWO, ONE)
    await links.pass_through(None, TWO)
    waiting = asyncio.ensure_future(links.pass_through(ONE, TWO))
    await asyncio.sleep(0)
    assert not waiting.done()
    links.mend(ONE, TWO)
    await waiting


async def test_a_node_is_known_by_its_socket_and_all_who_ask_share_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = []

    def counted(processes: Mapping[NodeId, int]) -> dict[str, NodeId]:
        readings.append(processes)
        return read_owners(processes)

    monkeypatch.setattr("kraftlog.chaos.socket_owners.read_owners", counted)
    owners = SocketOwners(lambda: {ONE: os.getpid(), TWO: os.getppid()})
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
        address = Endpoint(*own.getsockname())
        assert await asyncio.gather(*(owners.owner(address) for _ in range(20))) == [ONE] * 20
    assert len(readings) <= 2
    assert await owners.owner(address) is None
    assert len(readings) <= 3
