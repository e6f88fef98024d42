"""What clients and handlers do wrong costs one connection, and one bounded line in the log."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import InvariantViolation
from kraftbase.line_rate import LINES_MAX, TEXT_CHARACTERS_MAX
from kraftlog.kafka.frames import LENGTH
from kraftlog.kafka.messages.metadata import MetadataResponse
from kraftlog.network.counters import Closed
from kraftlog.network.rate_limited_log import TRACEBACK_CHARACTERS_MAX, RateLimitedLog
from kraftlog.network.requests import ClientRequest, ConnectionRefused, Reply
from tests.kraftlog.network.clients import KIB, Asked, RawClient, answer_at_once, ask, large, name_of, named, network
from tests.statemachine.waiting import until

MALFORMED = {
    "a length below 0": "ffffffff",
    "a length above the limit": "00100001",
    "a length below a header's": "00000003",
    "an unknown API": "0000000a 0063 0000 00000000 ffff",
    "a version that is not offered": "0000000a 0003 7fff 00000000 ffff",
    "an array that ends too early": "0000000e 0003 0001 00000000 ffff 7fffffff",
    "a text that is longer than the request": "0000000a 0003 0001 00000000 7fff",
    "a browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".hex(),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_request_closes_its_connection_after_earlier_answers(data: str) -> None:
    async with (
        network(answer_at_once, request_bytes_max=1024 * KIB) as served,
        await RawClient.connect(served) as good,
        await RawClient.connect(served) as bad,
    ):
        assert await good.ask("before") == "before"
        with capture_logs() as lines:
            bad.writer.write(bad.bytes_of(ask("earlier")) + bytes.fromhex(data))
            assert name_of(await bad.receive()) == "earlier"
            assert await bad.is_closed()
        assert served.counters.connections_closed == {Closed.MALFORMED: 1}
        assert [(line["reason"], line["address"]) for line in lines] == [(str(Closed.MALFORMED), "127.0.0.1")]
        assert len(lines[0]["error"]) <= TEXT_CHARACTERS_MAX
        assert await good.ask("after") == "after"
        assert (served.counters.queued_bytes, served.counters.connections_open) == (0, 1)


async def test_random_bytes_cost_nobody_else_anything() -> None:
    random = Random("frames")
    async with network(answer_at_once) as served, await RawClient.connect(served) as good:
        for number in range(300):
            frame = bytearray(good.bytes_of(ask("x"))[4:])
            for _ in range(random.randrange(1, 6)):
                frame[random.randrange(len(frame))] = random.randrange(256)
            async with await RawClient.connect(served) as bad:
                data = bytes(frame) if number % 2 else random.randbytes(random.randrange(10, 200))
                bad.writer.write(LENGTH.pack(len(data)) + data)
                bad.writer.write_eof()
                await bad.reader.read()
        async with await RawClient.connect(served) as other:
            assert await other.ask("served") == "served"
        await until(lambda: served.counters.connections_open == 1)
        assert (served.counters.queued_bytes, served.counters.unsent_bytes) == (0, 0)


# --- handlers ---------------------------------------------------------------------------------------------------------


class Raising:
    """Raises what it is told to, if the request has a name; else it answers."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, request: ClientRequest, reply: Reply) -> None:
        if request.context.client_id and request.body == ask("raise"):
            raise self._error
        answer_at_once(request, reply)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("x" * 10_000), Closed.FAILED),
        (asyncio.CancelledError(), Closed.FAILED),
        (ConnectionRefused("acks=0"), Closed.BY_HANDLER),
    ],
    ids=["an error", "a cancelled future", "a refusal"],
)
async def test_what_a_handler_raises_closes_its_connection_only(error: BaseException, reason: Closed) -> None:
    async with network(Raising(error)) as served, await RawClient.connect(served) as other:
        with capture_logs() as lines:
            async with await RawClient.connect(served) as client:
                client.send(ask("earlier"), ask("raise"), ask("never"))
                assert name_of(await client.receive()) == "earlier"
                assert await client.is_closed()
        assert served.counters.connections_closed == {reason: 1}
        assert served.counters.requests == 2
        assert await other.ask("on") == "on"
    if reason is Closed.BY_HANDLER:
        assert lines == []
    else:
        assert [line["reason"] for line in lines] == [str(reason)]
        assert lines[0]["error"].startswith(type(error).__name__)
        assert len(lines[0]["error"]) <= TEXT_CHARACTERS_MAX
        assert "Raising" not in lines[0]["error"] and "raise self._error" in lines[0]["traceback"]
        assert len(lines[0]["traceback"]) <= TRACEBACK_CHARACTERS_MAX


async def test_what_must_end_the_process_is_told() -> None:
    violation, fatal = InvariantViolation("a bug"), []
    async with network(Raising(violation), fatal.append) as served, await RawClient.connect(served) as client:
        client.send(ask("raise"))
        assert await client.is_closed()
        assert fatal == [violation]


async def test_a_late_answer_that_cannot_be_written_closes_its_connection_only() -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(ask(), ask(), ask())
        first, second, third = [await asked.reply() for _ in range(3)]
        second(MetadataResponse(controller_id=2**40))
        assert served.counters.connections_open == 1
        with capture_logs() as lines:
            first(named("first"))
        third(named("third"))
        assert name_of(await client.receive()) == "first"
        assert await client.is_closed()
        assert served.counters.connections_closed == {Closed.FAILED: 1}
        assert (served.counters.answers_unwanted, served.counters.queued_bytes) == (1, 0)
        assert lines[0]["error"].startswith("UnwritableValue: MetadataResponse.controller_id")


async def test_a_second_answer_to_one_request_closes_its_connection_only() -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(ask())
        reply = await asked.reply()
        reply(named("first"))
        reply(named("second"))
        assert name_of(await client.receive()) == "first"
        assert await client.is_closed()
        assert served.counters.connections_closed == {Closed.FAILED: 1}


async def test_a_late_answer_with_a_bug_is_told() -> None:
    asked, fatal = Asked(), []
    async with network(asked, fatal.append) as served, await RawClient.connect(served) as client:
        client.send(ask())
        (await asked.reply())(large(1))
        assert await client.is_closed()
        assert [type(error) for error in fatal] == [InvariantViolation]


# --- log lines --------------------------------------------------------------------------------------------------------


def test_lines_are_limited_for_each_reason_and_the_next_one_says_how_many_were_left_out() -> None:
    now = 5.0
    complaints = RateLimitedLog(lambda: now)
    with capture_logs() as lines:
        for _ in range(LINES_MAX + 7):
            complaints.log(Closed.MALFORMED, "192.0.2.1")
        complaints.log(Closed.SLOW, "192.0.2.1")
        assert [line["reason"] for line in lines] == [str(Closed.MALFORMED)] * LINES_MAX + [str(Closed.SLOW)]
        now += 60
        complaints.log(Closed.MALFORMED, "192.0.2.2")
        complaints.log(Closed.MALFORMED, "192.0.2.2")
    assert [line.get("left_out_before") for line in lines[LINES_MAX + 1 :]] == [7, None]
