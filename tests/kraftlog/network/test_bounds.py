"""Each bound: what is not read while it is reached, that it is read again after, and that others go on."""

from __future__ import annotations

import asyncio
import itertools
import resource

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ConfigurationError
from kraftlog.network.counters import Closed
from kraftlog.network.requests import ClientRequest, Reply
from kraftlog.network.serving import FILES_KEPT, Limits
from tests.kraftlog.network.clients import (
    KIB,
    MIB,
    Asked,
    RawClient,
    answer_at_once,
    ask,
    name_of,
    named,
    network,
    produce,
)
from tests.statemachine.waiting import until


@pytest.mark.parametrize("name", sorted(Limits.__dataclass_fields__))
def test_a_limit_below_its_least_value_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name} is 0; it must be at least 1"):
        Limits(**{name: 0})


def test_a_request_has_no_more_bytes_than_its_length_can_say() -> None:
    with pytest.raises(ConfigurationError, match=r"request_bytes_max is 2147483648; it must be at most 2147483647"):
        Limits(request_bytes_max=2**31)


# --- connections ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "reason"),
    [("connections_max", Closed.TOO_MANY), ("address_connections_max", Closed.TOO_MANY_OF_ADDRESS)],
)
async def test_a_connection_too_many_is_closed_and_there_is_room_when_one_ends(limit: str, reason: Closed) -> None:
    async with network(answer_at_once, **{limit: 2}) as served, await RawClient.connect(served) as first:
        async with await RawClient.connect(served) as second:
            assert [await first.ask("1"), await second.ask("2")] == ["1", "2"]
            with capture_logs() as lines:
                async with await RawClient.connect(served) as third:
                    assert await third.is_closed()
            assert served.counters.connections_closed == {reason: 1}
            assert [line["reason"] for line in lines] == [str(reason)]
        await until(lambda: served.counters.connections_open == 1)
        async with await RawClient.connect(served) as fourth:
            assert await fourth.ask("4") == "4"
        assert served.counters.connections_accepted == 4


async def test_addresses_are_counted_each_by_itself() -> None:
    async with (
        network(answer_at_once, address_connections_max=1) as served,
        await RawClient.connect(served) as client,
    ):
        assert await client.ask("1") == "1"
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", served.ports["PLAINTEXT"], local_addr=("127.0.0.2", 0)
        )
        async with RawClient(reader, writer) as other:
            assert await other.ask("2") == "2"


async def test_connections_leave_open_files_to_the_logs() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_KEPT + 1, before[1]))
    try:
        async with (
            network(answer_at_once) as served,
            await RawClient.connect(served) as client,
        ):
            assert await client.ask("one") == "one"
            async with await RawClient.connect(served) as other:
                assert await other.is_closed()
            assert served.counters.connections_closed == {Closed.TOO_MANY: 1}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_an_idle_connection_is_closed() -> None:
    asked = Asked()
    async with network(asked, idle_timeout_ms=300) as served, await RawClient.connect(served) as client:
        client.send(ask())
        reply = await asked.reply()
        async with await RawClient.connect(served) as idle:
            assert await idle.is_closed()
        assert served.counters.connections_open == 1, "the other one waits for its answer"
        reply(named("late"))
        assert name_of(await client.receive()) == "late"
        assert await client.is_closed()
        assert served.counters.connections_closed[Closed.IDLE] == 2


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_no_more_requests_than_allowed_wait_for_answers() -> None:
    asked = Asked()
    async with network(asked, connection_requests_max=2) as served, await RawClient.connect(served) as client:
        client.send(*[ask() for _ in range(5)])
        replies = [await asked.reply(), await asked.reply()]
        assert (asked.waiting.qsize(), served.counters.connections_paused) == (0, 1)
        replies[1](named("1"))  # cannot be sent yet
        assert asked.waiting.qsize() == 0
        replies[0](named("0"))
        replies += [await asked.reply(), await asked.reply()]
        assert (asked.waiting.qsize(), served.counters.connections_paused) == (0, 1)
        replies[2](named("2"))
        replies[3](named("3"))
        (await asked.reply())(named("4"))
        assert [name_of(await client.receive()) for _ in range(5)] == list("01234")
        assert served.counters.connections_paused == 0
        assert not await _asks_in_vain(client, asked)


