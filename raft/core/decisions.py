"""What a replica decided in a step, and why, for observers of the replica (`raft.core.replica_view`).

Nothing in the protocol depends on these values. They are made only for rare events: votes, elections, transitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kraftbase.types import Epoch
from raft.core.states import Role
from raft.core.types import ReplicaKey


@dataclass(frozen=True, slots=True)
class StateEntered:
    """The replica took an edge of the transition table."""

    left: Role
    left_epoch: Epoch
    entered: Role
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class VoteRefused:
    """The replica did not grant a vote, or a pre-vote."""

    candidate: ReplicaKey
    epoch: Epoch
    """The candidate's."""
    pre_vote: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ElectionBegun:
    """The replica asks for pre-votes, or as the only voter elects itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class ElectionPutOff:
    """The replica will ask for pre-votes in `wait_ms` at the earliest, unless it hears from a leader before."""

    wait_ms: int
    reason: str


Decision: TypeAlias = StateEntered | VoteRefused | ElectionBegun | ElectionPutOff
