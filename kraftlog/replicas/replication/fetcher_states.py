"""Which states a fetcher has, and which may follow which.

It does one thing at a time. From `Idle` it goes to whatever has to be done before the next Fetch, or sends it; from
there it comes back to `Idle`. So each state has one way in, `ReplicaFetcher._request_next`, but for two: `Truncating`
follows an answer at once, and `BackingOff` follows whatever has failed.

Consider a follower of a topic with `flush.before.ack`, whose leader sends records of one partition, and says of another
one that its log must be cut:

    Idle -> FetchInFlight                    all partitions are asked for
    FetchInFlight -> Idle                    the answer is there: the records are appended, and their flush begins
    Idle -> Truncating -> Idle               the other log is cut
    Idle -> WaitingForFlush -> Idle          the records are on the disk
    Idle -> FetchInFlight                    the next request claims both

A flush may also begin while a Fetch is in flight, for a partition that has just come: that one is not in the request.
So how many flushes are under way is counted beside the state.

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
    """It applies an answer, or decides what is next, or has no partition to fetch."""


@dataclass(frozen=True, slots=True)
class FetchInFlight:
    """The leader has a Fetch, and may have parked it."""


@dataclass(frozen=True, slots=True)
class Truncating:
    """Logs are cut, or start over, some in each turn of the event loop."""


@dataclass(frozen=True, slots=True)
class WaitingForFlush:
    """The next Fetch would claim records that are not on this broker's disk."""


@dataclass(frozen=True, slots=True)
class AskingOffsets:
    """The leader is asked where the logs of some partitions start and end (DB-34)."""

    question: LeaderOffsets


@dataclass(frozen=True, slots=True)
class BackingOff:
    """The leader does not answer, or not as it must: it is left alone until the timer runs out."""

    timer: Timer
    failed_ms: float
    """When the last request failed."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """It follows nothing, for good."""


FetcherState = Idle | FetchInFlight | Truncating | WaitingForFlush | AskingOffsets | BackingOff | Stopped

IDLE: Final = Idle()
FETCH_IN_FLIGHT: Final = FetchInFlight()
TRUNCATING: Final = Truncating()
WAITING_FOR_FLUSH: Final = WaitingForFlush()
STOPPED: Final = Stopped()

# Why a Fetch is sent from Idle only: consider one that is sent while a log is cut. It would claim an offset that the
# log no longer has, and the leader would count the follower there (DB-01).
#
# Why nothing but Idle and Stopped follows WaitingForFlush and Truncating: the leader is not asked anything then, so it
# cannot fail.
FETCHER_EDGES: Final[Mapping[type[FetcherState], frozenset[type[FetcherState]]]] = {
    Idle: frozenset(
        {
            FetchInFlight,  # at least one partition may be fetched
            Truncating,  # an answer has more logs cut than one turn of the loop may
            WaitingForFlush,  # a flush is under way
            AskingOffsets,  # a partition is out of range
            BackingOff,  # the answer that it applies is not one to the request
            Stopped,
        }
    ),
    FetchInFlight: frozenset(
        {
            Idle,  # the answer is there, or the request is given up for a partition that is not in it
            BackingOff,  # there is no answer
            Stopped,
        }
    ),
    Truncating: frozenset({Idle, Stopped}),
    WaitingForFlush: frozenset({Idle, Stopped}),
    AskingOffsets: frozenset({Idle, BackingOff, Stopped}),
    BackingOff: frozenset(
        {
            Idle,  # the time is over
            BackingOff,  # a leader epoch has begun, so the time is shorter
            Stopped,
        }
    ),
    Stopped: frozenset(),
}
"""From, to."""


def checked_fetcher_edge(left: FetcherState, entered: FetcherState) -> FetcherState:
    """Return `entered`. Raises InvariantViolation for an edge that is not in the table."""
    if type(entered) not in FETCHER_EDGES[type(left)]:
        raise InvariantViolation(f"a replica fetcher goes from {left} to {entered}")
    return entered
