"""Connections to other brokers, over real sockets to a real broker network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from kraftbase.checks import check
from kraftbase.errors import ApiError, ErrorCode, InvariantViolation
from kraftlog.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from kraftlog.kafka.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kraftlog.kafka.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftlog.kafka.notation import Message, Versions
from kraftlog.network.requests import ClientRequest, Handler, Reply
from kraftlog.network.serving import Limits, Listener, Network, serving
from kraftlog.replicas.leader_connection import BrokerConnection, BrokerConnections
from tests.kraftlog.network.clients import PLAINTEXT, Asked, large, never
from tests.raft.nodes import free_port

BROKER = 7
FETCH_VERSION, LIST_OFFSETS_VERSION = 18, 10
FETCH_VERSIONS, LIST_OFFSETS_VERSIONS = Versions(15, FETCH_VERSION), Versions(4, LIST_OFFSETS_VERSION)
FETCH, LIST_OFFSETS, API_VERSIONS = 1, 2, 18
OFFERED = {FETCH: Versions(4, 18), LIST_OFFSETS: Versions(1, 11), API_VERSIONS: Versions(0, 4)}
MIB = 1024 * 1024


class At(NamedTuple):
    host: str
    port: int


@asynccontextmanager
async def network(
    handler: Handler, offered: Mapping[int, Versions] = OFFERED, questions: list[int] | None = None
) -> AsyncIterator[Network]:
    """A broker that offers these APIs. `questions` gets the versions of the ApiVersions that it is asked."""

    def handle(request: ClientRequest, reply: Reply) -> None:
        if request.api.key != API_VERSIONS:
            handler(request, reply)
            return
        if questions is not None:
            questions.append(request.version)
        reply(
            ApiVersionsResponse(
                error_code=ErrorCode.NONE if request.body is not None else ErrorCode.UNSUPPORTED_VERSION,
                api_keys=tuple(
                    ApiVersion(api_key=key, min_version=versions.lowest, max_version=versions.highest)
                    for key, versions in offered.items()
                ),
            )
        )

    async with serving(handle, [Listener(PLAINTEXT, "127.0.0.1", 0)], Limits(), offered, on_fatal=never) as made:
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
    versions = LIST_OFFSETS_VERSIONS if isinstance(request, ListOffsetsRequest) else FETCH_VERSIONS
    connection.ask(request, versions, answer.set_result)
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
        assert (request.version, request.context.client_id) == (FETCH_VERSION, "a follower")
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
        connection.ask(FetchRequest(), FETCH_VERSIONS, called.append)
        _, reply = await asked.next()
        connection.close()
        reply(large(10))
        while served.counters.connections_open:
            await asyncio.sleep(0)
        never_connected = connect(served.ports[PLAINTEXT])
        never_connected.ask(FetchRequest(), FETCH_VERSIONS, called.append)
        never_connected.close()
        await asyncio.sleep(0.05)
    assert called == []


async def test_what_must_end_the_process_is_told() -> None:
    told: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def wrong(answer: Message | ApiError) -> None:
        check(False, "a mistake of this program")

    async with network(lambda request, reply: reply(FetchResponse())) as served:
        connection = connect(served.ports[PLAINTEXT], on_fatal=told.set_result)
        connection.ask(FetchRequest(), FETCH_VERSIONS, wrong)
        assert isinstance(await told, InvariantViolation)
        connection.close()


# --- what the broker offers -------------------------------------------------------------------------------------------


async def test_a_connection_asks_once_what_the_broker_offers_and_what_waits_goes_in_its_order() -> None:
    asked, questions = Asked(), list[int]()
    async with network(asked, {**OFFERED, FETCH: Versions(4, 16)}, questions) as served:
        connection = connect(served.ports[PLAINTEXT])
        answers = [ask(connection), ask(connection, ListOffsetsRequest(replica_id=1)), ask(connection)]
        versions = []
        for answer in answers:
            request, reply = await asked.next()
            versions.append((request.api.key, request.version))
            reply(FetchResponse() if request.api.key == FETCH else ListOffsetsResponse())
            assert not isinstance(await answer, ApiError)
        assert versions == [(FETCH, 16), (LIST_OFFSETS, 10), (FETCH, 16)]
        assert questions == [4]
        connection.close()


async def test_a_broker_that_lacks_an_api_is_told_apart_and_the_connection_goes_on() -> None:
    """Also a broker that lacks the version: each is said once, and the other request is answered."""
    offered = {FETCH: Versions(4, 14), LIST_OFFSETS: Versions(1, 9), API_VERSIONS: Versions(0, 4)}
    async with network(lambda request, reply: reply(ListOffsetsResponse()), offered) as served:
        with capture_logs() as logs:
            connection = connect(served.ports[PLAINTEXT])
            early, offsets = ask(connection), ask(connection, ListOffsetsRequest(replica_id=1))
            assert isinstance(await offsets, ListOffsetsResponse)
            refusals = [await early, await ask(connection), await ask(connection)]
            assert isinstance(await ask(connection, ListOffsetsRequest(replica_id=1)), ListOffsetsResponse)
        assert [one.code for one in refusals if isinstance(one, ApiError)] == [ErrorCode.UNSUPPORTED_VERSION] * 3
        assert served.counters.connections_open == 1
        connection.close()
    lines = [line["reason"] for line in logs if line["event"] == "a broker does not support a request"]
    assert len(lines) == 1
    assert "it offers Fetch in versions 4-14, and 15-18 are needed" in lines[0]


async def test_a_broker_with_an_older_api_versions_is_asked_again_in_that_version() -> None:
    questions: list[int] = []
    offered = {**OFFERED, API_VERSIONS: Versions(0, 2)}
    async with network(lambda request, reply: reply(FetchResponse()), offered, questions) as served:
        connection = connect(served.ports[PLAINTEXT])
        assert isinstance(await ask(connection), FetchResponse)
        assert isinstance(await ask(connection), FetchResponse)
        connection.close()
    assert questions == [4, 2]


async def test_a_broker_that_is_silent_about_what_it_offers_is_given_up_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        connection = connect(server.sockets[0].getsockname()[1], timeout_ms=50)
        assert await refusal(connection) is ErrorCode.REQUEST_TIMED_OUT


async def test_a_broker_that_does_not_say_what_it_offers_is_left() -> None:
    def refuse(request: ClientRequest, reply: Reply) -> None:
        reply(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))

    listeners = [Listener(PLAINTEXT, "127.0.0.1", 0)]
    async with serving(refuse, listeners, Limits(), OFFERED, on_fatal=never) as served:
        assert await refusal(connect(served.ports[PLAINTEXT])) is ErrorCode.CORRUPT_MESSAGE
