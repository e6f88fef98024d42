"""The states of a replica: one class per state, each with its own timers and counters.

Leaving a state drops the object, so no timer of an earlier state can fire. Which state may follow which is data in
`raft.core.transitions`. All times are monotonic milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from kraftbase.endpoint import Endpoint
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK, UNKNOWN_OFFSET
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.accumulator import Accumulator
from raft.core.election_state import ElectionState
from raft.core.purgatory import Purgatory
from raft.core.quorum import VoteTally
from raft.core.state_digests import StateDigests
from raft.core.types import CommittedGap, OffsetAndEpoch, ReplicaKey, StateDigest


class Role(StrEnum):
    """The names of the states, as operators see them."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


@dataclass(slots=True, kw_only=True)
class Unattached:
    """Knows no leader to fetch from; may have voted. No election deadline: an observer, or shutting down."""

    epoch: Epoch
    leader_id: NodeId | None
    voted_key: ReplicaKey | None
    election_deadline_ms: int | None


@dataclass(slots=True, kw_only=True)
class Prospective:
    """Asks for pre-votes: whether it would win, without a new epoch and without a write to disk (KIP-996)."""

    epoch: Epoch
    leader_id: NodeId | None
    leader_endpoint: Endpoint | None
    voted_key: ReplicaKey | None
    election_deadline_ms: int
    votes: VoteTally


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Asks for votes in an epoch that it opened, having voted for itself."""

    epoch: Epoch
    voted_key: ReplicaKey
    election_deadline_ms: int
    votes: VoteTally


@dataclass(slots=True)
class ReplicaProgress:
    """The leader's view of another replica's log (RF-47)."""

    key: ReplicaKey
    end_offset: Offset = UNKNOWN_OFFSET
    """The offset of its last fetch; -1 before the first."""
    last_fetch_ms: int | None = None
    """When it last fetched records or a snapshot."""
    last_caught_up_ms: int | None = None
    log_start_offset: Offset = UNKNOWN_OFFSET
    """Where its log starts, by its last fetch."""
    snapshot_offset: Offset = UNKNOWN_OFFSET
    """The end of the snapshot that it is fetching."""
    leader_end_offset_at_last_fetch: Offset = UNKNOWN_OFFSET
    is_recovering: bool = False
    """It fetches again what damage took from its disk, and does not count, whatever its end offset."""
    state_digests: StateDigests = field(default_factory=StateDigests)
    """The state digests in its fetches."""
    expected_state_digest: StateDigest | None = None
    """Set while its state machine differs: the right digest."""
    wants_rebuild: bool = False
    """Its state machine is fenced and waits to be rebuilt."""
    is_notified: bool = False
    """Whether an answer in this epoch has notified it."""
    leader_lacks: CommittedGap | None = None
    """The gap that it reports in this leader's log; while set, it does not follow this leader."""
    last_refused_ms: int | None = None
    """When it last reported the gap."""

    @property
    def has_diverged(self) -> bool:
        """Whether its state machine differs from the quorum's, or has fenced itself."""
        return self.expected_state_digest is not None or self.wants_rebuild

    @property
    def next_offset(self) -> Offset:
        """The next offset of the leader's log that it needs; -1 if unknown."""
        return max(self.end_offset, self.snapshot_offset)

    def fetched_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """Record that it is fetching that snapshot: it will continue at the snapshot's end."""
        self.snapshot_offset = snapshot_id.offset
        self.last_fetch_ms = now_ms

    def refused(self, gap: CommittedGap, now_ms: int) -> None:
        """Record that it does not follow this leader."""
        self.leader_lacks = gap
        self.last_refused_ms = now_ms

    def fetched(self, fetch_offset: Offset, leader_end_offset: Offset, now_ms: int) -> None:
        """Record a fetch. Caught up: it reaches the leader's log end, or that of the time of its previous fetch."""
        # Consider a leader that appends ten records between any two fetches of a follower:
        #
        #     at   0 ms it fetches from 100, the leader's log ends at 100: it is there, caught up at 0
        #     at 100 ms it fetches from 100, the leader's log ends at 110: it is at the end of 0 ms, caught up at 0
        #     at 200 ms it fetches from 110, the leader's log ends at 120: it is at the end of 100 ms, caught up at 100
        #
        # It is never level with the leader's present end, and never more than one fetch behind. Compared with the
        # present end alone it would seem to fall further and further behind (KAFKA-4485).
        self.leader_lacks = None
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 < self.leader_end_offset_at_last_fetch <= fetch_offset and self.last_fetch_ms is not None:
            self.last_caught_up_ms = max(self.last_caught_up_ms or 0, self.last_fetch_ms)
        self.end_offset = fetch_offset
        self.snapshot_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = now_ms
        self.leader_end_offset_at_last_fetch = leader_end_offset


