"""What the kernel of a peer's machine reports of its port: a process that runs never counts as ended."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator

import pytest

from kraftbase.endpoint import Endpoint
from raft.rpc.closed_ports import ADDRESSES_MAX, refuses_connections
from tests.raft.nodes import free_port


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A process listens, and takes no connection that is made."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        yield server


def endpoint_of(server: socket.socket, host: str = "127.0.0.1") -> Endpoint:
    return Endpoint(host, server.getsockname()[1])


async def test_a_port_where_nothing_listens_refuses() -> None:
    assert await refuses_connections(Endpoint("127.0.0.1", free_port()))


async def test_a_process_that_takes_no_connection_does_not_refuse_it(listening: socket.socket) -> None:
    assert not await refuses_connections(endpoint_of(listening))


async def test_a_full_backlog_does_not_refuse(listening: socket.socket) -> None:
    with contextlib.ExitStack() as connections:
        for _ in range(5):
            connection = connections.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(listening.getsockname())
        assert not await refuses_connections(endpoint_of(listening))


async def test_every_address_of_a_name_must_refuse(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, open_port = ("127.0.0.1", free_port()), listening.getsockname()
    found: list[tuple[str, int]] = []

    async def resolve(*name: object, **options: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve, raising=False)
    for addresses, is_refused in (
        ([closed], True),
        ([closed, closed], True),
        ([closed, open_port], False),
        ([closed] * ADDRESSES_MAX, True),
        ([closed] * (ADDRESSES_MAX + 1), False),
        ([], False),
    ):
        found[:] = addresses
        assert await refuses_connections(Endpoint("a-name", 1)) is is_refused


async def test_an_address_of_a_kind_that_this_machine_lacks_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking, closed = ("::1", free_port(), 0, 0), ("127.0.0.1", free_port())

    async def connect(connection: socket.socket, address: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL if address == lacking else errno.ECONNREFUSED, "no")

    async def resolve(*name: object, **options: object) -> list[tuple[int, int, int, str, object]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (lacking, closed)]

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", resolve, raising=False)
    monkeypatch.setattr(loop, "sock_connect", connect, raising=False)
    assert await refuses_connections(Endpoint("localhost", 1))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 64 + ".invalid"])
async def test_a_name_that_is_unknown_or_is_no_name_refuses_nothing(host: str) -> None:
    assert not await refuses_connections(Endpoint(host, 9093))


async def test_a_machine_that_is_silent_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*address: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("raft.rpc.closed_ports.PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", never, raising=False)
    assert not await refuses_connections(Endpoint("127.0.0.1", free_port()))