async def _asks_in_vain(client: RawClient, asked: Asked) -> bool:
    client.send(ask())
    (await asked.reply())(named("again"))
    return name_of(await client.receive()) != "again"


async def test_a_late_answer_of_nothing_lets_the_next_request_in() -> None:
    asked = Asked()
    async with network(asked, connection_requests_max=1) as served, await RawClient.connect(served) as client:
        for number in range(3):
            client.send(produce(number))
        for number in range(3):
            request, reply = await asked.next()
            assert request.body == produce(number)
            assert (asked.waiting.qsize(), served.counters.connections_paused) == (0, 1)
            reply(None)
        assert served.counters.connections_paused == 0


async def test_bytes_that_one_connection_has_queued() -> None:
    asked = Asked()
    async with (
        network(asked, connection_queued_bytes_max=150 * KIB) as served,
        await RawClient.connect(served) as client,
    ):
        for _ in range(4):
            client.send(produce(70 * KIB))
        first, second = await asked.reply(), await asked.reply()
        await until(lambda: served.counters.connections_paused == 1)
        assert asked.waiting.qsize() == 0
        assert 210 * KIB < served.counters.queued_bytes < 212 * KIB
        first(None)
        third = await asked.reply()
        await until(lambda: served.counters.connections_paused == 1)
        assert asked.waiting.qsize() == 0
        second(None)
        third(None)
        (await asked.reply())(None)
        assert (served.counters.queued_bytes, served.counters.connections_paused) == (0, 0)


async def test_one_request_may_be_larger_than_the_bounds_on_queued_bytes() -> None:
    asked = Asked()
    async with (
        network(asked, connection_queued_bytes_max=KIB, queued_bytes_max=KIB) as served,
        await RawClient.connect(served) as client,
    ):
        for _ in range(2):
            client.send(produce(3 * MIB))
        for _ in range(2):
            reply = await asked.reply()
            assert asked.waiting.qsize() == 0
            reply(None)


