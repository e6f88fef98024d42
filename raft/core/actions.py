"""The actions that a replica orders. The shell carries them out strictly in the order given, except for answers to
fetches on which no commit depends (`raft.shell.deferred_replies`).

Durability follows from that order and one rule: PersistElectionState is a barrier. No later action takes effect before
the election state is on disk, so no message and no record of an epoch leaves before the epoch and the vote are durable
(RF-11). FlushLog is no barrier: the actions after it do not wait, and the core waits for LogFlushed where it must (a
follower's next Fetch, the leader's own part in the high watermark).

AppendRecords and AppendBatches do not fail for lack of space: the shell reserves it before it gives the core a client's
append or a response with batches, and refuses or drops those when there is none. Any other failure to write ends the
process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, Offset
from raft.core.election_state import ElectionState
from raft.core.messages import LeaderChange, Request, Response
from raft.core.types import Batch, LeaderAndEpoch, OffsetAndEpoch, RefusedLeader, StateDigest


@dataclass(frozen=True, slots=True)
class PersistElectionState:
    """Make this the durable election state before anything that follows."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """The leader's own append: encode one batch and write it at `base_offset`."""

    base_offset: Offset
    epoch: Epoch
    body: bytes
    record_count: int


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """The leader's first append in its epoch: one control batch with one record (RF-40, LI-24)."""

    base_offset: Offset
    epoch: Epoch
    record: LeaderChange


@dataclass(frozen=True, slots=True)
class AppendBatches:
    """A follower's append: contiguous from its log end offset, written as received."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Make the log durable up to `end_offset`, then report LogFlushed(end_offset). At most one flush is in progress."""

    end_offset: Offset


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Truncate the log durably to `end_offset`, before anything that follows."""

    end_offset: Offset


@dataclass(frozen=True, slots=True)
class TruncateFullyAndStartAt:
    """Replace the log durably by an empty one that starts where this snapshot ends, before anything that follows."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class AppendSnapshot:
    """Write the next bytes of a snapshot that is being fetched, then report SnapshotAppended or SnapshotRefused.

    At most one is in progress. The first AppendSnapshot of a `fetch_id` begins the snapshot.
    """

    fetch_id: int
    snapshot_id: OffsetAndEpoch
    data: bytes


@dataclass(frozen=True, slots=True)
class FreezeSnapshot:
    """The snapshot is completely written: make it durable, then report SnapshotReceived or SnapshotRefused."""

    fetch_id: int
    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Drop the fetched part of a snapshot, and report nothing more about it."""

    fetch_id: int


@dataclass(frozen=True, slots=True)
class EndRecovering:
    """Remove the mark of recovery, durably: the log again has everything that damage had taken."""


@dataclass(frozen=True, slots=True)
class EndFounding:
    """A quorum exists: note durably that this replica in a new directory may only join it."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send `request`; report ResponseReceived or RequestFailed with this correlation id, at most once."""

    correlation_id: int
    destination: Endpoint
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The encoded batches from `start_offset`: whole batches, at least one, about `max_bytes` at most."""

    start_offset: Offset
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRange:
    """The bytes of the snapshot that the answer names, from `position`, at most `max_bytes`.

    The answer becomes SNAPSHOT_NOT_FOUND if there is none, POSITION_OUT_OF_RANGE if the snapshot is shorter (SN-10).
    """

    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request that arrived under `request_id`."""

    request_id: int
    response: Response
    reads: LogRange | SnapshotRange | None = None
    """The data to read for the response: the core holds neither the log nor snapshots."""


@dataclass(frozen=True, slots=True)
class CompleteAppend:
    """The append is committed: the high watermark is past its last record (LI-28)."""

    append_id: int


@dataclass(frozen=True, slots=True)
class FailAppend:
    """The append was refused, or leadership was lost before it committed (the next leader may still commit it)."""

    append_id: int
    error: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Everything below `high_watermark` is committed: listeners may read it."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class AnnounceLeader:
    """The leader or the epoch changed.

    `epoch_start_offset` is set iff this replica leads: its own listeners are notified only when they have read past
    that offset (LI-05).
    """

    leader: LeaderAndEpoch
    epoch_start_offset: Offset | None


@dataclass(frozen=True, slots=True)
class FenceStateMachine:
    """The local state machine's digest is `own`, the quorum's is `expected`: it must stop. Ordered once."""

    expected: StateDigest
    own: StateDigest


@dataclass(frozen=True, slots=True)
class ReportRejectedClaim:
    """A peer made an impossible claim, which was refused without any effect: log it for operators."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReportRefusedLeader:
    """The epoch's leader lacks committed records and is not followed: the node is not ready. None: ready again."""

    refused: RefusedLeader | None


@dataclass(frozen=True, slots=True)
class RebuildStateMachine:
    """The fenced local state machine may be rebuilt now: as far as is known, no other voter is rebuilding its own."""


# Why PersistElectionState is a barrier, and FlushLog is not. Consider voter 2, which grants its vote in epoch 5 to
# voter 1: the actions are PersistElectionState and Reply. If 2 answered first and then crashed, it would start again in
# epoch 4 and could grant voter 3 a vote in epoch 5: two leaders of one epoch. So every later action waits, which costs
# little because elections are rare.
#
# Consider leader 1, which appends record 100: the actions are AppendRecords, Reply to the parked fetches, and FlushLog.
# Followers may receive the record, and flush it, before it is flushed here. The core counts its own log only up to the
# last LogFlushed, so nothing has to wait for the disk in between.
Action: TypeAlias = (
    PersistElectionState
    | AppendRecords
    | AppendLeaderChange
    | AppendBatches
    | FlushLog
    | TruncateLog
    | TruncateFullyAndStartAt
    | AppendSnapshot
    | FreezeSnapshot
    | DropSnapshot
    | EndRecovering
    | EndFounding
    | Send
    | Reply
    | CompleteAppend
    | FailAppend
    | AdvanceHighWatermark
    | AnnounceLeader
    | FenceStateMachine
    | ReportRejectedClaim
    | ReportRefusedLeader
    | RebuildStateMachine
)
