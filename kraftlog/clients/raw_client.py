"""A client that sends frames and waits for answers without decoding them, so that its own work delays nothing."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from selectors import EVENT_READ, DefaultSelector
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
        self._length = b""
        """The received bytes of a length field."""
        self._left = 0
        """Remaining bytes of the current answer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def reset_at_close(self) -> None:
        """Make the end of the block reset the connection, as when a client's machine fails."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def send(self, data: bytes) -> None:
        """Send bytes. Raises ConnectionClosed."""
        try:
            self._socket.sendall(data)
        except (ConnectionError, TimeoutError) as error:
            raise ConnectionClosed from error

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def skip_answer(self) -> None:
        """Wait for the expected answer, and drop it. Raises ConnectionClosed."""
        while not self.skip_some():
            pass

    def skip_some(self) -> int:
        """Wait for bytes, and drop them; returns how many answers have ended with them. Raises ConnectionClosed."""
        ended, at, end = 0, 0, self._some()
        while at < end:
            if self._left:
                step = min(self._left, end - at)
                self._left -= step
                ended += not self._left
            else:
                step = min(LENGTH_BYTES - len(self._length), end - at)
                self._length += self._piece[at : at + step]
                if len(self._length) == LENGTH_BYTES:
                    (self._left,), self._length = LENGTH.unpack(self._length), b""
            at += step
        return ended

    def ask(self, request: Message) -> Message:
        """An answer as a message. Raises ConnectionClosed."""
        connection = ClientConnection("bench")
        self.send(b"".join(connection.send(request, VERSIONS[type(request)])))
        while (response := connection.next_event()) is None:
            connection.receive_data(self._piece[: self._some()])
        return response.body

    def _some(self) -> int:
        try:
            count = self._socket.recv_into(self._piece)
        except (ConnectionError, TimeoutError) as error:
            raise ConnectionClosed from error
        if not count:
            raise ConnectionClosed
        return count


def exchange(bootstrap_server: str, connections: int, frames: bytes, answers: int) -> int:
    """Send the same bytes over this many connections at once, and receive this many answers on each; return how many
    were refused. A connection that is closed instead of an answer counts as refused. One thread does this, to leave the
    processors to the broker and other clients.
    """
    refused = 0
    with ExitStack() as stack, DefaultSelector() as selector:
        clients = [stack.enter_context(RawClient(bootstrap_server)) for _ in range(connections)]
        left = dict.fromkeys(clients, answers)
        for client in clients:
            try:
                client.send(frames)
                selector.register(client, EVENT_READ)
            except ConnectionClosed:
                refused += 1
                del left[client]
        while left:
            for key, _ in selector.select():
                client = cast(RawClient, key.fileobj)
                try:
                    left[client] -= client.skip_some()
                except ConnectionClosed:
                    refused += 1
                    left[client] = 0
                if not left[client]:
                    del left[client]
                    selector.unregister(client)
    return refused
