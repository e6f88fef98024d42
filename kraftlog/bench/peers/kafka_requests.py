"""Two requests of Kafka's protocol, for controllers without brokers: set one config, and say what it is.

The usual clients for Python (kafka-python, aiokafka, confluent-kafka) begin with a Metadata request, which a controller
does not answer (KIP-919), so this is written by hand. IncrementalAlterConfigs 0 and DescribeConfigs 1 are from before
the compact encoding. The resource is of the type CLIENT_METRICS: its configs need no broker, and no controller does
anything else when they change.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode

INCREMENTAL_ALTER_CONFIGS: Final = (44, 0)
DESCRIBE_CONFIGS: Final = (32, 1)
"""Key and version."""

CLIENT_METRICS: Final = 16
RESOURCE: Final = "bench"
CONFIG: Final = "interval.ms"
SET: Final = 0
CLIENT_ID: Final = "kraftlog-bench"
ANSWER_TIMEOUT_SECONDS: Final = 30.0
ANSWER_BYTES_MAX: Final = 1024 * 1024


class Connection:
    """A connection to one controller. A controller takes one request of a connection at a time, and so does this."""

    def __init__(self, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.endpoint = endpoint
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def open(cls, endpoint: Endpoint) -> Connection:
        """Connect. Raises ApiError BROKER_NOT_AVAILABLE."""
        try:
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        except OSError as error:
            raise _gone(endpoint, error) from None
        return cls(endpoint, reader, writer)

    def close(self) -> None:
        """At once."""
        self._writer.transport.abort()

    async def alter(self, value: int) -> None:
        """Set the config. Raises ApiError if the controller refuses, as one does that is not the active one."""
        answer = await self._call(INCREMENTAL_ALTER_CONFIGS, alter_body(value))
        check_altered(answer)

    async def describe(self) -> int:
        """The config's value as this controller has it. Raises ApiError."""
        return described_value(await self._call(DESCRIBE_CONFIGS, describe_body()))

    async def _call(self, key_and_version: tuple[int, int], body: bytes) -> Cursor:
        self._correlation_id += 1
        request = struct.pack(">hhi", *key_and_version, self._correlation_id) + _string(CLIENT_ID) + body
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                self._writer.write(struct.pack(">i", len(request)) + request)
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                if not 4 <= size <= ANSWER_BYTES_MAX:
                    raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.endpoint} announces an answer of {size} bytes")
                answer = Cursor(await self._reader.readexactly(size))
        except (OSError, asyncio.IncompleteReadError) as error:  # TimeoutError is an OSError
            raise _gone(self.endpoint, error) from None
        if answer.number("i") != self._correlation_id:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.endpoint} answers another request than the last one")
        return answer


@dataclass(slots=True)
class Cursor:
    """Reads an answer from its beginning."""

    data: bytes
    position: int = 0

    def number(self, letter: str) -> int:
        """The next number, of the format that `letter` means to `struct`. Raises ApiError CORRUPT_MESSAGE."""
        try:
            (found,) = struct.unpack_from(f">{letter}", self.data, self.position)
        except struct.error:
            raise _too_short() from None
        self.position += struct.calcsize(letter)
        return int(found)

    def text(self) -> str | None:
        """The next string, None for null. Raises ApiError CORRUPT_MESSAGE."""
        size = self.number("h")
        if size < 0:
            return None
        found = self.data[self.position : self.position + size]
        if len(found) < size:
            raise _too_short()
        self.position += size
        return found.decode("utf-8", "replace")


def alter_body(value: int) -> bytes:
    """IncrementalAlterConfigs 0: one resource, one config."""
    config = _string(CONFIG) + struct.pack(">b", SET) + _string(str(value))
    validate_only = b"\0"
    return struct.pack(">ib", 1, CLIENT_METRICS) + _string(RESOURCE) + struct.pack(">i", 1) + config + validate_only


def describe_body() -> bytes:
    """DescribeConfigs 1: one resource, one config, no synonyms."""
    include_synonyms = b"\0"
    resource = struct.pack(">ib", 1, CLIENT_METRICS) + _string(RESOURCE)
    return resource + struct.pack(">i", 1) + _string(CONFIG) + include_synonyms


def check_altered(answer: Cursor) -> None:
    """Raise ApiError for the error of the only resource."""
    _skip_throttle_time(answer)
    _raise_if_refused(answer)


def described_value(answer: Cursor) -> int:
    """The value of the only config of the only resource; raises ApiError."""
    _skip_throttle_time(answer)
    _raise_if_refused(answer)
    answer.number("b")
    answer.text()
    if answer.number("i") != 1 or answer.text() != CONFIG:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the controller describes something else than {CONFIG}")
    value = answer.text() or ""
    if not (value.isascii() and value.isdigit()):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the controller describes {CONFIG} as {value!r}, which is no number")
    return int(value)


def _skip_throttle_time(answer: Cursor) -> None:
    answer.number("i")
    if answer.number("i") != 1:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the controller answers for more or less than one resource")


def _raise_if_refused(answer: Cursor) -> None:
    code, message = answer.number("h"), answer.text()
    if code != ErrorCode.NONE:
        named = ErrorCode(code) if code in list(ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
        raise ApiError(named, f"the controller answers error {code}: {message}")


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _too_short() -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, "the controller's answer ends too early")


def _gone(endpoint: Endpoint, error: Exception) -> ApiError:
    return ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"the controller at {endpoint} does not answer: {error}")
