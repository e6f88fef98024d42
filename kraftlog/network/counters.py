"""The counts of the network, and how the broker's registry shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from kraftlog.telemetry import catalogue
from kraftlog.telemetry.registry import Histogram, Registry


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
    """Counts since the start, except for gauges ("Now"). Only the network changes them."""

    connections_open: int = 0
    """Now: connections that are open."""
    connections_paused: int = 0
    """Now: connections that are not read, because of a limit or a throttle."""
    connections_accepted: int = 0
    """Including connections that were refused at once."""
    connections_closed: Counter[Closed] = field(default_factory=Counter)
    """By reason; the first two reasons are of connections that were refused at once."""
    slices: int = 0
    """How often a request continued in a later turn of the event loop, so that other connections could run."""
    requests: int = 0
    """Requests passed to the handler."""
    answers_unwanted: int = 0
    """Answers to requests whose connection was closed before."""
    bytes_in: int = 0
    bytes_out: int = 0
    """Bytes of answers, including those that are not sent yet."""
    queued_bytes: int = 0
    """Now: bytes of requests that are being read or are not answered yet."""
    unsent_bytes: int = 0
    """Now: bytes of answers that clients have not taken."""


def show_counters(registry: Registry, counters: Callable[[], Counters], times: Mapping[str, Histogram]) -> None:
    """Add the counters to a registry. `times` are the request times in milliseconds, by API."""
    for metric, read in {
        catalogue.CONNECTIONS: lambda: counters().connections_open,
        catalogue.PAUSED: lambda: counters().connections_paused,
        catalogue.CONNECTIONS_MADE: lambda: counters().connections_accepted,
        catalogue.SLICES: lambda: counters().slices,
        catalogue.REQUESTS: lambda: counters().requests,
        catalogue.UNWANTED: lambda: counters().answers_unwanted,
        catalogue.BYTES_IN: lambda: counters().bytes_in,
        catalogue.BYTES_OUT: lambda: counters().bytes_out,
        catalogue.QUEUED_BYTES: lambda: counters().queued_bytes,
        catalogue.UNSENT_BYTES: lambda: counters().unsent_bytes,
    }.items():
        registry.read(metric, read)
    for reason in Closed:
        registry.read(catalogue.CONNECTIONS_CLOSED, partial(_closed, counters, reason), reason.value)
    for name, histogram in times.items():
        registry.histogram(catalogue.TOTAL_TIME, histogram, name)


def _closed(counters: Callable[[], Counters], reason: Closed) -> int:
    return counters().connections_closed[reason]
