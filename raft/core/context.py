"""The data that the handlers of one replica share: its configuration, its state, and the actions ordered so far.

Only `raft.core.transitions` sets `state`; everything else in here is changed by its owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraftbase.endpoint import Endpoint
from raft.core.actions import Action, Reply, Send
from raft.core.config import QuorumConfig
from raft.core.connections import Connections
from raft.core.decisions import Decision
from raft.core.election_state import ElectionState
from raft.core.epochs import LOG_BEGINNING
from raft.core.log import LogState
from raft.core.messages import Request, Response
from raft.core.snapshot_fetch_state import SnapshotFetch
from raft.core.state_digests import StateDigests
from raft.core.states import Candidate, Follower, Leader, Prospective, Resigned, State, Unattached
from raft.core.types import (
    Epoch,
    LeaderAndEpoch,
    NodeId,
    Offset,
    OffsetAndEpoch,
    RecoveringLog,
    RefusedLeader,
    ReplicaKey,
)
from raft.core.voters import VoterSet

if TYPE_CHECKING:
    from random import Random


@dataclass(slots=True, kw_only=True)
class Context:
    """One replica's data."""

    config: QuorumConfig
    cluster_id: str
    key: ReplicaKey | None
    endpoint: Endpoint | None
    voters: VoterSet
    bootstrap_endpoints: tuple[Endpoint, ...]
    log: LogState
    random: Random
    state: State
    connections: Connections
    high_watermark: Offset
    """The largest high watermark that this replica has known; it never decreases (RF-10, RF-43)."""
    now_ms: int
    persisted: ElectionState | None
    """The last election state that was ordered to be made durable."""
    announced: LeaderAndEpoch
    fetch_version_allowed: int
    """The highest version of Fetch that the cluster has finalized (PK-05); the configuration may limit it further."""
    snapshot_fetch: SnapshotFetch | None = None
    """The snapshot that is being fetched. It outlives the leader that offered it: every node has the same bytes."""
    snapshot_fetches: int = 0
    recovering: RecoveringLog | None = None
    """Set while the log lacks what it once had, or may have had: the replica neither votes nor counts."""
    heard: set[NodeId] = field(default_factory=set)
    """The other voters that have answered a replica in a new directory."""
    applied: OffsetAndEpoch = LOG_BEGINNING
    """What the state machine had applied at the start, so it was committed. Later it applies up to the high watermark.
    The log holds it, unless the replica recovers."""
    refused_leader: RefusedLeader | None = None
    """The last leader that lacks committed records, until another one is followed (`raft.core.committed`)."""
    state_digests: StateDigests = field(default_factory=StateDigests)
    """The last checkpoints of this replica's own state machine."""
    is_fenced: bool = False
    """Whether its state machine differs from the quorum's: it fetches and votes, but is not elected."""
    rebuild_deadline_ms: int | None = None
    """Set while it is fenced and waits for the leader's permission to rebuild: when it rebuilds without it."""
    actions: list[Action] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    """What was decided in this step, for whoever observes the replica."""
    is_flushing: bool = False
    """Whether a FlushLog was ordered and has not finished."""
    is_shutting_down: bool = False
    is_handing_over: bool = False
    """Whether it resigned to shut down: the next epoch, whichever voter opens it, completes the shutdown."""
    is_shutdown_complete: bool = False

    @property
    def epoch(self) -> Epoch:
        """The epoch that this replica is in."""
        return self.state.epoch

    @property
    def own_id(self) -> NodeId | None:
        """This replica's node id; None for a tool that follows (RF-02)."""
        return None if self.key is None else self.key.node_id

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the voter set (RF-01)."""
        return self.key is not None and self.voters.is_voter(self.key)

    @property
    def committed_offset(self) -> Offset:
        """Everything below is known as committed: the high watermark says so, or it was applied."""
        return max(self.high_watermark, self.applied.offset)

    @property
    def kept_offset(self) -> Offset:
        """Everything below in the log is known as committed and is never truncated.

        A replica that recovers has lost some of what it applied. Its log may have an older tail there that was never
        committed, so only the high watermark counts.
        """
        # Consider a log that ended at 20, all of it applied. Its disk is replaced by a copy from yesterday, which ends
        # at 12; its records 10 and 11 are of a leader that was deposed before they were committed, and were cut since.
        # What was applied, 20, would forbid their truncation, and no leader's log could ever continue this one.
        return self.committed_offset if self.recovering is None else self.high_watermark

    @property
    def may_be_elected(self) -> bool:
        """Whether it may ask for votes."""
        return self.is_voter and (self.recovering is None or self.may_found) and not self.is_fenced

    @property
    def may_found(self) -> bool:
        """Whether, in a new directory, it may take part in an election among voters with empty logs."""
        return self.recovering is not None and self.recovering.may_found and self.log.end_offset == 0

    @property
    def is_only_voter(self) -> bool:
        """Whether it is the sole voter (RF-04)."""
        return self.key is not None and self.voters.is_only_voter(self.key)

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader to name in answers. A resigned leader names none, not even itself (RF-13)."""
        match self.state:
            case Leader() | Follower() | Unattached() | Prospective():
                return LeaderAndEpoch(self.state.leader_id, self.state.epoch)
            case Candidate() | Resigned():
                return LeaderAndEpoch(None, self.state.epoch)

    @property
    def leader_of_epoch(self) -> NodeId | None:
        """The replica that leads the epoch, or led it: unlike `leader`, it is this replica when it has resigned."""
        # Consider a leader of epoch 5 that has resigned and is asked to follow voter 2 as the leader of epoch 5. It
        # names no leader in its answers, but it knows that only itself has led that epoch.
        return self.own_id if isinstance(self.state, Resigned) else self.leader.leader_id

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens, if it and that are known."""
        match self.state:
            case Leader():
                return self.endpoint
            case Follower() | Prospective():
                return self.state.leader_endpoint
            case _:
                return None

    @property
    def fetch_version(self) -> int:
        """The version of the next Fetch."""
        return min(self.config.fetch_version, self.fetch_version_allowed)

    def other_voters(self) -> list[NodeId]:
        """The ids of all voters except this replica."""
        return [key.node_id for key in self.voters.replica_keys() if key.node_id != self.own_id]

    def endpoint_of(self, node_id: NodeId) -> Endpoint | None:
        """Where a voter listens (RF-62)."""
        voter = self.voters.get(node_id)
        return None if voter is None else voter.endpoint

    def election_timeout_ms(self) -> int:
        """A new election timeout: random, from T up to twice T (RF-09)."""
        timeout_ms = self.config.election_timeout_ms
        return timeout_ms + self.random.randrange(timeout_ms)

    def order(self, action: Action) -> None:
        """Order `action` after everything ordered so far."""
        self.actions.append(action)

    def reply(self, request_id: int, response: Response) -> None:
        """Answer a request."""
        self.actions.append(Reply(request_id, response))

    def send(self, endpoint: Endpoint, request: Request) -> None:
        """Send a request to a peer whose connection is ready."""
        correlation_id = self.connections.sent(endpoint, request, self.epoch, self.now_ms)
        self.actions.append(Send(correlation_id, endpoint, request))