@dataclass(slots=True, kw_only=True)
class Leader:
    """Leads its epoch."""

    epoch: Epoch
    leader_id: NodeId
    voted_key: ReplicaKey
    epoch_start_offset: Offset
    accumulator: Accumulator
    purgatory: Purgatory
    granting_voters: tuple[ReplicaKey, ...]
    voters: dict[NodeId, ReplicaProgress]
    """The other voters."""
    check_quorum_deadline_ms: int | None
    """When it resigns unless a majority has fetched before (RF-32); None for a sole voter."""
    begin_quorum_deadline_ms: int
    """When it next notifies voters that do not fetch from it (RF-33)."""
    since_ms: int = 0
    """When it was elected."""
    high_watermark: Offset = UNKNOWN_HIGH_WATERMARK
    """Unknown until a record of this epoch is on a majority (RF-42)."""
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    rebuilding: ReplicaKey | None = None
    """The voter that was last permitted to rebuild its state machine, until it is back."""
    rebuilding_since_ms: int = 0
    state_alarm_offset: Offset | None = None
    """The end offset at which the voters' state digests differ, and no majority has the same."""
    fetched_since_check: dict[NodeId, None] = field(default_factory=dict)
    """Voters that fetched since the check-quorum deadline was last set."""


@dataclass(slots=True, kw_only=True)
class Follower:
    """Fetches from the leader of its epoch."""

    epoch: Epoch
    leader_id: NodeId
    leader_endpoint: Endpoint
    voted_key: ReplicaKey | None
    fetch_deadline_ms: int
    has_fetched: bool = False
    """Whether a fetch from this leader in this epoch has succeeded; then the replica grants no pre-vote (KIP-996)."""
    refused_since_ms: int | None = None
    """The time since which the leader's address has refused every connection; None if the last one was not refused."""
    refusals_count_from_ms: int = 0
    """Refused connections before this time do not count: the replica has just asked for pre-votes."""
    is_given_up: bool = False
    """Whether the leader's address has refused connections for so long that its process has ended (RF-30)."""
    leader_high_watermark: Offset = UNKNOWN_HIGH_WATERMARK
    """The leader's high watermark, by its last answer: it may be above this replica's log end."""
    leader_log_start_offset: Offset = UNKNOWN_OFFSET
    """Where the leader's log starts, by its last answer."""
    leader_end_offset: Offset = UNKNOWN_OFFSET
    """Where the leader's log ended when it last had no record for this replica."""

    def fetched(self, fetch_deadline_ms: int) -> None:
        """Record that the leader has answered a fetch: the fetch timeout starts again."""
        self.has_fetched = True
        self.fetch_deadline_ms = fetch_deadline_ms
        self.refused_since_ms = None
        self.refusals_count_from_ms = 0
        self.is_given_up = False


@dataclass(slots=True, kw_only=True)
class Resigned:
    """Led this epoch and no longer does; notifies the other voters and waits for an election (RF-103)."""

    epoch: Epoch
    voted_key: ReplicaKey | None
    election_deadline_ms: int
    unacknowledged: dict[NodeId, None]
    """Voters that have not acknowledged the resignation (RF-34)."""
    preferred_candidates: tuple[ReplicaKey, ...]


State: TypeAlias = Unattached | Prospective | Candidate | Leader | Follower | Resigned

ROLES: dict[type, Role] = {
    Unattached: Role.UNATTACHED,
    Prospective: Role.PROSPECTIVE,
    Candidate: Role.CANDIDATE,
    Leader: Role.LEADER,
    Follower: Role.FOLLOWER,
    Resigned: Role.RESIGNED,
}


def durable_state(state: State, own_id: NodeId | None) -> ElectionState:
    """The part of `state` that must survive a crash (RF-08, RF-11).

    A prospective replica keeps what was durable before, and a resigned one what was durable as the leader: neither
    transition writes anything.
    """
    match state:
        case Candidate():
            return ElectionState(epoch=state.epoch, voted_key=state.voted_key)
        case Resigned():
            return ElectionState(epoch=state.epoch, leader_id=own_id, voted_key=state.voted_key)
        case _:
            return ElectionState(epoch=state.epoch, leader_id=state.leader_id, voted_key=state.voted_key)
