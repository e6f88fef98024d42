"""Listeners, requests and answers, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

import pytest

from kraftbase.errors import ConfigurationError, ErrorCode
from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.kafka.messages.metadata import MetadataRequest
from kraftlog.network import serving as serving_module
from kraftlog.network.connection import Connection
from kraftlog.network.counters import Closed
from kraftlog.network.requests import ClientRequest, QuotaClient, Reply, RequestContext
from kraftlog.network.serving import Limits, Listener, serving
from kraftlog.telemetry.registry import Registry
from tests.kraftlog.network.clients import (
    FETCH,
    KIB,
    MIB,
    OFFERED,
    PLAINTEXT,
    Asked,
    RawClient,
    answer_at_once,
    ask,
    fetch,
    large,
    name_of,
    named,
    network,
    never,
    produce,
)
from tests.statemachine.waiting import until


async def test_a_request_comes_with_whom_it_is_from() -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as client:
        data = client.bytes_of(ask("t"), 9)
        client.writer.write(data)
        request, reply = await asked.next()
        assert (request.api.name, request.version, request.size_bytes) == ("Metadata", 9, len(data))
        assert request.context == RequestContext("127.0.0.1", PLAINTEXT, "a client")
        assert request.context.quota_client == QuotaClient("ANONYMOUS", "a client")
        assert request.body == MetadataRequest(topics=ask("t").topics)
        reply(named("here"))
        assert name_of(await client.receive()) == "here"
        counters = served.counters
        assert (counters.requests, counters.bytes_in, counters.connections_open) == (1, len(data), 1)
        assert (counters.queued_bytes, counters.unsent_bytes, counters.connections_paused) == (0, 0, 0)


async def test_requests_of_one_connection_and_client_id_share_one_context() -> None:
    asked = Asked()
    other = ClientConnection("another")
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(ask("t"), ask("u"))
        client.writer.write(b"".join(piece for name in "vw" for piece in other.send(ask(name), 9)))
        first, second, third, fourth = [(await asked.next())[0].context for _ in range(4)]
        assert first is second
        assert third is fourth
        assert (third.client_id, third.address, third.listener_name) == ("another", first.address, first.listener_name)
        assert (third.quota_client, third.principal) == (QuotaClient("ANONYMOUS", "another"), first.principal)


async def test_late_answers_go_out_in_the_order_of_requests() -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(*[ask() for _ in range(5)])
        replies = [await asked.reply() for _ in range(5)]
        for number in (3, 1, 4, 0, 2):
            replies[number](named(str(number)))
        assert [name_of(await client.receive()) for _ in range(5)] == list("01234")


async def test_answers_at_once_and_late_ones_keep_their_order() -> None:
    late: list[Reply] = []

    def handler(request: ClientRequest, reply: Reply) -> None:
        if request.api.key == FETCH:
            late.append(reply)
        else:
            answer_at_once(request, reply)

    async with network(handler) as served, await RawClient.connect(served) as client:
        client.send(ask("a"), fetch(10), ask("b"))
        assert name_of(await client.receive()) == "a"
        late[0](large(10))
        assert await client.receive() == large(10)
        assert name_of(await client.receive()) == "b"


async def test_many_requests_in_one_read_are_all_answered() -> None:
    async with network(answer_at_once) as served, await RawClient.connect(served) as client:
        client.send(*[ask(str(number)) for number in range(500)])
        assert [name_of(await client.receive()) for _ in range(500)] == [str(number) for number in range(500)]


async def test_requests_and_answers_of_many_mebibytes() -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(produce(20 * MIB, acks=1))
        request, _ = await asked.next()
        assert request.body == produce(20 * MIB, acks=1)
        client.send(fetch(0))
    async with network(answer_at_once) as served, await RawClient.connect(served) as client:
        client.send(fetch(20 * MIB), ask("next"))
        assert await client.receive() == large(20 * MIB)
        assert name_of(await client.receive()) == "next"


async def test_a_produce_with_acks_0_is_not_answered() -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(produce(100), ask())
        first, second = await asked.reply(), await asked.reply()
        second(named("second"))
        first(None)
        assert name_of(await client.receive()) == "second"


async def test_a_version_of_api_versions_that_is_not_offered_reaches_the_handler() -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.writer.write(client.bytes_of(ApiVersionsRequest(client_software_name="a"), 4))
        request, reply = await asked.next()
        assert request.body is None
        reply(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        assert await client.receive() == ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


async def test_a_client_without_an_id() -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.writer.write(bytes.fromhex("0000000e 0003 0001 00000007 ffff 00000000"))
        assert (await asked.next())[0].context.client_id == ""


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_a_client_that_sends_nothing_more_gets_its_answers() -> None:
    asked = Asked()
    async with network(asked, connection_requests_max=1) as served, await RawClient.connect(served) as client:
        client.send(ask(), produce(10), ask())
        reply = await asked.reply()
        client.writer.write_eof()
        reply(named("first"))
        (await asked.reply())(None)
        (await asked.reply())(named("last"))
        assert [name_of(await client.receive()) for _ in range(2)] == ["first", "last"]
        assert await client.is_closed()
        await until(lambda: served.counters.connections_closed[Closed.BY_CLIENT] == 1)


async def test_an_answer_for_a_client_that_is_gone_is_dropped() -> None:
    asked = Asked()
    async with network(asked) as served:
        client = await RawClient.connect(served)
        client.send(ask())
        reply = await asked.reply()
        client.reset()
        await until(lambda: served.counters.connections_open == 0)
        assert served.counters.queued_bytes == 0
        reply(named("nobody"), throttle_ms=1000)
        reply(named("nobody"))
        assert served.counters.answers_unwanted == 2
        assert served.counters.bytes_out == 0
        async with await RawClient.connect(served) as other:
            other.send(ask())
            (await asked.reply())(named("served"))
            assert name_of(await other.receive()) == "served"


async def test_a_client_that_is_gone_in_the_middle_of_a_request() -> None:
    async with network(answer_at_once) as served:
        async with await RawClient.connect(served) as client:
            client.writer.write(client.bytes_of(produce(MIB))[: 500 * KIB])
            await until(lambda: served.counters.queued_bytes > MIB)
        await until(lambda: served.counters.connections_open == 0)
        assert served.counters.queued_bytes == 0


async def test_at_the_end_answers_are_still_sent() -> None:
    ending, ended = asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        async with network(answer_at_once, drain_timeout_ms=100_000) as served:
            ports.set_result(served)
            await ending.wait()
        ended.set()

    ports: asyncio.Future = asyncio.get_running_loop().create_future()
    serving_task = asyncio.create_task(serve())
    served = await ports
    async with await RawClient.connect(served) as client:
        client.send(fetch(32 * MIB))
        await until(lambda: served.counters.unsent_bytes > MIB)
        ending.set()
        with pytest.raises(ConnectionError):
            while True:
                async with await RawClient.connect(served) as refused:
                    await refused.is_closed()
        assert not ended.is_set()
        assert await client.receive() == large(32 * MIB)
        assert await client.is_closed()
    await serving_task
    assert served.counters.connections_closed[Closed.ENDING] >= 1


async def test_the_end_does_not_wait_for_a_client_that_does_not_read() -> None:
    asked = Asked()
    async with network(asked, drain_timeout_ms=1) as served:
        client = await RawClient.connect(served)
        client.writer.transport.pause_reading()
        client.send(fetch(0), ask())
        reply, late = await asked.reply(), await asked.reply()
        reply(large(64 * MIB), throttle_ms=1_000_000)
        assert served.counters.unsent_bytes > MIB
    assert (served.counters.connections_open, served.counters.unsent_bytes) == (0, 0)
    late(named("too late"))
    assert served.counters.answers_unwanted == 1
    client.writer.transport.abort()


# --- listening --------------------------------------------------------------------------------------------------------


def _serving(*listeners: Listener, allow_plaintext: bool = False):
    return serving(
        answer_at_once, listeners, Limits(), OFFERED, on_fatal=never, allow_plaintext=allow_plaintext
    )  # fmt: skip


async def _refusal(*listeners: Listener, allow_plaintext: bool = False) -> str:
    with pytest.raises(ConfigurationError) as refused:
        async with _serving(*listeners, allow_plaintext=allow_plaintext):
            pass
    return str(refused.value)


async def test_each_listener_has_its_port_and_its_name() -> None:
    asked = Asked()
    listeners = [Listener("ONE", "127.0.0.1", 0), Listener("OTHER", "localhost", 0)]
    async with serving(asked, listeners, Limits(), OFFERED, on_fatal=never) as served:
        assert sorted(served.ports) == ["ONE", "OTHER"]
        for name, port in served.ports.items():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with RawClient(reader, writer) as client:
                client.send(ask())
                assert (await asked.next())[0].context.listener_name == name


async def test_localhost_is_both_loopback_addresses_at_one_port() -> None:
    if not _has_ipv6():
        pytest.skip("this machine has no ::1")
    async with _serving(Listener(PLAINTEXT, "localhost", 0)) as served:
        for host in ("127.0.0.1", "::1"):
            async with await RawClient.connect(served, host) as client:
                assert await client.ask("both") == "both"


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_a_port_that_is_taken_is_named_and_the_others_are_free_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        port, free = taken.getsockname()[1], other.getsockname()[1]
        other.close()
        words = await _refusal(Listener("FREE", "127.0.0.1", free), Listener("TAKEN", "127.0.0.1", port))
        assert words == (
            f"cannot listen on TAKEN://127.0.0.1:{port}: the port {port} is in use at 127.0.0.1; stop what listens"
            " there, or choose another port"
        )
        async with _serving(Listener("FREE", "127.0.0.1", free)):
            pass
        async with _serving(Listener("FREE", "127.0.0.1", free)) as served:
            assert served.ports == {"FREE": free}


@pytest.mark.parametrize("host", ["0.0.0.0", ""])
async def test_addresses_that_others_reach_need_to_be_allowed(host: str) -> None:
    words = await _refusal(Listener(PLAINTEXT, host, 0))
    assert "other machines can reach" in words
    assert words.endswith("listen on localhost, or set allow.plaintext=true")
    async with (
        _serving(Listener(PLAINTEXT, host, 0), allow_plaintext=True) as served,
        await RawClient.connect(served) as client,
    ):
        assert await client.ask("allowed") == "allowed"


async def test_what_is_no_address_of_this_machine() -> None:
    assert "the name nowhere.invalid is unknown" in await _refusal(Listener("A", "nowhere.invalid", 0))
    words = await _refusal(Listener("A", "192.0.2.1", 0), allow_plaintext=True)
    assert words == "cannot listen on A://192.0.2.1:0: it is not an address of this machine; choose another"
    twice = await _refusal(Listener("A", "localhost", 0), Listener("A", "localhost", 0))
    assert twice == "listeners A, A: give each a name of its own"


async def test_small_answers_are_sent_without_delay() -> None:
    """With Nagle's algorithm a second small answer waits for the acknowledgement of the first."""
    found: list[int] = []

    class Looking(Connection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted = transport.get_extra_info("socket")
            found.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            found.append(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
            super().connection_made(transport)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(serving_module, "Connection", Looking)
        async with network(answer_at_once) as served, await RawClient.connect(served) as client:
            assert await client.ask("x") == "x"
    assert all(found) and len(found) == 2


@pytest.mark.parametrize("is_reset", [False, True])
async def test_who_keeps_a_request_waiting_is_told_when_its_client_is_done(is_reset: bool) -> None:
    asked = Asked()
    told: list[str] = []
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(ask("answered"), ask("waits"))
        for name in ("answered", "waits"):
            request, reply = await asked.next()
            request.on_client_done.append(partial(told.append, name))
            if name == "answered":
                reply(named("here"))
        await client.receive()
        if is_reset:
            client.reset()
        else:
            client.writer.write_eof()
        await until(lambda: bool(told))
        assert told == ["waits"]
        reply(named("what there is"))
        if not is_reset:
            assert name_of(await client.receive()) == "what there is"


# --- what is counted --------------------------------------------------------------------------------------------------


async def test_a_registry_shows_connections_requests_and_how_long_each_api_takes() -> None:
    registry = Registry()
    async with network(answer_at_once) as served:
        served.show(registry)
        async with await RawClient.connect(served) as client:
            assert await client.ask("once") == "once"
            assert await client.ask("twice") == "twice"
        values = {(series.metric.name, series.label): series.value for series in registry.all_series()}
    assert (values["TotalTimeMs", "Metadata"], values["TotalTimeMs", "Fetch"]) == (2, 0)
    assert values["request-total", ""] == values["TotalTimeMs", "Metadata"]
    assert values["connection-creation-total", ""] == 1
    assert values["incoming-byte-total", ""] > 0 < values["outgoing-byte-total", ""]
    assert {label for name, label in values if name == "connection-close-total"} == {reason.value for reason in Closed}
