"""A client that drops answers counts them, however the bytes come, and sees that a connection is closed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import closing

import pytest

from kraftlog.clients.raw_client import ConnectionClosed, RawClient, exchange
from kraftlog.kafka.frames import LENGTH


def frame(size: int) -> bytes:
    return LENGTH.pack(size) + bytes(size)


def served(listener: socket.socket, answers: Sequence[bytes]) -> threading.Thread:
    """Each connection gets the next of these bytes when something was sent, and is closed."""

    def serve() -> None:
        for data in answers:
            with closing(listener.accept()[0]) as one:
                one.recv(1)
                for at in range(len(data)):
                    one.send(data[at : at + 1])

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.fixture
def listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def address(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_answers_are_counted_byte_by_byte(listener: socket.socket) -> None:
    thread = served(listener, [frame(4) + frame(300) + frame(5)[:-1]])
    with closing(listener), RawClient(address(listener)) as client:
        client.send(b"x")
        ended = client.skip_some()
        with pytest.raises(ConnectionClosed):
            while True:
                ended += client.skip_some()
        assert ended == 2
        thread.join()


def test_a_connection_that_is_closed_instead_of_an_answer_is_refused(listener: socket.socket) -> None:
    thread = served(listener, [frame(4) + frame(9), frame(4) + frame(8)[:-1], b"", frame(7) * 2])
    with closing(listener):
        assert exchange(address(listener), 4, b"x", 2) == 2
        thread.join()


def test_a_connection_can_end_with_a_reset(listener: socket.socket) -> None:
    with closing(listener), RawClient(address(listener)) as client, closing(listener.accept()[0]) as one:
        client.reset_at_close()
        client.__exit__()
        with pytest.raises(ConnectionResetError):
            one.recv(1)
