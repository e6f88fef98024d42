"""Whether a process listens at an address, as its machine's kernel reports."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeAlias

from kraftbase.endpoint import Endpoint, Reply

PATIENCE_SECONDS: Final = 0.25
"""A reachable machine answers within a round trip. A machine that does not answer has refused nothing."""

ADDRESSES_MAX: Final = 8
"""How many addresses of a name are tried. Whether the further ones refuse is unknown."""

_NO_WAY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH})
"""Errors of an address of a kind that this machine does not have, such as ::1 in many containers."""

LookUp: TypeAlias = Callable[..., Awaitable[Iterable[tuple[Any, Any, int, str, tuple[Any, ...]]]]]
"""As `getaddrinfo` of an event loop."""


async def refuses_connections(endpoint: Endpoint) -> bool:
    """Whether every address of `endpoint` that can be reached refuses a connection: no process listens there."""
    return await reply_of(endpoint) is Reply.REFUSED


async def reply_of(endpoint: Endpoint, look_up: LookUp | None = None) -> Reply:
    """How the addresses of `endpoint` reply to a connection, which is closed at once.

    REFUSED if every address that can be reached refuses it, ACCEPTED if one accepts it. UNKNOWN if there is no answer
    in time, or the name is unknown. For a process that is stopped or busy, the kernel accepts connections up to its
    backlog and drops the others: it refuses none. Without `look_up` the event loop looks the name up.
    """
    loop = asyncio.get_running_loop()
    look_up = look_up or loop.getaddrinfo
    refusals = 0
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = await look_up(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
            for number, (family, kind, protocol, _, address) in enumerate(found):
                if number >= ADDRESSES_MAX:
                    return Reply.UNKNOWN
                code = await _connect(loop, socket.socket(family, kind, protocol), address)
                if code not in (errno.ECONNREFUSED, *_NO_WAY):
                    return Reply.UNKNOWN if code else Reply.ACCEPTED
                refusals += code == errno.ECONNREFUSED
    except (OSError, UnicodeError):  # a time-out is an OSError; an unresolvable name may be a UnicodeError
        return Reply.UNKNOWN
    return Reply.REFUSED if refusals else Reply.UNKNOWN


async def _connect(
    loop: asyncio.AbstractEventLoop, connection: socket.socket, address: tuple[object, ...]
) -> int | None:
    """The error of a connection, 0 if it is accepted."""
    with connection:
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, address)
        except OSError as error:
            return error.errno
    return 0
