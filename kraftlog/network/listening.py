"""Binds listeners: to all of a name's addresses on this machine or to none, and by default only to loopback ones."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from kraftlog.network.limits import Listener

BACKLOG: Final = 512
"""Connections that the system queues until they are accepted; after a restart all clients connect at once."""

LOOPBACK: Final = ("127.0.0.1", "::1")
"""The addresses of `localhost`, regardless of the system's hosts file."""

FREE_PORT_TRIES: Final = 20

_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""The address is another machine's, or of a family that this machine lacks, such as ::1 in many containers."""

_Address = tuple[socket.AddressFamily, str]


class _Taken(Exception):
    """A port is in use."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"the port {port} is in use at {host}")


async def bind(listener: Listener, allow_plaintext: bool) -> list[socket.socket]:
    """Return sockets that listen at all addresses of the listener, on one port.

    Raises ConfigurationError if the name is not known or has no address on this machine, if the port is in use, and,
    unless `allow_plaintext`, for an address that other machines can reach.
    """
    addresses = await _addresses(listener)
    if not allow_plaintext:
        _check_loopback(listener, addresses)
    for tried in range(1, FREE_PORT_TRIES + 1):
        try:
            sockets = _bind_all(listener, addresses)
        except _Taken as taken:
            if listener.port == 0 and tried < FREE_PORT_TRIES:
                continue  # free at the first address, but not at a later one
            raise ConfigurationError(
                f"cannot listen on {_name(listener)}: {taken}; stop what listens there, or choose another port"
            ) from None
        if sockets:
            return sockets
        break
    raise ConfigurationError(
        f"cannot listen on {_name(listener)}: it is not an address of this machine; choose another"
    )


def port_of(sockets: list[socket.socket]) -> int:
    """Return the port that the sockets of one listener are bound to."""
    port: int = sockets[0].getsockname()[1]
    return port


def _name(listener: Listener) -> str:
    return f"{listener.name}://{Endpoint(listener.host, listener.port)}"


async def _addresses(listener: Listener) -> list[_Address]:
    """Return the listener's addresses with their families, without duplicates."""
    loop = asyncio.get_running_loop()
    found: list[_Address] = []
    for host in LOOPBACK if listener.host == "localhost" else (listener.host or None,):
        try:
            entries = await loop.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(
                f"cannot listen on {_name(listener)}: the name {host} is unknown ({error}); choose another"
            ) from None
        found += [(family, str(address[0])) for family, _, _, _, address in entries]
    return list(dict.fromkeys(found))


def _check_loopback(listener: Listener, addresses: list[_Address]) -> None:
    for _, host in addresses:
        if not ipaddress.ip_address(host).is_loopback:
            raise ConfigurationError(
                f"cannot listen on {_name(listener)}: other machines can reach {host}, and nothing is encrypted;"
                " listen on localhost, or set allow.plaintext=true"
            )


def _bind_all(listener: Listener, addresses: list[_Address]) -> list[socket.socket]:
    """Return a socket for each address that is on this machine, all with the port of the first one. Raises _Taken."""
    sockets: list[socket.socket] = []
    port = listener.port
    try:
        for family, host in addresses:
            bound = _bound(listener, family, host, port)
            if bound is not None:
                sockets.append(bound)
                port = port_of(sockets)
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def _bound(listener: Listener, family: socket.AddressFamily, host: str, port: int) -> socket.socket | None:
    """Return a listening socket; None if the address is not this machine's."""
    bound: socket.socket | None = None
    try:
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that a broker can restart at once
        # On Linux the accepted sockets inherit these options.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # else it would take the port on IPv4, too
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        if bound is not None:
            bound.close()
        if error.errno in _NOT_HERE:
            return None
        if error.errno == errno.EADDRINUSE:
            raise _Taken(host, port) from None
        raise ConfigurationError(
            f"cannot listen on {_name(listener)}: {host}: {error.strerror}; choose another"
        ) from None
    return bound