async def test_bytes_that_all_connections_have_queued() -> None:
    asked = Asked()
    async with (
        network(asked, queued_bytes_max=100 * KIB) as served,
        await RawClient.connect(served) as first,
        await RawClient.connect(served) as second,
        await RawClient.connect(served) as third,
    ):
        replies = []
        first.send(produce(70 * KIB))
        replies.append(await asked.reply())
        for waiting, client in enumerate((second, third), start=1):
            client.send(produce(71 * KIB))
            await until(lambda waiting=waiting: served.counters.connections_paused == waiting)
        assert (asked.waiting.qsize(), served.counters.queued_bytes // KIB) == (0, 70)
        for _ in range(2):
            replies.pop()(None)
            replies.append(await asked.reply())
            assert (asked.waiting.qsize(), served.counters.queued_bytes // KIB) == (0, 71)
        replies.pop()(None)
        assert (served.counters.queued_bytes, served.counters.connections_paused) == (0, 0)


async def test_who_waits_for_room_holds_nothing_that_one_who_waits_before_it_needs() -> None:
    """The second waits until nobody holds anything; the first holds bytes that were of an earlier request."""
    asked = Asked()
    async with (
        network(asked, queued_bytes_max=100 * KIB) as served,
        await RawClient.connect(served) as first,
        await RawClient.connect(served) as second,
    ):
        first.send(produce(30 * KIB))
        earlier = await asked.reply()
        second.send(produce(900 * KIB))
        await until(lambda: served.counters.connections_paused == 1)
        first.send(produce(70 * KIB))
        await until(lambda: served.counters.connections_paused == 2)
        earlier(None)
        for size_bytes in (900 * KIB, 70 * KIB):
            request, reply = await asked.next()
            assert size_bytes < request.size_bytes < size_bytes + KIB
            reply(None)
        assert (served.counters.queued_bytes, served.counters.connections_paused) == (0, 0)


async def test_who_waits_for_room_and_is_gone_waits_no_more() -> None:
    asked = Asked()
    async with (
        network(asked, queued_bytes_max=100 * KIB) as served,
        await RawClient.connect(served) as first,
        await RawClient.connect(served) as third,
    ):
        first.send(produce(70 * KIB))
        reply = await asked.reply()
        second = await RawClient.connect(served)
        second.send(produce(90 * KIB))
        await until(lambda: served.counters.connections_paused == 1)
        third.send(produce(80 * KIB))
        await until(lambda: served.counters.connections_paused == 2)
        second.reset()
        reply(None)
        request, reply = await asked.next()
        if request.size_bytes > 85 * KIB:  # a reset shows only when the connection is read again
            reply(None)
            request, reply = await asked.next()
        assert 80 * KIB < request.size_bytes < 81 * KIB
        reply(None)
        await until(lambda: served.counters.connections_open == 2)
        assert (served.counters.queued_bytes, served.counters.connections_paused) == (0, 0)


async def test_a_request_whose_rest_does_not_come_while_others_wait_for_its_memory() -> None:
    async with (
        network(answer_at_once, queued_bytes_max=MIB, slow_timeout_ms=100) as served,
        await RawClient.connect(served) as slow,
        await RawClient.connect(served) as other,
    ):
        slow.writer.write(slow.bytes_of(produce(MIB))[: 100 * KIB])
        counters = served.counters
        await until(lambda: counters.queued_bytes > MIB or counters.connections_closed[Closed.SLOW] == 1)
        other.send(produce(200 * KIB), ask("served"))
        assert name_of(await other.receive()) == "served"
        assert await slow.is_closed()
        assert served.counters.connections_closed == {Closed.SLOW: 1}
        assert served.counters.queued_bytes == 0


# --- throttling -------------------------------------------------------------------------------------------------------


async def test_a_throttled_client_is_answered_and_not_read_for_that_long() -> None:
    asked, loop = Asked(), asyncio.get_running_loop()
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(ask(), ask())
        first, second = await asked.reply(), await asked.reply()
        begun = loop.time()
        first(named("first"), throttle_ms=60)
        second(named("second"), throttle_ms=20)
        assert served.counters.connections_paused == 1
        assert [name_of(await client.receive()) for _ in range(2)] == ["first", "second"]
        client.send(ask())
        (await asked.reply())(named("third"))
        assert round(loop.time() - begun, 6) >= 0.06
        assert name_of(await client.receive()) == "third"
        assert served.counters.connections_paused == 0


async def test_requests_that_were_read_wait_as_well_while_their_client_is_throttled() -> None:
    seen: list[float] = []
    loop = asyncio.get_running_loop()

    def handler(request: ClientRequest, reply: Reply) -> None:
        seen.append(loop.time())
        reply(named(""), throttle_ms=30)

    async with network(handler) as served, await RawClient.connect(served) as client:
        client.send(ask(), ask(), ask())
        for _ in range(3):
            await client.receive()
        assert [round(later - earlier, 6) >= 0.03 for earlier, later in itertools.pairwise(seen)] == [True, True]


async def test_a_throttled_client_costs_others_nothing_and_the_end_does_not_wait_for_it() -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as throttled:
        throttled.send(ask())
        (await asked.reply())(named("for long"), throttle_ms=10_000_000)
        assert name_of(await throttled.receive()) == "for long"
        throttled.send(ask())
        async with await RawClient.connect(served) as other:
            other.send(ask())
            (await asked.reply())(named("other"))
            assert name_of(await other.receive()) == "other"
    assert served.counters.connections_closed[Closed.ENDING] >= 1
