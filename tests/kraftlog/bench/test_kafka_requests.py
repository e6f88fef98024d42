"""The two requests to Kafka's controllers, beside bytes that a Kafka 4.3.0 took and answered."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.bench.peers.kafka_requests import (
    Connection,
    Cursor,
    alter_body,
    check_altered,
    describe_body,
    described_value,
)

ALTER_100 = b"\0\0\0\x01\x10\0\x05bench\0\0\0\x01\0\x0binterval.ms\0\0\x03100\0"
DESCRIBE = b"\0\0\0\x01\x10\0\x05bench\0\0\0\x01\0\x0binterval.ms\0"
ALTERED = b"\0\0\0\0\0\0\0\x01\0\0\xff\xff\x10\0\x05bench"
NOT_ACTIVE = b"\0\0\0\0\0\0\0\x01\0)\0+The active controller appears to be node 3.\x10\0\x05bench"
DESCRIBED_100 = b"\0\0\0\0\0\0\0\x01\0\0\0\0\x10\0\x05bench\0\0\0\x01\0\x0binterval.ms\0\x03100\0\x07\0\0\0\0\0"


def test_requests_are_the_bytes_that_kafka_took() -> None:
    assert alter_body(100) == ALTER_100
    assert describe_body() == DESCRIBE


def test_answers_are_read_as_kafka_gave_them() -> None:
    check_altered(Cursor(ALTERED))
    assert described_value(Cursor(DESCRIBED_100)) == 100
    with pytest.raises(ApiError, match="error 41: The active controller appears to be node 3") as refused:
        check_altered(Cursor(NOT_ACTIVE))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


def test_an_answer_that_ends_too_early_is_corrupt_wherever_it_ends() -> None:
    end_of_value = DESCRIBED_100.index(b"100") + 3
    for size in range(end_of_value):
        with pytest.raises(ApiError) as refused:
            described_value(Cursor(DESCRIBED_100[:size]))
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    "answer",
    [
        DESCRIBED_100.replace(b"interval.ms", b"interval.mt"),
        DESCRIBED_100.replace(b"\0\x03100", b"\0\x031.0"),
        DESCRIBED_100.replace(b"\0\x03100", b"\xff\xff"),
        DESCRIBED_100.replace(b"\x01", b"\x02", 1),
    ],
    ids=["another config", "no number", "null", "two resources"],
)
def test_an_answer_to_something_else_is_corrupt(answer: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        described_value(Cursor(answer))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@asynccontextmanager
async def controller(
    *answers: bytes | None, first_id: int = 1, announced: int | None = None
) -> AsyncIterator[tuple[Endpoint, list[bytes]]]:
    """Listens, and gives these answers with correlation ids that count up; None closes the connection."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for correlation_id, answer in enumerate(answers, first_id):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            requests.append(await reader.readexactly(size))
            if answer is None:
                break
            size = 4 + len(answer) if announced is None else announced
            writer.write(struct.pack(">ii", size, correlation_id) + answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]), requests


async def test_a_connection_sends_one_request_after_the_other_with_kafkas_header() -> None:
    async with controller(ALTERED, DESCRIBED_100) as (endpoint, requests):
        connection = await Connection.open(endpoint)
        await connection.alter(100)
        assert await connection.describe() == 100
        connection.close()
    assert requests == [
        b"\0\x2c\0\0\0\0\0\x01\0\x0ekraftlog-bench" + ALTER_100,
        b"\0\x20\0\x01\0\0\0\x02\0\x0ekraftlog-bench" + DESCRIBE,
    ]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"first_id": 2}, "answers another request"),
        ({"announced": 2**31 - 1}, "announces an answer of 2147483647 bytes"),
        ({"announced": -1}, "announces an answer of -1 bytes"),
    ],
)
async def test_what_is_no_answer_to_the_last_request_is_corrupt(what: dict[str, int], words: str) -> None:
    async with controller(ALTERED, **what) as (endpoint, _):
        connection = await Connection.open(endpoint)
        with pytest.raises(ApiError, match=words) as refused:
            await connection.alter(100)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        connection.close()


async def test_a_controller_that_hangs_up_or_does_not_listen_is_not_available() -> None:
    async with controller(None) as (endpoint, _):
        connection = await Connection.open(endpoint)
        with pytest.raises(ApiError) as refused:
            await connection.alter(100)
        assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        connection.close()
    with pytest.raises(ApiError) as refused:
        await Connection.open(endpoint)
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
