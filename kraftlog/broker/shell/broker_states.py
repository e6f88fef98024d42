"""Which states a broker has from its start to its end, and which may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftbase.errors import InvariantViolation


@dataclass(frozen=True, slots=True)
class Opening:
    """Its log directories are opened and recovered."""


@dataclass(frozen=True, slots=True)
class Registering:
    """It follows the metadata log, listens without answering, and asks the controller to register it."""


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """It applies the metadata up to its registration, then takes its partitions over."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Serving:
    """It answers clients, and tells the controller how far it has applied the metadata: so it is unfenced."""


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """The controller gives its partitions other leaders. It goes on to answer, and to follow."""


@dataclass(frozen=True, slots=True)
class Closing:
    """It closes connections and logs, one after the other."""

    error: BaseException | None
    """Why it could not go on; None: it was asked to end."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing of it is left."""

    error: BaseException | None


BrokerState = Opening | Registering | CatchingUp | Serving | ControlledShutdown | Closing | Closed

# Why it catches up before it takes its partitions over: consider a topic that was deleted and made again under its name
# while the broker was down. By metadata from before, the new topic's log would be deleted, or the old one's served.
#
# Why only a broker that serves is unfenced: until then it tells the controller that it has applied nothing. A client
# that is sent to it would find neither partitions nor leaders.
#
# Why closing comes between the end and what was before it: a flush that is under way in the thread of the disk has to
# end, and nothing may be appended any more, before logs are closed. Whoever starts another process meanwhile finds the
# directories locked.
BROKER_EDGES: Final[Mapping[type[BrokerState], frozenset[type[BrokerState]]]] = {
    Opening: frozenset({Registering, Closing}),
    Registering: frozenset({CatchingUp, ControlledShutdown, Closing}),
    CatchingUp: frozenset({Serving, ControlledShutdown, Closing}),
    Serving: frozenset({ControlledShutdown, Closing}),
    ControlledShutdown: frozenset(
        {
            Closing,  # others lead its partitions, its time is up, or it cannot go on
        }
    ),
    Closing: frozenset({Closed}),
    Closed: frozenset(),
}
"""From, to."""


KAFKAS_STATES: Final[Mapping[type[BrokerState], int]] = {
    Opening: 1,
    Registering: 1,
    CatchingUp: 2,
    Serving: 3,
    ControlledShutdown: 6,
    Closing: 7,
    Closed: 0,
}
"""What Kafka's `BrokerState` is in each: STARTING, RECOVERY, RUNNING, PENDING_CONTROLLED_SHUTDOWN, SHUTTING_DOWN."""


def check_broker_edge(left: BrokerState, entered: BrokerState) -> None:
    """Raise InvariantViolation for an edge that is not in the table."""
    if type(entered) not in BROKER_EDGES[type(left)]:
        raise InvariantViolation(f"a broker goes from {left} to {entered}")
