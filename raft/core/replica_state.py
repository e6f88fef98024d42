"""What a replica knows and has promised. Each field has one owner, the only module that changes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftbase.endpoint import Endpoint
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.election_state import ElectionState
from raft.core.environment import Environment
from raft.core.epoch_allowance import EpochAllowance
from raft.core.epochs import LOG_BEGINNING
from raft.core.log import LogState
from raft.core.snapshot_fetch_state import SnapshotFetch
from raft.core.state_digests import StateDigests
from raft.core.states import Candidate, Follower, Leader, Prospective, Resigned, State, Unattached
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch, RecoveringLog, RefusedLeader


@dataclass(slots=True)
class LocalStateMachine:
    """What is known of this replica's state machine; `raft.core.state_mismatch` and `rebuilding` change it."""

    digests: StateDigests = field(default_factory=StateDigests)
    """Its last checkpoints."""
    is_fenced: bool = False
    """Whether the state machine differs from the quorum's: the replica fetches and votes, but is not elected."""
    rebuild_deadline_ms: int | None = None
    """When the replica rebuilds without the leader's permission; set while it is fenced and waits for that."""


@dataclass(slots=True)
class Shutdown:
    """The progress of a shutdown; `raft.core.shutting_down` changes it."""

    is_requested: bool = False
    is_handing_over: bool = False
    """Whether it resigned to shut down: the next epoch, whichever voter opens it, completes the shutdown."""
    is_complete: bool = False


@dataclass(slots=True, kw_only=True)
class ReplicaState:
    """One replica's state."""

    # `raft.core.transitions`:
    state: State
    persisted: ElectionState | None
    """The last election state that was ordered to be made durable."""
    announced: LeaderAndEpoch
    epoch_allowance: EpochAllowance
    """Also used by `raft.core.validation`."""
    # The log, and what is known of it:
    log: LogState
    high_watermark: Offset
    """The largest high watermark that this replica has known; it never decreases (RF-10, RF-43).
    `raft.core.high_watermark` advances it."""
    applied: OffsetAndEpoch = LOG_BEGINNING
    """The end of what the state machine had applied at the start, which was committed. Later it applies up to the high
    watermark. The log holds the applied records, unless the replica recovers.
    """
    # `raft.core.newcomers`:
    recovering: RecoveringLog | None = None
    """Set while the log lacks what it once had, or may have had: the replica neither votes nor counts."""
    heard: set[NodeId] = field(default_factory=set)
    """The other voters that have answered a replica in a new directory."""
    # `raft.core.committed`:
    refused_leader: RefusedLeader | None = None
    """The last leader that lacks committed records, until another one is followed."""
    # `raft.core.following`, and `raft.core.leading`:
    level_ms: int
    """When this replica was last level with its leader, as far as the leader knew: it applied an answer to a fetch, and
    had room for it. For a leader: when a majority last fetched.
    """
    # `raft.core.snapshot_fetch`:
    snapshot_fetch: SnapshotFetch | None = None
    """The snapshot that is being fetched. It outlives the leader that offered it: every node has the same bytes."""
    snapshot_fetches: int = 0
    """How many were begun."""
    # `raft.core.replica`, on an event:
    fetch_version_allowed: int
    """The highest version of Fetch that the cluster has finalized (PK-05); the configuration may limit it further."""
    # With owners of their own, named above:
    state_machine: LocalStateMachine = field(default_factory=LocalStateMachine)
    shutdown: Shutdown = field(default_factory=Shutdown)

    @property
    def epoch(self) -> Epoch:
        """The epoch that this replica is in."""
        return self.state.epoch

    @property
    def committed_offset(self) -> Offset:
        """The offset below which everything is known as committed, by the high watermark or because it was applied."""
        return max(self.high_watermark, self.applied.offset)

    @property
    def kept_offset(self) -> Offset:
        """The offset below which the log is known as committed and is never truncated.

        A replica that recovers has lost some of what it applied. Its log may have an older tail there that was never
        committed, so only the high watermark counts.
        """
        # Consider a log that ended at 20, all of it applied. Its disk is replaced by a copy from yesterday, which ends
        # at 12; its records 10 and 11 are of a leader that was deposed before they were committed, and were cut since.
        # The applied end, 20, would forbid their truncation, and no leader's log could ever continue this one.
        return self.committed_offset if self.recovering is None else self.high_watermark

    @property
    def may_found(self) -> bool:
        """Whether, in a new directory, it may take part in an election among voters with empty logs."""
        return self.recovering is not None and self.recovering.may_found and self.log.end_offset == 0

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader to name in answers. A resigned leader names none, not even itself (RF-13)."""
        match self.state:
            case Leader() | Follower() | Unattached() | Prospective():
                return LeaderAndEpoch(self.state.leader_id, self.state.epoch)
            case Candidate() | Resigned():
                return LeaderAndEpoch(None, self.state.epoch)

    def may_be_elected(self, environment: Environment) -> bool:
        """Whether it may ask for votes."""
        has_its_log = self.recovering is None or self.may_found
        return environment.is_voter and has_its_log and not self.state_machine.is_fenced

    def leader_of_epoch(self, environment: Environment) -> NodeId | None:
        """The replica that leads the epoch, or led it. Unlike `leader`, it is this replica when it has resigned."""
        # Consider a leader of epoch 5 that has resigned and is asked to follow voter 2 as the leader of epoch 5. It
        # names no leader in its answers, but it knows that only itself has led that epoch.
        return environment.own_id if isinstance(self.state, Resigned) else self.leader.leader_id

    def leader_endpoint(self, environment: Environment) -> Endpoint | None:
        """The endpoint of the leader, if both are known."""
        match self.state:
            case Leader():
                return environment.endpoint
            case Follower() | Prospective():
                return self.state.leader_endpoint
            case _:
                return None

    def fetch_version(self, environment: Environment) -> int:
        """The version of the next Fetch."""
        return min(environment.config.fetch_version, self.fetch_version_allowed)
