"""What the answers to administration have in common: errors as Kafka's fields have them, and quotas of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import Reply

QUOTA_THROTTLE_MS: Final = 1_000
"""How long a client that changes too much is to wait (KIP-599); the controller says only that it is too much."""


class Failed(Protocol):
    """A part of a result of ours."""

    error_code: int
    error_message: str


class Coded(Protocol):
    """A part of an answer."""

    error_code: int


def message_of(part: Failed) -> str | None:
    """The message of a part's error; None if it has none."""
    return part.error_message or None


def text_of(error: ApiError) -> str:
    """What the error's message is to say, without its code."""
    return str(error.args[0])


def reply_within_quota(reply: Reply, response: Message, parts: Sequence[Coded], *, knows_quota: bool) -> None:
    """Answer with `response`, which has a `throttle_time_ms`; a client over its quota of changes is let wait.

    Clients whose version does not know THROTTLING_QUOTA_EXCEEDED (not `knows_quota`) see REQUEST_TIMED_OUT in those of
    its `parts`, which they try again. Kafka would carry such changes out, and then let the client wait (KIP-599).
    """
    refused = [part for part in parts if part.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    if not knows_quota:
        for part in refused:
            part.error_code = ErrorCode.REQUEST_TIMED_OUT
    throttle_ms = QUOTA_THROTTLE_MS if refused else 0
    if throttle_ms:
        response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
    reply(response, throttle_ms)
