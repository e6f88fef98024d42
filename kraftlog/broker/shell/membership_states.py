"""The states of a broker's membership of its cluster, and their transitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraftbase.errors import InvariantViolation

NO_BROKER_EPOCH: Final = -1
"""The epoch of a broker that is not registered."""


@dataclass(frozen=True, slots=True)
class Unregistered:
    """The broker asks the controller to register this incarnation."""

    incarnation_id: UUID


@dataclass(frozen=True, slots=True)
class Accepted:
    """The controller has registered the broker; the log directories have not noted it yet."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Registered:
    """The broker sends heartbeats."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Released:
    """The process may end: the broker leads nothing, because the controller allows the shutdown or it never registered.

    `broker_epoch` is NO_BROKER_EPOCH if it was not registered.
    """

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The broker sends nothing more: its process ends. `broker_epoch` as above."""

    broker_epoch: int


MembershipState = Unregistered | Accepted | Registered | Released | Stopped

# Why Accepted is a state of its own: records that are acknowledged once the broker is unfenced belong to the new
# registration, and a log directory without that epoch counts as an older copy (CT-38). So the directories note the
# epoch before any heartbeat.
MEMBERSHIP_EDGES: Final[Mapping[type[MembershipState], frozenset[type[MembershipState]]]] = {
    Unregistered: frozenset(
        {
            Unregistered,  # the controller refused this incarnation, and the broker tries with another one
            Accepted,
            Released,  # it is to shut down, and leads nothing
            Stopped,
        }
    ),
    Accepted: frozenset({Registered, Stopped}),
    Registered: frozenset(
        {
            Unregistered,  # its session expired and another incarnation has registered, or it was unregistered
            Released,  # it is to shut down, and other replicas lead its partitions
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
        raise InvariantViolation(f"a broker's membership may not go from {left} to {entered}")
