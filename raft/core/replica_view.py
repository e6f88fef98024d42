"""What may be read of a replica: by its shell, by observers of the shell, by the simulator's checkers.

Nobody outside the core reads anything else of it. Reading changes nothing; what is returned is not to be kept over a
step, because it may change with it.
"""

from __future__ import annotations

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from raft.core import leading
from raft.core.context import Context
from raft.core.states import (
    ROLES,
    Candidate,
    Follower,
    Leader,
    Prospective,
    ReplicaProgress,
    Resigned,
    Role,
    Unattached,
)
from raft.core.types import UNKNOWN_OFFSET, Epoch, LeaderAndEpoch, Offset, OffsetAndEpoch, RefusedLeader


class ReplicaView:
    """The base class of `raft.core.replica.Replica`, without what steps it."""

    def __init__(self, context: Context) -> None:
        """`context` is the replica's own."""
        self._context = context

    @property
    def role(self) -> Role:
        """The state that it is in."""
        return ROLES[type(self._context.state)]

    @property
    def is_voter(self) -> bool:
        """Whether it votes."""
        return self._context.is_voter

    @property
    def is_leader(self) -> bool:
        """Whether it leads and has not resigned."""
        return isinstance(self._context.state, Leader)

    @property
    def is_recovering(self) -> bool:
        """Whether its log lacks what it once had: it neither votes nor counts."""
        return self._context.recovering is not None

    @property
    def may_found(self) -> bool:
        """Whether its directory is new: it takes part only in elections among voters with empty logs."""
        return self._context.may_found

    @property
    def refused_leader(self) -> RefusedLeader | None:
        """The leader that lacks committed records, while neither it nor another leader is followed."""
        return self._context.refused_leader

    @property
    def epoch(self) -> Epoch:
        """The epoch that it is in."""
        return self._context.state.epoch

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The epoch and its leader, as far as it knows."""
        return self._context.leader

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens."""
        return self._context.leader_endpoint

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed; -1 while it does not know."""
        return self._context.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """The end of its log."""
        return self._context.log.end_offset

    @property
    def followers(self) -> list[ReplicaProgress]:
        """A leader's view of the other voters and the observers, for reading only; empty if it does not lead."""
        state = self._context.state
        return [*state.voters.values(), *state.observers.values()] if isinstance(state, Leader) else []

    @property
    def leading_since_ms(self) -> int | None:
        """When it was elected; None if it does not lead."""
        state = self._context.state
        return state.since_ms if isinstance(state, Leader) else None

    @property
    def leader_log_start_offset(self) -> Offset:
        """The log start of the leader that it follows, by its last answer; -1 if unknown."""
        state = self._context.state
        return state.leader_log_start_offset if isinstance(state, Follower) else UNKNOWN_OFFSET

    @property
    def next_append_offset(self) -> Offset:
        """The base offset of the next append, after all prepared ones; its log's end if it does not lead."""
        state = self._context.state
        return state.accumulator.next_offset if isinstance(state, Leader) else self._context.log.end_offset

    @property
    def is_shutdown_complete(self) -> bool:
        """Whether it has handed over, after ShutdownRequested."""
        return self._context.is_shutdown_complete

    @property
    def next_deadline_ms(self) -> int | None:
        """When TimePassed must be stepped at the latest."""
        state = self._context.state
        deadlines = [self._context.connections.next_deadline_ms, self._context.rebuild_deadline_ms]
        match state:
            case Unattached() | Prospective() | Resigned() | Candidate():
                deadlines.append(state.election_deadline_ms)
            case Follower():
                deadlines.append(state.fetch_deadline_ms if self._context.may_be_elected else None)
            case Leader():
                deadlines += [
                    state.check_quorum_deadline_ms,
                    state.begin_quorum_deadline_ms,
                    state.purgatory.next_deadline_ms,
                ]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def truncation_point(self, diverging: OffsetAndEpoch) -> Offset:
        """Where the log would be truncated after an answer that it diverges there (RF-51)."""
        return self._context.log.truncation_point(diverging)

    def refuse_append(self, epoch: Epoch, body_bytes: int) -> tuple[ErrorCode, str] | None:
        """Why AppendPrepared would be refused now; None if it would be taken."""
        return leading.refuse_append(self._context, epoch, body_bytes)
