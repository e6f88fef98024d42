"""Binds a server to every address that a name resolves to, or to none.

gRPC reports success if it could bind only one of several addresses. `localhost` is two addresses: if another program
has bound one of them, the node's peers and clients may connect to that program.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any, Final

import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError

LOOPBACK: Final = ("127.0.0.1", "::1")
"""The addresses to which gRPC's clients resolve `localhost`, regardless of the system's files."""

_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""The address is another machine's, or of a kind that this one does not have, such as ::1 in many containers."""


async def listen(server: grpc.aio.Server, endpoint: Endpoint) -> None:
    """Make `server` listen at every address of this machine that `endpoint` resolves to.

    Raises ConfigurationError if the name does not resolve, if it has no address here, or if one cannot be bound.
    """
    addresses = [address for address in await _addresses_of(endpoint) if _is_free(endpoint, *address)]
    if not addresses:
        raise ConfigurationError(f"cannot listen on {endpoint}: that is no address of this machine; choose another")
    for _, address in addresses:
        numeric = Endpoint(socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0], endpoint.port)
        try:
            server.add_insecure_port(str(numeric))
        except RuntimeError:
            raise _in_use(endpoint, numeric.host) from None


async def _addresses_of(endpoint: Endpoint) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    """The endpoint's addresses by family, each once."""
    loop = asyncio.get_running_loop()
    hosts = LOOPBACK if endpoint.host == "localhost" else (endpoint.host,)
    addresses = []
    for host in hosts:
        try:
            found = await loop.getaddrinfo(host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {endpoint}: the name {host} is not known ({error.strerror}); choose another"
            ) from None
        addresses += [(family, address) for family, _, _, _, address in found]
    return list(dict.fromkeys(addresses))


def _is_free(endpoint: Endpoint, family: socket.AddressFamily, address: tuple[Any, ...]) -> bool:
    """Whether the address is this machine's. Raises ConfigurationError if it is, and cannot be bound."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does: a node can restart at once
            probe.bind(address)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        if error.errno == errno.EADDRINUSE:
            raise _in_use(endpoint, address[0]) from None
        raise ConfigurationError(
            f"cannot listen on {endpoint}: {address[0]}: {error.strerror}; choose another"
        ) from None
    return True


def _in_use(endpoint: Endpoint, address: str) -> ConfigurationError:
    return ConfigurationError(
        f"cannot listen on {endpoint}: the port is in use at {address}; stop that process or choose another"
    )
