"""The states of a fetcher, and the permitted transitions between them.

A fetcher does one thing at a time. From `Idle` it enters the state for the work that must precede the next Fetch, or
sends the Fetch; after that it returns to `Idle`. So only `ReplicaFetcher._request_next` enters a state, with two
exceptions: `Truncating` follows a response at once, and `BackingOff` follows a failure.

Consider a follower of a topic with `flush.before.ack`, whose leader sends records of one partition, and a divergence of
another one:

    Idle -> FetchInFlight                    all partitions are requested
    FetchInFlight -> Idle                    the response: records are appended, and their flush begins
    Idle -> Truncating -> Idle               the other log is truncated
    Idle -> WaitingForFlush -> Idle          the records are durable
    Idle -> FetchInFlight                    the next request has both new positions

A flush may also begin while a Fetch is in flight, for a newly added partition that is not in the request. So the number
of flushes in progress is counted separately from the state.

docs/internals/replication.md has the table as a drawing, which a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftbase.errors import InvariantViolation
from kraftbase.runtime import Timer
from kraftlog.replicas.replication.leader_offsets import LeaderOffsets


@dataclass(frozen=True, slots=True)
class Idle:
    """The fetcher applies a response, decides what is next, or has no partition to fetch."""


@dataclass(frozen=True, slots=True)
class FetchInFlight:
    """The leader has a Fetch, and may have parked it."""


@dataclass(frozen=True, slots=True)
class Truncating:
    """Logs are truncated or started over, some in each turn of the event loop."""


@dataclass(frozen=True, slots=True)
class WaitingForFlush:
    """The next Fetch would claim records that are not on this broker's disk."""


@dataclass(frozen=True, slots=True)
class AskingOffsets:
    """The leader is asked where the logs of some partitions start and end (DB-34)."""

    question: LeaderOffsets


@dataclass(frozen=True, slots=True)
class BackingOff:
    """The leader did not answer, or answered wrongly: no request is sent until the timer fires."""

    timer: Timer
    failed_ms: float
    """The time at which the last request failed."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The fetcher has stopped for good."""


FetcherState = Idle | FetchInFlight | Truncating | WaitingForFlush | AskingOffsets | BackingOff | Stopped

IDLE: Final = Idle()
FETCH_IN_FLIGHT: Final = FetchInFlight()
TRUNCATING: Final = Truncating()
WAITING_FOR_FLUSH: Final = WaitingForFlush()
STOPPED: Final = Stopped()

# A Fetch is sent only from Idle: consider a Fetch that is sent during a truncation. It would name an offset that the
# log no longer has, and the leader would count that as the follower's log end offset (DB-01).
#
# Only Idle and Stopped follow WaitingForFlush and Truncating: no request to the leader is in flight, so none can fail.
FETCHER_EDGES: Final[Mapping[type[FetcherState], frozenset[type[FetcherState]]]] = {
    Idle: frozenset(
        {
            FetchInFlight,  # at least one partition may be fetched
            Truncating,  # a response requires more truncations than one turn of the loop may do
            WaitingForFlush,  # a flush is in progress
            AskingOffsets,  # a partition is out of range
            BackingOff,  # the response does not match the request
            Stopped,
        }
    ),
    FetchInFlight: frozenset(
        {
            Idle,  # the response has come, or the request is abandoned for a partition that is not in it
            BackingOff,  # there is no response
            Stopped,
        }
    ),
    Truncating: frozenset({Idle, Stopped}),
    WaitingForFlush: frozenset({Idle, Stopped}),
    AskingOffsets: frozenset({Idle, BackingOff, Stopped}),
    BackingOff: frozenset(
        {
            Idle,  # the pause is over
            BackingOff,  # a leader epoch has begun, so the pause is shortened
            Stopped,
        }
    ),
    Stopped: frozenset(),
}
"""The permitted transitions: from each state, the states that may follow."""


def checked_fetcher_edge(left: FetcherState, entered: FetcherState) -> FetcherState:
    """Return `entered`. Raises InvariantViolation for an edge that is not in the table."""
    if type(entered) not in FETCHER_EDGES[type(left)]:
        raise InvariantViolation(f"a replica fetcher goes from {left} to {entered}")
    return entered
