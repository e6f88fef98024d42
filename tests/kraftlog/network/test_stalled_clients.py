"""Clients that fetch much and read nothing, or announce much and do not send it: others have room all the same."""

from __future__ import annotations

from kraftlog.kafka.messages.fetch import FetchRequest
from kraftlog.network.counters import Closed
from tests.kraftlog.network.clients import (
    KIB,
    MIB,
    Asked,
    RawClient,
    answer_at_once,
    ask,
    fetch,
    large,
    network,
    produce,
)
from tests.statemachine.waiting import until


async def test_small_requests_do_not_wait_for_large_ones_that_do_not_come() -> None:
    asked = Asked()
    async with (
        network(asked, queued_bytes_max=2 * MIB) as served,
        await RawClient.connect(served) as hoarder,
        await RawClient.connect(served) as another,
        await RawClient.connect(served) as client,
    ):
        for greedy in (hoarder, another):
            greedy.writer.write(greedy.bytes_of(produce(2 * MIB))[: 100 * KIB])
        await until(lambda: served.counters.connections_paused == 1)
        for _ in range(3):
            client.send(produce(100 * KIB))
            (await asked.reply())(None)
        assert served.counters.queued_bytes == 2 * MIB * 3 // 4


async def test_an_answer_has_a_part_of_the_room_that_is_left() -> None:
    asked = Asked()
    async with network(asked, unsent_bytes_max=40 * MIB) as served, await RawClient.connect(served) as client:
        client.send(ask(), FetchRequest(), ask())
        await asked.next()
        _, reply = await asked.next()
        request, _ = await asked.next()
        assert request.slices.answer_room_bytes == 20 * MIB
        reply(large(20 * MIB))
        assert 10 * MIB - KIB <= request.slices.answer_room_bytes <= 10 * MIB


async def test_what_a_client_that_is_closed_did_not_take_is_not_held() -> None:
    async with (
        network(answer_at_once, unsent_bytes_max=MIB, slow_timeout_ms=600) as served,
        await RawClient.connect(served) as slow,
        await RawClient.connect(served) as other,
    ):
        slow.writer.transport.pause_reading()
        slow.send(fetch(64 * MIB))
        await until(lambda: served.counters.unsent_bytes > MIB)
        assert await other.ask("served") == "served"
        assert served.counters.connections_closed[Closed.SLOW] == 1
        assert served.counters.unsent_bytes == 0
