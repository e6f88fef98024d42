"""Small answers are written together, soon after the first of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any, Final

import pytest

from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.notation import Message
from kraftlog.network import connection as connection_module
from kraftlog.network import small_answers as small_answers_module
from kraftlog.network import turns as turns_module
from kraftlog.network.connection import Connection
from kraftlog.network.connections import Connections
from kraftlog.network.limits import Limits
from kraftlog.network.requests import ClientRequest, Reply
from kraftlog.network.small_answers import SMALL_BYTES, WAITING_MAX, SmallAnswers
from tests.kraftlog.network.clients import (
    KIB,
    OFFERED,
    PLAINTEXT,
    Asked,
    RawClient,
    answer_at_once,
    ask,
    name_of,
    named,
    network,
    never,
    produce,
)
from tests.statemachine.waiting import until

SMALL = 100
LONG_SECONDS: Final = 3_600.0


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens in one turn here is in one turn on a slow machine, too: first requests take longest."""
    monkeypatch.setattr(turns_module, "TURN_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(connection_module, "SLICE_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(small_answers_module, "WAIT_SECONDS_MAX", LONG_SECONDS)


class Notes:
    """Connections that note in which order they write."""

    def __init__(self) -> None:
        self.now = 0.0
        self.answers = SmallAnswers(asyncio.get_running_loop().call_soon, lambda: self.now)
        self.written: list[str] = []

    def write(self, name: str, size_bytes: int = SMALL) -> None:
        self.answers.write(_Named(name, self.written), size_bytes)


class _Named:
    def __init__(self, name: str, written: list[str]) -> None:
        self._name = name
        self._written = written

    def write(self) -> None:
        self._written.append(self._name)


async def test_the_first_is_written_at_once_and_the_others_at_the_end_of_the_turn() -> None:
    notes = Notes()
    for name in "abc":
        notes.write(name)
    assert notes.written == ["a"]
    await asyncio.sleep(0)
    assert notes.written == ["a", "b", "c"]


async def test_the_next_turn_has_a_first_one_too() -> None:
    notes = Notes()
    for expected in (["a"], ["a", "a"]):
        notes.write("a")
        assert notes.written == expected
        await asyncio.sleep(0)


async def test_what_is_large_or_nothing_does_not_wait() -> None:
    notes = Notes()
    notes.write("large", SMALL_BYTES + 1)
    notes.write("nothing", 0)
    notes.write("first")
    notes.write("waits")
    notes.write("large", SMALL_BYTES + 1)
    notes.write("nothing", 0)
    assert notes.written == ["large", "nothing", "first", "large", "nothing"]
    await asyncio.sleep(0)
    assert notes.written[-1] == "waits"


async def test_many_do_not_wait_for_the_end_of_the_turn() -> None:
    notes = Notes()
    for number in range(WAITING_MAX + 2):
        notes.write(str(number))
    assert notes.written == [str(number) for number in range(WAITING_MAX + 1)]
    await asyncio.sleep(0)
    assert notes.written[-1] == str(WAITING_MAX + 1)


async def test_what_has_waited_for_long_is_written_when_the_request_in_hand_is_handled() -> None:
    notes = Notes()
    for name in "ab":
        notes.write(name)
    notes.now += LONG_SECONDS / 2
    notes.write("parked", 0)
    assert notes.written == ["a", "parked"]
    notes.now += LONG_SECONDS / 2
    notes.write("parked", 0)
    assert notes.written == ["a", "parked", "parked", "b"]


class _Socket(asyncio.Transport):
    """A transport whose client takes everything."""

    def __init__(self) -> None:
        self.ends = socket.socketpair()
        super().__init__({"peername": ("127.0.0.1", 1), "socket": self.ends[0]})
        self.written_bytes = 0
        self.is_paused = False

    def __del__(self) -> None:
        for end in self.ends:
            end.close()

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.written_bytes += sum(map(len, list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def _connected(connections: Connections, made: _Socket) -> Connection:
    connection = Connection(connections, PLAINTEXT)
    connection.connection_made(made)
    return connection


def _feed(connection: Connection, *bodies: Message) -> None:
    """Have a connection read requests at once."""
    client = ClientConnection("client")
    data = memoryview(b"".join(piece for body in bodies for piece in client.send(body, OFFERED[body.KEY].highest)))
    while data:
        space = connection.get_buffer(-1)
        count = min(len(space), len(data))
        space[:count] = data[:count]
        data = data[count:]
        connection.buffer_updated(count)


async def test_a_large_request_is_not_handled_before_the_answers_that_wait_are_written() -> None:
    seen: list[int] = []

    def handler(request: ClientRequest, reply: Reply) -> None:
        seen.append(sum(made.written_bytes for made in sockets))
        reply(named("answer") if request.size_bytes < KIB else None)

    connections = Connections(handler, Limits(), OFFERED, never)
    sockets = [_Socket() for _ in range(3)]
    for made, body in zip(sockets, (ask(), ask(), produce(100 * KIB)), strict=True):
        _feed(_connected(connections, made), body)
    size_bytes = sockets[0].written_bytes
    assert size_bytes > 0
    assert seen == [0, size_bytes, 2 * size_bytes]


async def test_a_connection_that_may_have_little_unsent_is_read_on_when_that_is_sent() -> None:
    connections = Connections(answer_at_once, Limits(connection_unsent_bytes_max=1), OFFERED, never)
    sockets = [_Socket() for _ in range(2)]
    for made in sockets:
        _feed(_connected(connections, made), ask("answer"), ask("answer"))
    assert sockets[1].is_paused
    await until(lambda: sockets[0].written_bytes == sockets[1].written_bytes > 0 and not sockets[1].is_paused)
    await until(lambda: connections.counters.requests == 4)


async def test_clients_that_ask_in_one_turn_are_written_to_together_after_the_first_of_them() -> None:
    written: list[int] = []

    def handler(request: ClientRequest, reply: Reply) -> None:
        written.append(served.counters.bytes_out)
        reply(named("answer"))

    async with (
        network(handler) as served,
        await RawClient.connect(served) as first,
        await RawClient.connect(served) as second,
        await RawClient.connect(served) as third,
    ):
        await until(lambda: served.counters.connections_open == 3)
        clients = (first, second, third)
        for client in clients:
            client.send(ask())
        assert [name_of(await client.receive()) for client in clients] == ["answer", "answer", "answer"]
        size_bytes = served.counters.bytes_out // 3
        assert written == [0, size_bytes, size_bytes]


async def test_an_answer_that_comes_later_is_written_at_once() -> None:
    asked = Asked()
    async with (
        network(asked) as served,
        await RawClient.connect(served) as first,
        await RawClient.connect(served) as second,
    ):
        replies = []
        for client in (first, second):
            client.send(ask())
            replies.append(await asked.reply())
        replies[0](named("answer"))
        written = served.counters.bytes_out
        replies[1](named("answer"))
        assert served.counters.bytes_out == 2 * written > 0


async def test_a_client_that_is_gone_before_its_answer_is_written_costs_the_others_nothing() -> None:
    async with (
        network(answer_at_once) as served,
        await RawClient.connect(served) as first,
        await RawClient.connect(served) as third,
    ):
        second = await RawClient.connect(served)
        await until(lambda: served.counters.connections_open == 3)
        for client in (first, second, third):
            client.send(ask("answer"))
        second.writer.transport.abort()
        assert [name_of(await client.receive()) for client in (first, third)] == ["answer", "answer"]
