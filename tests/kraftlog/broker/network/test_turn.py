"""Small answers of one turn of the event loop are written together, after the first of them."""

from __future__ import annotations

import asyncio

from kraftlog.broker.network.turn import SMALL_ANSWER_BYTES, WAITING_MAX, Turn
from tests.kraftlog.broker.network.clients import Asked, RawClient, ask, name_of, named, network

SMALL = 100


class Notes:
    """Connections that note in which order they write."""

    def __init__(self) -> None:
        self.turn = Turn(asyncio.get_running_loop().call_soon)
        self.written: list[str] = []

    def write(self, name: str, size_bytes: int = SMALL) -> None:
        self.turn.write(_Named(name, self.written), size_bytes)


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
    notes.write("large", SMALL_ANSWER_BYTES + 1)
    notes.write("nothing", 0)
    notes.write("first")
    notes.write("waits")
    notes.write("large", SMALL_ANSWER_BYTES + 1)
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


async def test_clients_that_are_answered_in_one_turn_are_written_to_in_its_course() -> None:
    asked = Asked()
    async with (
        network(asked) as served,
        await RawClient.connect(served) as first,
        await RawClient.connect(served) as second,
    ):
        first.send(ask())
        to_first = await asked.reply()
        second.send(ask())
        to_second = await asked.reply()
        to_first(named("first"))
        written = served.counters.bytes_out
        to_second(named("second"))
        assert served.counters.bytes_out == written > 0
        assert [name_of(await client.receive()) for client in (first, second)] == ["first", "second"]


async def test_a_client_that_is_gone_before_its_answer_is_written_costs_the_others_nothing() -> None:
    asked = Asked()
    async with (
        network(asked) as served,
        await RawClient.connect(served) as first,
        await RawClient.connect(served) as third,
    ):
        second = await RawClient.connect(served)
        replies = []
        for client in (first, second, third):
            client.send(ask())
            replies.append(await asked.reply())
        for reply in replies:
            reply(named("answer"))
        second.writer.transport.abort()
        assert [name_of(await client.receive()) for client in (first, third)] == ["answer", "answer"]
