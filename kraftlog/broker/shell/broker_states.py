"""The states of a broker from its start to its end, and their transitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftbase.errors import InvariantViolation


@dataclass(frozen=True, slots=True)
class Opening:
    """The log directories are opened and recovered."""


@dataclass(frozen=True, slots=True)
class Registering:
    """The broker follows the metadata log, listens without answering, and asks the controller to register it."""


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """The broker applies the metadata up to its registration, then takes over its partitions."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Serving:
    """The broker answers clients, and reports to the controller how far it has applied the metadata, to be unfenced."""


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """The controller gives its partitions other leaders. The broker still answers and follows."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The broker closes connections and logs, in order."""

    error: BaseException | None
    """The error that ends the broker; None: it was asked to end."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The broker has ended."""

    error: BaseException | None


BrokerState = Opening | Registering | CatchingUp | Serving | ControlledShutdown | Closing | Closed

# Why a broker catches up before it takes over its partitions: consider a topic that was deleted and created again with
# the same name while the broker was down. By its old metadata the broker would delete the new topic's log, or serve the
# old one's.
#
# Why only a serving broker is unfenced: until then it reports an applied offset of 0. Otherwise clients would be sent
# to a broker that has no partitions and no leaders yet.
#
# Why there is a state Closing: before logs are closed, a flush in progress in the disk's thread must end, and nothing
# may be appended. Another process that is started by then finds the directories locked.
BROKER_EDGES: Final[Mapping[type[BrokerState], frozenset[type[BrokerState]]]] = {
    Opening: frozenset({Registering, Closing}),
    Registering: frozenset({CatchingUp, ControlledShutdown, Closing}),
    CatchingUp: frozenset({Serving, ControlledShutdown, Closing}),
    Serving: frozenset({ControlledShutdown, Closing}),
    ControlledShutdown: frozenset(
        {
            Closing,  # other replicas lead its partitions, the time is up, or an error
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
"""The value of Kafka's `BrokerState`: STARTING, RECOVERY, RUNNING, PENDING_CONTROLLED_SHUTDOWN, SHUTTING_DOWN."""


def check_broker_edge(left: BrokerState, entered: BrokerState) -> None:
    """Raise InvariantViolation for an edge that is not in the table."""
    if type(entered) not in BROKER_EDGES[type(left)]:
        raise InvariantViolation(f"a broker may not go from {left} to {entered}")
