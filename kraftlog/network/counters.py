"""What the network counts, for metrics and for tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Closed(StrEnum):
    """Why a connection was closed."""

    TOO_MANY = "too many connections"
    TOO_MANY_OF_ADDRESS = "too many connections of its address"
    BY_CLIENT = "by the client"
    BY_HANDLER = "refused by a handler"
    MALFORMED = "a malformed request"
    FAILED = "a request failed"
    IDLE = "idle"
    SLOW = "a slow client"
    ENDING = "the listener is closed"


@dataclass(slots=True)
class Counters:
    """Counts since the start, but for those that say now. Only the network changes them."""

    connections_open: int = 0
    """Now."""
    connections_paused: int = 0
    """Now: those that are not read, because they have reached a limit or are throttled."""
    connections_accepted: int = 0
    """With those that were refused at once."""
    connections_closed: Counter[Closed] = field(default_factory=Counter)
    """By reason; the first two are of connections that were refused at once."""
    slices: int = 0
    """How often a request was left for a later turn of the loop, so that others go on."""
    requests: int = 0
    """Handed to the handler."""
    answers_unwanted: int = 0
    """Answers whose connection had been closed."""
    bytes_in: int = 0
    bytes_out: int = 0
    """Bytes of answers, also of those that are not sent yet."""
    queued_bytes: int = 0
    """Now: bytes of requests that are being read or are not answered yet."""
    unsent_bytes: int = 0
    """Now: bytes of answers that clients have not taken."""
