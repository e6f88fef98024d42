"""A client that sends frames and waits for answers, which it need not read: so its own work delays nothing."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, Self, cast

from kraftlog.clients.large_requests import VERSIONS
from kraftlog.config.endpoints import parse_endpoints
from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.frames import LENGTH, LENGTH_BYTES
from kraftlog.kafka.notation import Message

ANSWER_SECONDS: Final = 600.0
"""A large request may take long, above all at a stock broker."""
PIECE_BYTES: Final = 1 << 20


class ConnectionClosed(Exception):
    """The broker closed the connection instead of an answer, or did not answer in time."""


def frame_of(*requests: Message) -> bytes:
    """Requests of one connection, as they are sent."""
    connection = ClientConnection("bench")
    return b"".join(piece for request in requests for piece in connection.send(request, VERSIONS[type(request)]))


class RawClient:
    """One connection, within a block."""

    def __init__(self, bootstrap_server: str, timeout_seconds: float = ANSWER_SECONDS) -> None:
        """Raises OSError."""
        (endpoint,) = parse_endpoints(bootstrap_server)
        self._socket = socket.create_connection((endpoint.host, endpoint.port), timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._piece = memoryview(bytearray(PIECE_BYTES))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes. Raises ConnectionClosed."""
        try:
            self._socket.sendall(data)
        except (ConnectionError, TimeoutError) as error:
            raise ConnectionClosed from error

    def skip_answer(self) -> int:
        """Wait for an answer, and drop it; returns its size. Raises ConnectionClosed."""
        (left,) = LENGTH.unpack(self._exactly(LENGTH_BYTES))
        size = left + LENGTH_BYTES
        while left:
            left -= self._some(min(left, PIECE_BYTES))
        return cast(int, size)

    def ask(self, request: Message) -> Message:
        """An answer as a message. Raises ConnectionClosed."""
        connection = ClientConnection("bench")
        self.send(b"".join(connection.send(request, VERSIONS[type(request)])))
        while (response := connection.next_event()) is None:
            connection.receive_data(self._piece[: self._some(PIECE_BYTES)])
        return response.body

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += self._piece[: self._some(size - len(found))]
        return found

    def _some(self, size: int) -> int:
        try:
            count = self._socket.recv_into(self._piece, size)
        except (ConnectionError, TimeoutError) as error:
            raise ConnectionClosed from error
        if not count:
            raise ConnectionClosed
        return count


def exchange(bootstrap_server: str, connections: int, frames: bytes, answers: int) -> int:
    """Send the same over so many connections at once, and take so many answers of each; returns how many were refused.

    A connection that is closed instead of an answer is refused.
    """
    with ExitStack() as stack, ThreadPoolExecutor(connections) as executor:
        clients = [stack.enter_context(RawClient(bootstrap_server)) for _ in range(connections)]
        return sum(executor.map(lambda client: _is_refused(client, frames, answers), clients))


def _is_refused(client: RawClient, frames: bytes, answers: int) -> bool:
    try:
        client.send(frames)
        for _ in range(answers):
            client.skip_answer()
    except ConnectionClosed:
        return True
    return False
