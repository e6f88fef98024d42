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
    ALTER_VERSION,
    DESCRIBE,
    DESCRIBE_VERSION,
    Connection,
    alter_request,
    check_altered,
    described_value,
)
from kraftlog.kafka.codec import decode, encode
from kraftlog.kafka.messages.describe_configs import DescribeConfigsResponse
from kraftlog.kafka.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

ALTER_100 = b"\0\0\0\x01\x10\0\x05bench\0\0\0\x01\0\x0binterval.ms\0\0\x03100\0"
DESCRIBED = b"\0\0\0\x01\x10\0\x05bench\0\0\0\x01\0\x0binterval.ms\0"
ALTERED = b"\0\0\0\0\0\0\0\x01\0\0\xff\xff\x10\0\x05bench"
NOT_ACTIVE = b"\0\0\0\0\0\0\0\x01\0)\0+The active controller appears to be node 3.\x10\0\x05bench"
DESCRIBED_100 = b"\0\0\0\0\0\0\0\x01\0\0\0\0\x10\0\x05bench\0\0\0\x01\0\x0binterval.ms\0\x03100\0\x07\0\0\0\0\0"


def test_requests_are_the_bytes_that_kafka_took() -> None:
    assert encode(alter_request(100), ALTER_VERSION) == ALTER_100
    assert encode(DESCRIBE, DESCRIBE_VERSION) == DESCRIBED


def test_answers_are_read_as_kafka_gave_them() -> None:
    check_altered(decode(IncrementalAlterConfigsResponse, ALTER_VERSION, ALTERED))
    assert described_value(decode(DescribeConfigsResponse, DESCRIBE_VERSION, DESCRIBED_100)) == 100
    with pytest.raises(ApiError, match="error 41: The active controller appears to be node 3") as refused:
        check_altered(decode(IncrementalAlterConfigsResponse, ALTER_VERSION, NOT_ACTIVE))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    "answer",
    [
        DESCRIBED_100.replace(b"interval.ms", b"interval.mt"),
        DESCRIBED_100.replace(b"\0\x03100", b"\0\x031.0"),
        DESCRIBED_100.replace(b"\0\x03100", b"\xff\xff"),
        bytes(8),
    ],
    ids=["another config", "no number", "null", "no resource"],
)
def test_an_answer_to_something_else_is_corrupt(answer: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        described_value(decode(DescribeConfigsResponse, DESCRIBE_VERSION, answer))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@asynccontextmanager
async def controller(
    *answers: bytes | None, first_id: int = 0, announced: int | None = None
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
        b"\0\x2c\0\0\0\0\0\0\0\x0ekraftlog-bench" + ALTER_100,
        b"\0\x20\0\x01\0\0\0\x01\0\x0ekraftlog-bench" + DESCRIBED,
    ]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"first_id": 2}, "correlation_id: is 2, and the oldest request, IncrementalAlterConfigs, has 0"),
        ({"announced": 2**31 - 1}, "its length is 2147483647"),
        ({"announced": -1}, "its length is -1"),
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
