"""Common parts of answers to administrative requests: errors in Kafka's fields, and quotas of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import Reply

QUOTA_THROTTLE_MS: Final = 1_000
"""How long a client over its quota of changes must wait (KIP-599); the controller only reports that it is over."""


class Failed(Protocol):
    """A part of a result of the controller."""

    error_code: int
    error_message: str


class Coded(Protocol):
    """A part of an answer to a client."""

    error_code: int


def message_of(part: Failed) -> str | None:
    """Return the message of a part's error; None if it has no message."""
    return part.error_message or None


def text_of(error: ApiError) -> str:
    """Return the error's message without its code."""
    return str(error.args[0])


def reply_within_quota(reply: Reply, response: Message, parts: Sequence[Coded], *, knows_quota: bool) -> None:
    """Answer with `response`, which has a `throttle_time_ms`; throttle a client that is over its quota of changes.

    In versions without THROTTLING_QUOTA_EXCEEDED (not `knows_quota`), those of its `parts` get REQUEST_TIMED_OUT, so
    that clients try them again. Kafka would carry out such changes, and then throttle the client (KIP-599).
    """
    refused = [part for part in parts if part.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    if not knows_quota:
        for part in refused:
            part.error_code = ErrorCode.REQUEST_TIMED_OUT
    throttle_ms = QUOTA_THROTTLE_MS if refused else 0
    if throttle_ms:
        response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
    reply(response, throttle_ms)
