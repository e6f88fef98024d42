"""The readable state of a replica: for its shell, observers of the shell, and the simulator's checkers.

No module outside the core reads anything else of a replica. Reading changes nothing. Do not keep a returned object over
a step, because the step may change it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK, UNKNOWN_OFFSET
from kraftbase.types import Epoch, Offset
from raft.core.appends import leader_for
from raft.core.config import QuorumConfig
from raft.core.connections import Pending
from raft.core.decisions import Decision
from raft.core.environment import Environment
from raft.core.output import Output
from raft.core.purgatory import ParkedFetch
from raft.core.replica_state import ReplicaState
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
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch, RefusedLeader
from raft.core.voters import VoterSet


class ReplicaView:
    """The base class of `raft.core.replica.Replica`, without the methods that step it."""

    def __init__(self, environment: Environment, replica_state: ReplicaState, output: Output) -> None:
        """The fields belong to the replica."""
        self._environment = environment
        self._replica_state = replica_state
        self._output = output

    # --- what it was given ----------------------------------------------------------------------------------------

    @property
    def config(self) -> QuorumConfig:
        """Its timeouts and limits."""
        return self._environment.config

    @property
    def endpoint(self) -> Endpoint | None:
        """The endpoint at which it listens; None for a tool that follows."""
        return self._environment.endpoint

    @property
    def voters(self) -> VoterSet:
        """The voters that it knows, and their endpoints."""
        return self._environment.voters

    @property
    def bootstrap_endpoints(self) -> tuple[Endpoint, ...]:
        """The servers that it asks for the leader, if any were given."""
        return self._environment.bootstrap_endpoints

    @property
    def fetch_version(self) -> int:
        """The version of its next Fetch."""
        return self._replica_state.fetch_version(self._environment)

    # --- its part in the quorum -----------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The state that it is in."""
        return ROLES[type(self._replica_state.state)]

    @property
    def is_voter(self) -> bool:
        """Whether it votes."""
        return self._environment.is_voter

    @property
    def is_leader(self) -> bool:
        """Whether it leads and has not resigned."""
        return isinstance(self._replica_state.state, Leader)

    @property
    def is_recovering(self) -> bool:
        """Whether its log lacks what it once had: it neither votes nor counts."""
        return self._replica_state.recovering is not None

    @property
    def may_found(self) -> bool:
        """Whether its directory is new: it takes part only in elections among voters with empty logs."""
        return self._replica_state.may_found

    @property
    def refused_leader(self) -> RefusedLeader | None:
        """The leader that lacks committed records, while the replica follows neither it nor another leader."""
        return self._replica_state.refused_leader

    @property
    def epoch(self) -> Epoch:
        """The epoch that it is in."""
        return self._replica_state.state.epoch

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The epoch and its leader, as far as it knows."""
        return self._replica_state.leader

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens."""
        return self._replica_state.leader_endpoint(self._environment)

    @property
    def is_fenced(self) -> bool:
        """Whether its state machine differs from the quorum's: it fetches and votes, but is not elected."""
        return self._replica_state.state_machine.is_fenced

    @property
    def may_be_elected(self) -> bool:
        """Whether it may ask for votes: it is a voter, is not fenced, and lacks nothing that it once had."""
        return self._replica_state.may_be_elected(self._environment)

    def behind_ms(self, now_ms: int) -> int:
        """For how long it has not been level with a leader, as far as it knows."""
        return 0 if self._environment.is_only_voter else max(0, now_ms - self._replica_state.level_ms)

    # --- its log --------------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> Offset:
        """The offset below which everything is committed; -1 while it does not know."""
        return self._replica_state.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """The end of its log."""
        return self._replica_state.log.end_offset

    @property
    def log_start(self) -> OffsetAndEpoch:
        """The first offset in its log, and the epoch of the record before."""
        return self._replica_state.log.start

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """Its newest snapshot."""
        return self._replica_state.log.latest_snapshot

    @property
    def is_fetching_snapshot(self) -> bool:
        """Whether it has begun to fetch a snapshot, and does not have all of it."""
        return self._replica_state.snapshot_fetch is not None

    def epoch_entries(self) -> list[tuple[Epoch, Offset]]:
        """The epochs of its log, and where each starts."""
        return self._replica_state.log.epochs.entries()

    def epoch_before(self, offset: Offset) -> Epoch:
        """The epoch of the record before `offset` in its log."""
        return self._replica_state.log.epochs.epoch_before(offset)

    # --- as a leader ----------------------------------------------------------------------------------------------

    @property
    def followers(self) -> list[ReplicaProgress]:
        """A leader's view of the other voters and the observers, for reading only; empty if it does not lead."""
        state = self._replica_state.state
        return [*state.voters.values(), *state.observers.values()] if isinstance(state, Leader) else []

    @property
    def leading_since_ms(self) -> int | None:
        """When it was elected; None if it does not lead."""
        state = self._replica_state.state
        return state.since_ms if isinstance(state, Leader) else None

    @property
    def epoch_start_offset(self) -> Offset | None:
        """Where the epoch that it leads starts; None if it does not lead."""
        state = self._replica_state.state
        return state.epoch_start_offset if isinstance(state, Leader) else None

    @property
    def high_watermark_of_epoch(self) -> Offset:
        """A leader's high watermark, as far as records of its epoch show it (RF-42); -1 before, and of others."""
        state = self._replica_state.state
        return state.high_watermark if isinstance(state, Leader) else UNKNOWN_HIGH_WATERMARK

    @property
    def parked_fetches(self) -> Collection[ParkedFetch]:
        """The fetches that it has parked, in the order of their arrival."""
        state = self._replica_state.state
        return state.purgatory.parked if isinstance(state, Leader) else ()

    @property
    def pending_append_bytes(self) -> int:
        """The size of the prepared appends that are not committed."""
        state = self._replica_state.state
        return state.accumulator.pending_bytes if isinstance(state, Leader) else 0

    @property
    def observer_count(self) -> int:
        """How many observers it keeps track of."""
        state = self._replica_state.state
        return len(state.observers) if isinstance(state, Leader) else 0

    # --- as a follower --------------------------------------------------------------------------------------------

    @property
    def has_fetched(self) -> bool:
        """Whether the leader that it follows has answered a fetch in this epoch, and not resigned since."""
        state = self._replica_state.state
        return isinstance(state, Follower) and state.has_fetched

    @property
    def fetch_deadline_ms(self) -> int | None:
        """When it stops following the leader unless the leader answers before; None if it follows none."""
        state = self._replica_state.state
        return state.fetch_deadline_ms if isinstance(state, Follower) else None

    @property
    def leader_log_start_offset(self) -> Offset:
        """The log start of the leader that it follows, by its last answer; -1 if unknown."""
        state = self._replica_state.state
        return state.leader_log_start_offset if isinstance(state, Follower) else UNKNOWN_OFFSET

    # --- what is in progress ------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The time of its last step."""
        return self._environment.now_ms

    @property
    def decisions(self) -> Sequence[Decision]:
        """What it decided in its last step, and why, in order."""
        return self._output.decisions

    @property
    def requests_under_way(self) -> Collection[Pending]:
        """The requests that it has sent and whose answers it would accept."""
        return self._output.connections.under_way

    @property
    def next_append_offset(self) -> Offset:
        """The base offset of the next append, after all prepared ones; its log's end if it does not lead."""
        state = self._replica_state.state
        return state.accumulator.next_offset if isinstance(state, Leader) else self._replica_state.log.end_offset

    @property
    def is_shutdown_complete(self) -> bool:
        """Whether it has handed over, after ShutdownRequested."""
        return self._replica_state.shutdown.is_complete

    @property
    def next_deadline_ms(self) -> int | None:
        """The time at which TimePassed must be stepped at the latest."""
        state = self._replica_state.state
        deadlines = [self._output.connections.next_deadline_ms, self._replica_state.state_machine.rebuild_deadline_ms]
        match state:
            case Unattached() | Prospective() | Resigned() | Candidate():
                deadlines.append(state.election_deadline_ms)
            case Follower():
                deadlines.append(
                    state.fetch_deadline_ms if self._replica_state.may_be_elected(self._environment) else None
                )
            case Leader():
                deadlines += [
                    state.check_quorum_deadline_ms,
                    state.begin_quorum_deadline_ms,
                    state.purgatory.next_deadline_ms,
                ]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def truncation_point(self, diverging: OffsetAndEpoch) -> Offset | None:
        """Where the log would be truncated after an answer that it diverges there (RF-51).

        None if it would not, because the log is committed there: the leader is refused (RF-111).
        """
        point = self._replica_state.log.truncation_point(diverging)
        return None if point < self._replica_state.kept_offset else point

    def refuse_append(self, epoch: Epoch, body_bytes: int) -> tuple[ErrorCode, str] | None:
        """Why AppendPrepared would be refused now; None if it would be accepted."""
        leader = leader_for(self._environment, self._replica_state, epoch, body_bytes)
        return None if isinstance(leader, Leader) else leader
