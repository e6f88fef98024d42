"""Which states a broker's membership of its cluster has, and which may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraftbase.errors import InvariantViolation

NO_BROKER_EPOCH: Final = -1
"""That of a broker that is not registered."""


@dataclass(frozen=True, slots=True)
class Unregistered:
    """It asks the controller to register it as this incarnation."""

    incarnation_id: UUID


@dataclass(frozen=True, slots=True)
class Accepted:
    """The controller has registered it; its log directories do not know that yet."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Registered:
    """It sends heartbeats."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Released:
    """It leads nothing any more, by the controller's word or because it never did: the process may end.

    `broker_epoch` is NO_BROKER_EPOCH if it was not registered.
    """

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """It asks for nothing any more: its process ends. `broker_epoch` as above."""

    broker_epoch: int


MembershipState = Unregistered | Accepted | Registered | Released | Stopped

# Why Accepted comes between the two: what is acknowledged once the broker is unfenced is of its new registration. A log
# directory that does not know of that one is an older copy (CT-38). So no heartbeat may leave before it does.
MEMBERSHIP_EDGES: Final[Mapping[type[MembershipState], frozenset[type[MembershipState]]]] = {
    Unregistered: frozenset(
        {
            Unregistered,  # the controller does not want this incarnation: another one asks
            Accepted,
            Released,  # it is to shut down, and leads nothing
            Stopped,
        }
    ),
    Accepted: frozenset({Registered, Stopped}),
    Registered: frozenset(
        {
            Unregistered,  # its session is over and another incarnation has registered, or it was unregistered
            Released,  # it was to shut down: others lead its partitions
            Stopped,
        }
    ),
    Released: frozenset({Stopped}),
    Stopped: frozenset(),
}
"""From, to."""


def check_edge(left: MembershipState, entered: MembershipState) -> None:
    """Raise InvariantViolation for an edge that is not in the table."""
    if type(entered) not in MEMBERSHIP_EDGES[type(left)]:
        raise InvariantViolation(f"a broker's membership goes from {left} to {entered}")
