"""What clients do not take of their answers is bounded, and costs others nothing."""

from __future__ import annotations

from asyncio import selector_events
from collections.abc import Iterable
from typing import Any

import pytest
from structlog.testing import capture_logs

from kraftlog.kafka.messages.fetch import FetchRequest
from kraftlog.network.counters import Closed
from kraftlog.network.requests import ClientRequest, Reply
from kraftlog.network.serving import Network
from tests.kraftlog.network.clients import (
    KIB,
    MIB,
    Asked,
    RawClient,
    answer_at_once,
    ask,
    fetch,
    large,
    name_of,
    named,
    network,
)
from tests.statemachine.waiting import until


class UnsentSeen:
    """A handler that answers at once, and notes how much is unsent whenever it gets a request for a name."""

    def __init__(self) -> None:
        self.served: Network
        self.unsent_bytes: list[int] = []

    def __call__(self, request: ClientRequest, reply: Reply) -> None:
        if not isinstance(request.body, FetchRequest):
            self.unsent_bytes.append(self.served.counters.unsent_bytes)
        answer_at_once(request, reply)


async def test_a_client_that_does_not_take_its_answers_is_not_read() -> None:
    seen = UnsentSeen()
    async with network(seen, connection_unsent_bytes_max=MIB) as served:
        seen.served = served
        async with await RawClient.connect(served) as slow, await RawClient.connect(served) as other:
            slow.writer.transport.pause_reading()
            slow.send(fetch(64 * MIB), ask("after"))
            await until(lambda: served.counters.connections_paused == 1)
            assert served.counters.unsent_bytes > MIB
            assert await other.ask("meanwhile") == "meanwhile"
            assert len(seen.unsent_bytes) == 1
            slow.writer.transport.resume_reading()
            assert await slow.receive() == large(64 * MIB)
            assert name_of(await slow.receive()) == "after"
            assert seen.unsent_bytes[1] <= MIB
            await until(lambda: served.counters.unsent_bytes == 0)
            assert served.counters.connections_paused == 0


def _writelines_that_never_pauses(self: Any, pieces: Iterable[bytes]) -> None:
    """What asyncio's does in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 (CVE-2024-12254)."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(self, "_maybe_pause_protocol", lambda: None)
        self.write(b"".join(pieces))


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_client_that_takes_its_answers_late_is_read_again_on_a_python_whose_writelines_never_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selector_events._SelectorSocketTransport, "writelines", _writelines_that_never_pauses)
    async with (
        network(answer_at_once, connection_unsent_bytes_max=MIB) as served,
        await RawClient.connect(served) as slow,
    ):
        slow.writer.transport.pause_reading()
        slow.send(fetch(64 * MIB), ask("after"))
        await until(lambda: served.counters.connections_paused == 1)
        assert served.counters.unsent_bytes > MIB
        slow.writer.transport.resume_reading()
        assert await slow.receive() == large(64 * MIB)
        assert name_of(await slow.receive()) == "after"
        await until(lambda: served.counters.unsent_bytes == 0)
        assert served.counters.connections_paused == 0


async def test_answers_that_all_clients_together_do_not_take() -> None:
    seen = UnsentSeen()
    async with network(seen, unsent_bytes_max=MIB, slow_timeout_ms=1_000_000) as served:
        seen.served = served
        async with await RawClient.connect(served) as slow, await RawClient.connect(served) as other:
            slow.writer.transport.pause_reading()
            slow.send(fetch(64 * MIB))
            await until(lambda: served.counters.unsent_bytes > MIB)
            other.send(ask("when there is room"))
            await until(lambda: served.counters.connections_paused == 2)
            assert seen.unsent_bytes == []
            slow.writer.transport.resume_reading()
            assert await slow.receive() == large(64 * MIB)
            assert name_of(await other.receive()) == "when there is room"
            assert seen.unsent_bytes[0] <= MIB
            await until(lambda: served.counters.unsent_bytes == 0)
            assert served.counters.connections_paused == 0


async def test_a_slow_client_costs_only_its_own_connection() -> None:
    with capture_logs() as lines:
        async with (
            network(answer_at_once, unsent_bytes_max=MIB, slow_timeout_ms=10) as served,
            await RawClient.connect(served) as slow,
            await RawClient.connect(served) as other,
        ):
            slow.writer.transport.pause_reading()
            slow.send(fetch(64 * MIB))
            assert await other.ask("served") == "served"
            await until(lambda: served.counters.connections_open == 1)
            assert await other.ask("still") == "still"
            assert served.counters.connections_closed == {Closed.SLOW: 1}
            assert served.counters.unsent_bytes == 0
    assert [(line["reason"], line["what"]) for line in lines] == [("a slow client", "has not taken its answers")]


async def test_a_client_that_does_not_read_is_slow_after_its_connection_was_closed_too() -> None:
    asked = Asked()
    async with network(asked, slow_timeout_ms=10) as served, await RawClient.connect(served) as slow:
        slow.writer.transport.pause_reading()
        slow.send(FetchRequest())
        (await asked.reply())(large(64 * MIB))
        slow.writer.write(bytes.fromhex("ffffffff"))
        await until(lambda: served.counters.connections_open == 0)
        assert served.counters.unsent_bytes == 0
        assert sum(served.counters.connections_closed.values()) == 1


async def test_answers_before_their_turn_count_and_what_they_wait_for_is_answered_while_others_wait() -> None:
    asked = Asked()
    async with (
        network(asked, unsent_bytes_max=MIB, slow_timeout_ms=1_000) as served,
        await RawClient.connect(served) as client,
        await RawClient.connect(served) as other,
    ):
        client.send(ask(), FetchRequest())
        request, reply = await asked.next()
        request.on_client_done.append(lambda: reply(named("early")))
        (await asked.reply())(large(2 * MIB))
        assert 2 * MIB <= served.counters.unsent_bytes <= 2 * MIB + KIB
        other.send(ask())
        assert name_of(await client.receive()) == "early"
        assert await client.receive() == large(2 * MIB)
        (await asked.reply())(named("other"))
        assert name_of(await other.receive()) == "other"
        await until(lambda: served.counters.unsent_bytes == 0)


async def test_a_connection_that_is_closed_gives_back_the_room_of_answers_before_their_turn() -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(ask(), FetchRequest())
        await asked.reply()
        (await asked.reply())(large(MIB // 2))
        assert served.counters.unsent_bytes >= MIB // 2
        client.writer.write(bytes.fromhex("ffffffff"))
        assert await client.is_closed()
        assert served.counters.unsent_bytes == 0
        await until(lambda: served.counters.connections_closed == {Closed.MALFORMED: 1})
