"""Errors of brokers, and of the library that speaks with them, by Kafka's names."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from kraftbase.errors import ApiError, ConfigurationError, ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

LIBRARY: Final = "confluent_kafka"

_KNOWN: Final = {code.value: code for code in ErrorCode}
_LOCAL: Final = {
    -195: ErrorCode.BROKER_NOT_AVAILABLE,  # the connection failed
    -193: ErrorCode.BROKER_NOT_AVAILABLE,  # a host name is not known
    -187: ErrorCode.BROKER_NOT_AVAILABLE,  # all brokers are down
    -192: ErrorCode.REQUEST_TIMED_OUT,  # a record was not acknowledged in time
    -185: ErrorCode.REQUEST_TIMED_OUT,
    -190: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    -188: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    -140: ErrorCode.OFFSET_OUT_OF_RANGE,  # there is no offset to continue with
}
"""The library's own errors, which no broker answers with, by its numbers for them."""


def require_confluent_kafka() -> None:
    """Raise ConfigurationError, which says what to install, unless confluent-kafka is installed."""
    if find_spec(LIBRARY) is None:
        raise ConfigurationError("confluent-kafka is needed: pip install '.[clients]' in a checkout of kraftlog")


def error_name(error: KafkaError) -> str:
    """Kafka's name of an error; the library's own name if Kafka or this project has none."""
    code = _code(error)
    return error.name() if code is None else code.name


def api_error(error: KafkaError, what: str) -> ApiError:
    """The error as an ApiError; `what` begins its message. An error without a code here keeps its name in it."""
    code = _code(error)
    if code is None:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: {error.name()}: {error.str()}")
    return ApiError(code, f"{what}: {error.str()}")


def _code(error: KafkaError) -> ErrorCode | None:
    number = error.code()
    return _KNOWN.get(number) if number > 0 else _LOCAL.get(number)


def refusal(number: int, what: str) -> ApiError:
    """A broker's error code as an ApiError."""
    code = _KNOWN.get(number)
    if code is None:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the broker answers error {number}")
    return ApiError(code, what)


def code_name(number: int) -> str | None:
    """Kafka's name of a broker's error code, its number if this project has no name for it; None for no error."""
    if number == ErrorCode.NONE:
        return None
    return _KNOWN[number].name if number in _KNOWN else f"error {number}"
