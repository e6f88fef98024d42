"""The shutdown of a replica whose process ends: it hands over first what other voters need (RF-100, RF-101)."""

from __future__ import annotations

from raft.core.environment import Environment
from raft.core.replica_state import ReplicaState
from raft.core.states import Candidate, Prospective, Resigned, Unattached


def begin(replica: ReplicaState) -> None:
    """The process is shutting down."""
    replica.shutdown.is_requested = True
    if isinstance(replica.state, Unattached):
        replica.state.election_deadline_ms = None  # it waits until the others have elected (RF-101)


def poll(environment: Environment, replica: ReplicaState) -> None:
    """Complete a requested shutdown once another voter leads or will, or none could (RF-100, RF-101)."""
    shutdown = replica.shutdown
    if shutdown.is_complete:
        return
    match replica.state:
        case Resigned() as resigned:
            shutdown.is_handing_over = True
            shutdown.is_complete = not resigned.unacknowledged
        case Unattached() | Prospective() | Candidate():
            # Consider voters 1 and 2 of three, and 3 is down. 1 led, resigns to shut down, and stops. 2 has no leader
            # and must shut down, too: it waits for an election, because 1 may be back at once and would need its vote.
            # A leader that hands over does not wait for the election: the next epoch, whichever candidate opens it,
            # completes its shutdown.
            is_needed = environment.is_voter and not environment.is_only_voter and not shutdown.is_handing_over
            shutdown.is_complete = not is_needed
        case _:
            shutdown.is_complete = True
