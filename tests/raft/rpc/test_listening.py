"""A server listens at all addresses that a name resolves to, or reports why it cannot."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from raft.rpc.listening import listen
from raft.rpc.options import SERVER_OPTIONS
from tests.raft.nodes import free_port

BOTH = [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]


@pytest.fixture
async def server() -> AsyncIterator[grpc.aio.Server]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    yield server
    await server.stop(None)


@pytest.fixture
def localhost_is_both() -> None:
    if not all(has(*address) for address in BOTH):
        pytest.skip("this machine has no ::1")


def has(address: str, family: socket.AddressFamily) -> bool:
    try:
        with socket.socket(family) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


@pytest.mark.usefixtures("localhost_is_both")
async def test_a_name_is_all_of_its_addresses(server: grpc.aio.Server) -> None:
    port = free_port()
    await listen(server, Endpoint("localhost", port))
    await server.start()
    for address, _ in BOTH:
        _, writer = await asyncio.open_connection(address, port)
        writer.close()


@pytest.mark.usefixtures("localhost_is_both")
@pytest.mark.parametrize(("taken", "family"), BOTH)
async def test_one_address_that_is_in_use_is_told(
    server: grpc.aio.Server, taken: str, family: socket.AddressFamily
) -> None:
    port = free_port()
    with socket.socket(family) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((taken, port))
        other.listen()
        with pytest.raises(ConfigurationError, match=f"localhost:{port}: the port is in use at {taken};"):
            await listen(server, Endpoint("localhost", port))


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("192.0.2.1", "192.0.2.1:9092: that is no address of this machine"),
        ("2001:db8::1", r"\[2001:db8::1\]:9092: that is no address of this machine"),
        ("no-such-host.invalid", "the name no-such-host.invalid is not known"),
    ],
)
async def test_what_cannot_be_listened_on_is_told(server: grpc.aio.Server, host: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        await listen(server, Endpoint(host, 9092))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_all_addresses_of_this_machine(server: grpc.aio.Server, host: str) -> None:
    if not has(host, socket.AF_INET6 if ":" in host else socket.AF_INET):
        pytest.skip(f"{host} cannot be bound here")
    port = free_port()
    await listen(server, Endpoint(host, port))
    await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
