"""The parts of a request that the controller refused, as one error."""

from __future__ import annotations

from collections.abc import Iterable

from kraftbase.errors import ApiError, ErrorCode
from raft.rpc import codec
from statemachine.words.names import quoted
from statemachine.words.resources import ResourceType

Refusal = tuple[str, int, str]
"""The name of a refused part for messages; the error code; the reason."""


def raise_first(parts: Iterable[Refusal]) -> None:
    """Raise ApiError for the first refused part, with its name and the number of other refused parts."""
    failed = [part for part in parts if part[1] != ErrorCode.NONE]
    if failed:
        what, code, message = failed[0]
        said = message if what in message else f"{what}: {message}"
        others = f" (and {len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise ApiError(codec.error_from_proto(code), said + others)


def topic_named(name: str) -> str:
    """A topic as a message names it."""
    return f"topic {quoted(name)}"


def resource_named(resource_type: int, resource_name: str) -> str:
    """A resource with configs, as a message names it."""
    if resource_type == ResourceType.TOPIC:
        return topic_named(resource_name)
    return f"broker {resource_name}" if resource_name else "the brokers' default"
