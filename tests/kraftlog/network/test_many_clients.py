"""Many clients with little room: each gets all its answers, in order, whatever the bounds keep waiting meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from random import Random

import pytest

from kraftlog.kafka.frames import FrameReader
from kraftlog.kafka.messages.fetch import FetchRequest
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import ClientRequest, Reply
from tests.kraftlog.network.clients import (
    KIB,
    Asked,
    RawClient,
    answer_at_once,
    ask,
    fetch,
    large,
    name_of,
    network,
    produce,
)
from tests.statemachine.waiting import until

CLIENTS = 12
REQUESTS = 60
LIMITS = {
    "connection_requests_max": 4,
    "connection_queued_bytes_max": 200 * KIB,
    "queued_bytes_max": 400 * KIB,
    "connection_unsent_bytes_max": 100 * KIB,
    "unsent_bytes_max": 300 * KIB,
    "slow_timeout_ms": 10_000_000,
}


class Whenever:
    """A handler that answers some requests at once, and others late, in any order; some clients are throttled."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._late: list[Callable[[], None]] = []
        self.handled = 0

    def __call__(self, request: ClientRequest, reply: Reply) -> None:
        self.handled += 1
        throttle_ms = self._random.choice([0] * 20 + [1, 3])

        def answer() -> None:
            answer_at_once(request, lambda response, _=0: reply(response, throttle_ms))

        if self._random.random() < 0.4:
            answer()
            return
        self._late.append(answer)
        self._loop.call_soon(self._answer_one)

    def _answer_one(self) -> None:
        self._late.pop(self._random.randrange(len(self._late)))()


def _request(random: Random, number: int) -> Message:
    size_bytes = random.choice([0, 100, 60 * KIB, 70 * KIB, 300 * KIB, 900 * KIB])
    return random.choice([ask(str(number)), ask(str(number)), produce(size_bytes), fetch(size_bytes)])


async def _ask_all(client: RawClient, requests: list[Message], random: Random) -> None:
    data = b"".join(map(client.bytes_of, requests))
    while data:
        size = random.choice([1, 10, 5_000, 100_000, 1_000_000])
        client.writer.write(data[:size])
        data = data[size:]
        await client.writer.drain()


async def _expect_all(client: RawClient, requests: list[Message]) -> None:
    for number, request in enumerate(requests):
        if isinstance(request, FetchRequest):
            assert await client.receive() == large(request.max_bytes)
        elif request == ask(str(number)):
            assert name_of(await client.receive()) == str(number)


@pytest.mark.parametrize("seed", range(3))
async def test_each_client_gets_all_its_answers_in_order(seed: int) -> None:
    random = Random(seed)
    handler = Whenever(random)
    async with network(handler, **LIMITS) as served:
        clients = [await RawClient.connect(served) for _ in range(CLIENTS)]
        plans = [[_request(random, number) for number in range(REQUESTS)] for _ in clients]
        async with asyncio.TaskGroup() as group:
            for client, plan in zip(clients, plans, strict=True):
                group.create_task(_ask_all(client, plan, random))
                group.create_task(_expect_all(client, plan))
        await until(lambda: handler.handled == CLIENTS * REQUESTS)
        counters = served.counters
        # A Produce without an answer is handled, and leaves the queue later.
        await until(lambda: not (served.counters.unsent_bytes or served.counters.queued_bytes))
        await until(lambda: not counters.connections_paused)
        assert (counters.connections_open, counters.connections_closed) == (12, {})
        for client in clients:
            client.writer.transport.abort()
        await until(lambda: counters.connections_open == 0)


async def test_clients_that_are_gone_at_any_time_leave_nothing_behind() -> None:
    random, asked = Random("gone"), Asked()
    async with network(asked, **LIMITS) as served:
        clients = [await RawClient.connect(served) for _ in range(3 * CLIENTS)]
        for client in clients:
            data = b"".join(client.bytes_of(_request(random, number)) for number in range(4))
            client.writer.write(data[: random.randrange(len(data) + 1)])
        random.shuffle(clients)
        for client in clients:
            if asked.waiting.qsize() and random.random() < 0.7:
                answer_at_once(*await asked.next())
            await asyncio.sleep(0)
            random.choice([client.reset, client.writer.transport.abort])()
        while served.counters.connections_open:
            while asked.waiting.qsize():
                answer_at_once(*await asked.next())
            await asyncio.sleep(0)
        counters = served.counters
        assert (counters.queued_bytes, counters.unsent_bytes, counters.connections_paused) == (0, 0, 0)
        async with await RawClient.connect(served) as other:
            other.send(ask("served"))
            answer_at_once(*await asked.next())
            assert name_of(await other.receive()) == "served"


async def test_connections_that_have_ended_give_their_memory_back_at_once() -> None:
    """They are garbage in cycles, which a collection may find an hour later: each had 64 KiB."""
    gc.collect()
    gc.disable()
    try:
        async with network(answer_at_once) as served:
            clients = [await RawClient.connect(served) for _ in range(CLIENTS)]
            clients[0].send(ask("first"))
            await clients[0].receive()
            part = clients[1].bytes_of(produce(900 * KIB))[: 300 * KIB]
            clients[1].writer.write(part)
            await until(lambda: served.counters.bytes_in > len(part))
            for client in clients:
                client.writer.close()
            await until(lambda: served.counters.connections_open == 0)
            clients.clear()
            with_space = [reader for reader in gc.get_objects() if isinstance(reader, FrameReader) and reader._shared]
            assert len(with_space) <= 1  # the first client's own
            assert not any(isinstance(of, FrameReader) and of.is_in_large_frame for of in gc.get_objects())
    finally:
        gc.enable()
