"""Connections to other brokers, over real sockets to a real broker network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from kraftbase.checks import check
from kraftbase.errors import ApiError, ErrorCode, InvariantViolation
from kraftlog.kafka.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kraftlog.kafka.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftlog.kafka.notation import Message, Versions
from kraftlog.network.requests import Handler
from kraftlog.network.serving import Limits, Listener, Network, serving
from kraftlog.replicas.leader_connection import BrokerConnection, BrokerConnections
from tests.kraftlog.network.clients import PLAINTEXT, Asked, large, never
from tests.raft.nodes import free_port

BROKER = 7
FETCH_VERSION, LIST_OFFSETS_VERSION = 18, 10
OFFERED = {1: Versions(4, 18), 2: Versions(1, 11)}
MIB = 1024 * 1024


class At(NamedTuple):
    host: str
    port: int


@asynccontextmanager
async def network(handler: Handler) -> AsyncIterator[Network]:
    async with serving(handler, [Listener(PLAINTEXT, "127.0.0.1", 0)], Limits(), OFFERED, on_fatal=never) as made:
        yield made


def connect(
    port: int | None, *, timeout_ms: int = 30_000, on_fatal: Callable[[BaseException], None] = never
) -> BrokerConnection:
    """A connection to a port of this machine; None: the broker is not registered."""
    address = None if port is None else At("127.0.0.1", port)
    connections = BrokerConnections(
        lambda broker_id: address if broker_id == BROKER else None, "a follower", timeout_ms, on_fatal
    )
    return connections.connect(BROKER)


def ask(connection: BrokerConnection, request: Message | None = None) -> asyncio.Future[Message | ApiError]:
    """Ask; the future is the answer."""
    answer: asyncio.Future[Message | ApiError] = asyncio.get_running_loop().create_future()
    if request is None:
        request = FetchRequest(max_wait_ms=1)
    version = LIST_OFFSETS_VERSION if isinstance(request, ListOffsetsRequest) else FETCH_VERSION
    connection.ask(request, version, answer.set_result)
    assert not answer.done()  # never within the call
    return answer


async def refusal(connection: BrokerConnection) -> ErrorCode:
    """The error that is the answer."""
    answer = await ask(connection)
    assert isinstance(answer, ApiError)
    return answer.code


async def test_requests_are_answered_in_their_order_and_may_be_asked_before_it_is_connected() -> None:
    asked = Asked()
    async with network(asked) as served:
        connection = connect(served.ports[PLAINTEXT])
        first, second = ask(connection), ask(connection, ListOffsetsRequest(replica_id=1))
        (request, reply), (_, later_reply) = await asked.next(), await asked.next()
        assert (request.version, request.client_id) == (FETCH_VERSION, "a follower")
        later_reply(ListOffsetsResponse())
        reply(FetchResponse(session_id=5))
        answer = await first
        assert isinstance(answer, FetchResponse)
        assert answer.session_id == 5
        assert isinstance(await second, ListOffsetsResponse)
        connection.close()


async def test_large_answers_come_as_views_of_what_was_read() -> None:
    records = bytes(range(256)) * (4 * MIB // 256)
    told = FetchResponse(
        responses=(FetchableTopicResponse(topic_id=bytes(16), partitions=(PartitionData(records=records),)),)
    )
    async with network(lambda request, reply: reply(told)) as served:
        connection = connect(served.ports[PLAINTEXT])
        for _ in range(3):
            answer = await ask(connection)
            assert isinstance(answer, FetchResponse)
            found = answer.responses[0].partitions[0].records
            assert isinstance(found, memoryview)
            assert bytes(found) == records
        connection.close()


async def test_a_broker_that_is_not_there_or_not_registered_is_not_available() -> None:
    for port in (free_port(), None):
        connection = connect(port)
        assert await refusal(connection) is ErrorCode.BROKER_NOT_AVAILABLE
        assert await refusal(connection) is ErrorCode.BROKER_NOT_AVAILABLE  # also what is asked after that
        connection.close()


@pytest.mark.parametrize("port", [-1, 70_000])
async def test_a_port_that_is_none_is_not_available(port: int) -> None:
    assert await refusal(connect(port)) is ErrorCode.BROKER_NOT_AVAILABLE


async def test_a_broker_that_closes_the_connection_is_not_available() -> None:
    asked = Asked()
    async with network(asked) as served:
        connection = connect(served.ports[PLAINTEXT])
        answers = [ask(connection), ask(connection)]
        await asked.next()
    found = [await answer for answer in answers]
    assert [one.code for one in found if isinstance(one, ApiError)] == [ErrorCode.BROKER_NOT_AVAILABLE] * 2


async def test_a_broker_that_is_silent_is_given_up_in_time() -> None:
    asked = Asked()
    async with network(asked) as served:
        connection = connect(served.ports[PLAINTEXT], timeout_ms=50)
        assert await refusal(connection) is ErrorCode.REQUEST_TIMED_OUT
        assert await refusal(connection) is ErrorCode.REQUEST_TIMED_OUT
        (await asked.reply())(FetchResponse())
        while served.counters.connections_open:
            await asyncio.sleep(0)


async def test_bytes_that_are_no_answer_end_the_connection() -> None:
    async def noise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(noise, "127.0.0.1", 0)
    async with server:
        connection = connect(server.sockets[0].getsockname()[1])
        assert await refusal(connection) is ErrorCode.CORRUPT_MESSAGE


async def test_after_close_nobody_is_called() -> None:
    asked = Asked()
    called: list[Any] = []
    async with network(asked) as served:
        connection = connect(served.ports[PLAINTEXT])
        connection.ask(FetchRequest(), FETCH_VERSION, called.append)
        _, reply = await asked.next()
        connection.close()
        reply(large(10))
        while served.counters.connections_open:
            await asyncio.sleep(0)
        never_connected = connect(served.ports[PLAINTEXT])
        never_connected.ask(FetchRequest(), FETCH_VERSION, called.append)
        never_connected.close()
        await asyncio.sleep(0.05)
    assert called == []


async def test_what_must_end_the_process_is_told() -> None:
    told: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def wrong(answer: Message | ApiError) -> None:
        check(False, "a mistake of this program")

    async with network(lambda request, reply: reply(FetchResponse())) as served:
        connection = connect(served.ports[PLAINTEXT], on_fatal=told.set_result)
        connection.ask(FetchRequest(), FETCH_VERSION, wrong)
        assert isinstance(await told, InvariantViolation)
        connection.close()
