"""Partitions by network namespaces, tried with real sockets. They need root and iproute2."""

from __future__ import annotations

import asyncio
import errno
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kraftbase.types import NodeId
from kraftlog.chaos.namespaces import Namespaces, NamespacesUnavailable
from kraftlog.chaos.network import choose_network
from kraftlog.chaos.proxy import ProxyNetwork
from kraftlog.local.cluster_directory import open_or_create

ONE, TWO = NodeId(1), NodeId(2)
SEND = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], 9))"
RECEIVE = """
import socket, sys
inbox = socket.socket(type=socket.SOCK_DGRAM)
inbox.bind((sys.argv[1], 9))
print("ready", flush=True)
while True:
    inbox.recv(10)
    print("got", flush=True)
"""


@pytest.fixture
async def namespaces(tmp_path: Path) -> AsyncIterator[Namespaces]:
    try:
        network = Namespaces.create([ONE, TWO])
    except NamespacesUnavailable as error:
        pytest.skip(f"no network namespaces here: {error}")
    await network.start(open_or_create(tmp_path / "cluster", voters=2, endpoints=network.endpoints()))
    yield network
    await network.close()
    assert not leftovers()


def leftovers() -> str:
    listed = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    listed += subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in listed.splitlines() if Namespaces.prefix() in line)


def in_namespace(network: Namespaces, node_id: NodeId, script: str, *arguments: str) -> list[str]:
    return ["ip", "netns", "exec", f"{Namespaces.prefix()}n{node_id}", sys.executable, "-c", script, *arguments]


class Inbox:
    """Counts the datagrams that reach a node."""

    def __init__(self, network: Namespaces, node_id: NodeId) -> None:
        self._network = network
        self._node_id = node_id
        self._host = network.endpoints()[node_id - 1].host

    async def __aenter__(self) -> Inbox:
        command = in_namespace(self._network, self._node_id, RECEIVE, self._host)
        self._process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert await self._line() == b"ready\n"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()
        await self._process.communicate()

    async def gets_from(self, source: NodeId) -> bool:
        """Whether the second of two datagrams comes: the first may be lost while an address is looked up."""
        for _ in range(3):
            subprocess.run(in_namespace(self._network, source, SEND, self._host), check=True)
            try:
                async with asyncio.timeout(0.5):
                    return await self._line() == b"got\n"
            except TimeoutError:
                continue
        return False

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.readline()


async def test_a_cut_is_one_way_and_can_be_mended(namespaces: Namespaces) -> None:
    async with Inbox(namespaces, ONE) as one, Inbox(namespaces, TWO) as two:
        assert await two.gets_from(ONE)
        await namespaces.cut(ONE, TWO)
        await namespaces.cut(ONE, TWO)
        assert not await two.gets_from(ONE)
        assert await one.gets_from(TWO)
        await namespaces.mend(ONE, TWO)
        await namespaces.mend(ONE, TWO)
        assert await two.gets_from(ONE)


async def test_a_slow_link_carries_and_can_be_restored(namespaces: Namespaces) -> None:
    if namespaces.slow_link is None:
        pytest.skip("this kernel has no queueing discipline for slow links")
    await namespaces.restore(ONE)
    async with Inbox(namespaces, ONE) as one:
        await namespaces.slow(ONE)
        assert await one.gets_from(TWO)
        await namespaces.restore(ONE)
        assert await one.gets_from(TWO)


LISTEN = """
import socket, sys
server, kept = socket.create_server((sys.argv[1], 9)), []
print("ready", flush=True)
while True:
    kept.append(server.accept())
"""
CONNECT = """
import errno, socket, sys, time
kept, codes = socket.create_connection((sys.argv[1], 9)), []
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    with socket.socket() as connection:
        connection.settimeout(5)
        codes.append(connection.connect_ex((sys.argv[1], 9)))
    time.sleep(0.01)
print(*codes, flush=True)
try:
    print("data" if kept.recv(1) else "closed", flush=True)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
"""


class Connections:
    """A server in node 2, and a client in node 1 that keeps a connection and tries others."""

    def __init__(self, network: Namespaces, attempts: int) -> None:
        self._host = network.endpoints()[TWO - 1].host
        self._commands = (
            in_namespace(network, TWO, LISTEN, self._host),
            in_namespace(network, ONE, CONNECT, self._host, str(attempts)),
        )
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Connections:
        for command in self._commands:
            pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
            self._processes.append(await asyncio.create_subprocess_exec(*command, **pipes))
            assert await self._line(-1) == "ready"
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    def go_on(self) -> None:
        stdin = self._processes[1].stdin
        assert stdin is not None
        stdin.write(b"\n")

    async def codes(self) -> set[int]:
        """Of the further connections."""
        return set(map(int, (await self._line(1)).split()))

    async def kept(self) -> str:
        """What became of the first one."""
        return await self._line(1)

    async def _line(self, number: int) -> str:
        stdout = self._processes[number].stdout
        assert stdout is not None
        async with asyncio.timeout(60):
            return (await stdout.readline()).decode().strip()


async def test_connections_are_reset_as_by_the_node_itself(namespaces: Namespaces) -> None:
    async with Connections(namespaces, attempts=1) as connections:
        await namespaces.reset(TWO, [ONE])
        connections.go_on()
        assert await connections.codes() == {0}
        assert await connections.kept() == "ECONNRESET"


async def test_connections_are_refused_for_a_moment_and_taken_afterwards(namespaces: Namespaces) -> None:
    async with Connections(namespaces, attempts=400) as connections:
        connections.go_on()
        ((began, ended),) = await namespaces.refuse(TWO, [ONE], 0.2)
        assert 0.2 <= ended - began < 60
        assert await connections.codes() == {0, errno.ECONNREFUSED}
        assert await connections.kept() in ("ECONNRESET", "ECONNABORTED")


def test_without_namespaces_there_are_proxies_and_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/sbin/{name}")
    network = choose_network(2)
    assert isinstance(network, ProxyNetwork)
    assert "only root" in network.description
    with pytest.raises(NamespacesUnavailable):
        choose_network(2, "namespaces")
    assert isinstance(choose_network(2, "proxy"), ProxyNetwork)


def test_a_creation_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.chaos.namespaces.INTERFACE", "a-name-that-is-too-long")
    with pytest.raises(NamespacesUnavailable):
        Namespaces.create([ONE, TWO])
    assert shutil.which("ip") is None or not leftovers()
