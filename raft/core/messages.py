"""The messages between replicas: the quorum RPCs as values.

A request's fields may hold any value of the right type: its handler checks the ranges (`INVALID_REQUEST`).
`raft.rpc.codec` checked types, lengths of ids and checksums before it made the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftbase.types import DirectoryId, Epoch, NodeId, Offset
from raft.core.types import Batch, CommittedGap, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey, StateDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """Vote (52). `replica_epoch` is the epoch of the candidacy, or the sender's own epoch for a pre-vote (RF-03)."""

    cluster_id: str | None
    voter_key: ReplicaKey | None
    """The voter that the sender addresses; None if it did not send it (RF-21)."""
    replica_key: ReplicaKey
    replica_epoch: Epoch
    last_epoch: Epoch
    last_offset: Offset
    """The sender's log end offset."""
    pre_vote: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """BeginQuorumEpoch (53): the sender leads this epoch."""

    cluster_id: str | None
    voter_key: ReplicaKey | None
    leader_id: NodeId
    leader_epoch: Epoch
    leader_endpoint: Endpoint | None
    """The endpoint that the leader names for itself, for tools: a replica uses the voter set's endpoint."""
    leader_directory_id: DirectoryId | None = None
    """None: not sent, as in older versions."""

    @property
    def leader_key(self) -> ReplicaKey:
        """The endpoint that the leader names for itself."""
        return ReplicaKey(self.leader_id, self.leader_directory_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest:
    """EndQuorumEpoch (54): the sender no longer leads this epoch; candidates in the order of preference (RF-35)."""

    cluster_id: str | None
    leader_id: NodeId
    leader_epoch: Epoch
    preferred_candidates: tuple[ReplicaKey, ...]
    leader_endpoint: Endpoint | None
    leader_directory_id: DirectoryId | None = None
    """None: not sent, as in older versions."""

    @property
    def leader_key(self) -> ReplicaKey:
        """The endpoint that the leader names for itself."""
        return ReplicaKey(self.leader_id, self.leader_directory_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """Fetch (1) of the metadata log."""

    cluster_id: str | None
    replica_key: ReplicaKey | None
    """None: a tool, answered but never counted (RF-73)."""
    current_leader_epoch: Epoch
    fetch_offset: Offset
    last_fetched_epoch: Epoch
    max_wait_ms: int
    max_bytes: int
    high_watermark: Offset
    """The sender's high watermark, -1 if unknown, 2^63-1 if it did not send one (PK-03), as tools do not (PK-06)."""
    recovering: bool = False
    """The sender fetches again what its disk lost: until it has everything, it neither votes nor counts."""
    state_digest: StateDigest | None = None
    """The digest of the sender's state machine at its last checkpoint."""
    log_start_offset: Offset = UNKNOWN_OFFSET
    """Where the sender's log starts, for operators; -1 if not sent."""
    leader_lacks: CommittedGap | None = None
    """Set: the leader lacks records that the sender knows as committed. The sender does not follow it, nor count."""
    wants_rebuild: bool = False
    """The sender's state machine is fenced, and waits for permission to rebuild."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest:
    """FetchSnapshot (59)."""

    cluster_id: str | None
    replica_key: ReplicaKey | None
    current_leader_epoch: Epoch
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumRequest:
    """DescribeQuorum (55)."""

    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Response:
    """The fields of every answer, errors included (RF-60)."""

    error: ErrorCode = ErrorCode.NONE
    leader: LeaderAndEpoch
    leader_endpoint: Endpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse(_Response):
    """The answer to VoteRequest."""

    vote_granted: bool = False
    pre_vote: bool = False
    """The kind of vote that this answers, as in the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochResponse(_Response):
    """The answer to BeginQuorumEpochRequest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochResponse(_Response):
    """The answer to EndQuorumEpochRequest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse(_Response):
    """The answer to FetchRequest."""

    high_watermark: Offset
    log_start_offset: Offset
    diverging_epoch: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    records: tuple[Batch, ...] = ()
    """Set where the response arrives. The core that makes it does not hold records: see `raft.core.actions.Reply`."""
    expected_state_digest: StateDigest | None = None
    """The quorum's state digest, if the receiver's differs from it."""
    may_rebuild: bool = False
    """The receiver may rebuild its fenced state machine now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse(_Response):
    """The answer to FetchSnapshotRequest."""

    snapshot_id: OffsetAndEpoch
    size: int = 0
    """The size of the whole snapshot, in bytes."""
    position: int = 0
    data: bytes = b""
    """Set where the response arrives, like the records of a FetchResponse; they may end within a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """One line of DescribeQuorum. Times are monotonic milliseconds of the leader, None if unknown (RF-47)."""

    key: ReplicaKey
    endpoint: Endpoint | None
    log_end_offset: Offset
    """-1 if unknown."""
    log_start_offset: Offset
    """-1 if unknown."""
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    is_recovering: bool = False
    """The replica fetches again what its disk lost, and does not count."""
    has_diverged: bool = False
    """The replica's state machine differs from the quorum's: it is fenced."""
    leader_lacks: CommittedGap | None = None
    """The leader lacks records that the replica knows as committed, so the replica does not follow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartHolder:
    """A reader of the leader's log that needs records which could otherwise be deleted (KAFKA-14932)."""

    replica_id: NodeId | None
    """Set for a replica."""
    listener: str
    """The name of one of the leader's own listeners; empty for a replica."""
    next_offset: Offset
    """The offset below which it has read everything."""
    held_ms: int
    """How long it has held back the log start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumResponse(_Response):
    """The answer to DescribeQuorumRequest; only the leader knows the lists."""

    high_watermark: Offset
    voters: tuple[ReplicaDescription, ...] = ()
    observers: tuple[ReplicaDescription, ...] = ()
    log_start_holders: tuple[LogStartHolder, ...] = ()
    """The readers that hold the leader's log start back."""
    kraft_version: int = 0
    """1 if the leader knows the voters by their directory ids, too (RF-80)."""
    state_alarm_offset: Offset | None = None
    """Set: the end offset at which the voters' state digests differ, and no majority has the same."""


Request: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | DescribeQuorumRequest
)
Response: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | DescribeQuorumResponse
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """The control record that opens an epoch (RF-40)."""

    leader_id: NodeId
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]
