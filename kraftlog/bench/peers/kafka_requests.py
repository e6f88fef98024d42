"""Two requests of Kafka's protocol, for controllers without brokers: set one config, and read it.

The usual clients for Python (kafka-python, aiokafka, confluent-kafka) begin with a Metadata request, which a controller
does not answer (KIP-919). The resource is of the type CLIENT_METRICS: its configs need no broker, and their change has
no other effect on a controller.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar, cast

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kraftlog.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraftlog.kafka.notation import Message

ALTER_VERSION: Final = 0
DESCRIBE_VERSION: Final = 1

CLIENT_METRICS: Final = 16
RESOURCE: Final = "bench"
CONFIG: Final = "interval.ms"
SET: Final = 0
CLIENT_ID: Final = "kraftlog-bench"
ANSWER_TIMEOUT_SECONDS: Final = 30.0
ANSWER_BYTES_MAX: Final = 1024 * 1024

DESCRIBE: Final = DescribeConfigsRequest(
    resources=(
        DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=RESOURCE, configuration_keys=(CONFIG,)),
    )
)

M = TypeVar("M", bound=Message)


class Connection:
    """A connection to one controller, for one request at a time: a controller handles no more of a connection."""

    def __init__(self, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.endpoint = endpoint
        self._reader = reader
        self._writer = writer
        self._messages = ClientConnection(CLIENT_ID, ANSWER_BYTES_MAX)

    @classmethod
    async def open(cls, endpoint: Endpoint) -> Connection:
        """Connect. Raises ApiError BROKER_NOT_AVAILABLE."""
        try:
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        except OSError as error:
            raise _gone(endpoint, error) from None
        return cls(endpoint, reader, writer)

    def close(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    async def alter(self, value: int) -> None:
        """Set the config. Raises ApiError if the controller refuses, for example since it is not active."""
        check_altered(await self.call(alter_request(value), ALTER_VERSION, IncrementalAlterConfigsResponse))

    async def describe(self) -> int:
        """Return the config's value on this controller. Raises ApiError."""
        return described_value(await self.call(DESCRIBE, DESCRIBE_VERSION, DescribeConfigsResponse))

    async def call(self, request: Message, version: int, answer: type[M]) -> M:
        """Send one request and return the response. Raises ApiError BROKER_NOT_AVAILABLE or CORRUPT_MESSAGE."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                self._writer.writelines(self._messages.send(request, version))
                while (response := self._messages.next_event()) is None:
                    data = await self._reader.read(ANSWER_BYTES_MAX)
                    if not data:
                        raise ConnectionResetError("it has closed the connection")
                    self._messages.receive_data(data)
        except OSError as error:  # TimeoutError is an OSError
            raise _gone(self.endpoint, error) from None
        except MalformedBytes as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the controller at {self.endpoint}: {error}") from None
        return cast(M, response.body)


def alter_request(value: int) -> IncrementalAlterConfigsRequest:
    """Return a request that sets one config of one resource."""
    config = AlterableConfig(name=CONFIG, config_operation=SET, value=str(value))
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=RESOURCE, configs=(config,))
    return IncrementalAlterConfigsRequest(resources=(resource,))


def check_altered(answer: IncrementalAlterConfigsResponse) -> None:
    """Raise ApiError for the error of the only resource."""
    if len(answer.responses) != 1:
        raise _corrupt(f"it has {len(answer.responses)} resources instead of one")
    _raise_if_refused(answer.responses[0].error_code, answer.responses[0].error_message)


def described_value(answer: DescribeConfigsResponse) -> int:
    """Return the value of the only config of the only resource. Raises ApiError."""
    if len(answer.results) != 1:
        raise _corrupt(f"it has {len(answer.results)} resources instead of one")
    (result,) = answer.results
    _raise_if_refused(result.error_code, result.error_message)
    if [config.name for config in result.configs] != [CONFIG]:
        raise _corrupt(f"it does not describe {CONFIG} alone")
    value = result.configs[0].value or ""
    if not (value.isascii() and value.isdigit()):
        raise _corrupt(f"it has {value!r} for {CONFIG}, which is not a number")
    return int(value)


def _raise_if_refused(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        named = ErrorCode(code) if code in list(ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
        raise ApiError(named, f"the controller answers error {code}: {message}")


def _corrupt(reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the controller's response is malformed: {reason}")


def _gone(endpoint: Endpoint, error: Exception) -> ApiError:
    return ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"the controller at {endpoint} does not answer: {error}")
