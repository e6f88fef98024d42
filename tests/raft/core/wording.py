"""One line of a transcript for each message, action and state of the core.

A point in a log is written `7 (epoch 5)`: an end offset, and the epoch of the record before it. A batch is written
`5-6 (epoch 4) "a" "b"`, with its first and its last offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftbase.errors import ErrorCode
from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT
from raft.core import actions
from raft.core.actions import Action
from raft.core.election_state import ElectionState
from raft.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderChange,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raft.core.replica import Replica
from raft.core.states import Leader
from raft.core.types import Batch, CommittedGap, OffsetAndEpoch, ReplicaKey, StateDigest


def point(place: OffsetAndEpoch) -> str:
    return f"{place.offset} (epoch {place.epoch})"


def ids(keys: Sequence[ReplicaKey]) -> str:
    return ", ".join(str(key.node_id) for key in keys)


def leader_change(record: LeaderChange) -> str:
    return f"leader change: {record.leader_id} by the votes of {ids(record.granting_voters)}"


def batches(found: Sequence[Batch]) -> str:
    return "; ".join(_batch(one) for one in found)


def _batch(batch: Batch) -> str:
    last = "" if batch.record_count == 1 else f"-{batch.last_offset}"
    return f"{batch.base_offset}{last} (epoch {batch.epoch}) {batch.data.decode().strip()}"


def digest(found: StateDigest) -> str:
    return f"{found.digest.decode()} at {found.end_offset}"


def gap(found: CommittedGap) -> str:
    return f"agrees up to {found.agreed_offset} at most, committed up to {found.committed_offset}"


# --- messages ---------------------------------------------------------------------------------------------------------


def request(message: Request) -> str:
    match message:
        case VoteRequest():
            end = OffsetAndEpoch(epoch=message.last_epoch, offset=message.last_offset)
            return f"{_vote(message)} epoch {message.replica_epoch}, log ends at {point(end)}"
        case BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch {message.leader_epoch}"
        case EndQuorumEpochRequest():
            return f"EndQuorumEpoch {message.leader_epoch}, preferred: {ids(message.preferred_candidates)}"
        case FetchRequest():
            return _fetch(message)
        case FetchSnapshotRequest():
            return f"FetchSnapshot {point(message.snapshot_id)} from byte {message.position}"
    return type(message).__name__


def _vote(message: VoteRequest | VoteResponse) -> str:
    return "PreVote" if message.pre_vote else "Vote"


def _fetch(message: FetchRequest) -> str:
    end = OffsetAndEpoch(epoch=message.last_fetched_epoch, offset=message.fetch_offset)
    is_old = message.high_watermark == HIGH_WATERMARK_NOT_SENT
    parts = [f"Fetch{' (17)' if is_old else ''} epoch {message.current_leader_epoch}, from {point(end)}"]
    if not is_old:
        parts.append(f"high watermark {message.high_watermark}")
    if message.recovering:
        parts.append("recovering")
    if message.state_digest is not None:
        parts.append(f"digest {digest(message.state_digest)}")
    if message.leader_lacks is not None:
        parts.append(f"the leader lacks records: {gap(message.leader_lacks)}")
    if message.wants_rebuild:
        parts.append("asks to rebuild")
    return ", ".join(parts)


def response(message: Response, asked: Request) -> str:
    name = _vote(asked) if isinstance(asked, VoteRequest) else type(asked).__name__.removesuffix("Request")
    if message.error is not ErrorCode.NONE:
        return f"{name}: {message.error.name}, {_leader(message)}"
    match message:
        case VoteResponse():
            return f"{name}: {'granted' if message.vote_granted else 'refused'}, {_leader(message)}"
        case FetchResponse():
            return f"Fetch: {_fetched(message)}"
        case FetchSnapshotResponse(data=bytes() as data):
            end = message.position + len(data)
            return f"FetchSnapshot: bytes {message.position} to {end} of {message.size}"
    return f"{name}: acknowledged, {_leader(message)}"


def _leader(message: Response) -> str:
    leader_id, epoch = message.leader
    return f"epoch {epoch}" if leader_id is None else f"epoch {epoch} led by {leader_id}"


def _fetched(message: FetchResponse) -> str:
    if message.diverging_epoch is not None:
        what = f"diverging, epoch {message.diverging_epoch.epoch} ends at {message.diverging_epoch.offset}"
    elif message.snapshot_id is not None:
        what = f"snapshot {point(message.snapshot_id)}"
    else:
        what = batches(message.records) if isinstance(message.records, tuple) and message.records else "no records"
    parts = [what, f"high watermark {message.high_watermark}"]
    if message.log_start_offset > 0:
        parts.append(f"log start {message.log_start_offset}")
    if message.expected_state_digest is not None:
        parts.append(f"the quorum has digest {digest(message.expected_state_digest)}")
    if message.may_rebuild:
        parts.append("may rebuild")
    return ", ".join(parts)


# --- states and actions -----------------------------------------------------------------------------------------------


def role(replica: Replica) -> str:
    """The role of a replica; of a follower also its leader."""
    following = f" of {replica.leader_and_epoch.leader_id}" if replica.role.value == "follower" else ""
    return f"{replica.role.value}{following}, epoch {replica.epoch}"


def durable(state: ElectionState) -> str:
    leader = "" if state.leader_id is None else f", leader {state.leader_id}"
    vote = "" if state.voted_key is None else f", vote for {state.voted_key.node_id}"
    return f"epoch {state.epoch}{leader}{vote}"


def action(done: Action) -> str | None:
    """The line of an action; None if another line shows it, or it is of no interest."""
    match done:
        case actions.PersistElectionState(state):
            return f"quorum state: {durable(state)}"
        case actions.AppendLeaderChange(base_offset, epoch, record):
            return f"appends {base_offset} (epoch {epoch}) {leader_change(record)}"
        case actions.AppendRecords(base_offset, epoch, body, record_count):
            last = "" if record_count == 1 else f"-{base_offset + record_count - 1}"
            return f"appends {base_offset}{last} (epoch {epoch}) {body.decode().strip()}"
        case actions.AppendBatches(found):
            return f"appends {batches(found)}"
        case actions.TruncateLog(end_offset):
            return f"truncates its log to {end_offset}"
        case actions.TruncateFullyAndStartAt(snapshot_id):
            return f"starts its log at snapshot {point(snapshot_id)}"
        case actions.FreezeSnapshot(_, snapshot_id):
            return f"freezes snapshot {point(snapshot_id)}"
        case actions.DropSnapshot():
            return "drops what it has of the snapshot"
        case actions.EndRecovering():
            return "ends its recovery"
        case actions.EndFounding():
            return "may no longer found a quorum"
        case actions.AdvanceHighWatermark(high_watermark):
            return f"high watermark {high_watermark}"
    return _report(done)


def _report(done: Action) -> str | None:
    match done:
        case actions.FenceStateMachine(expected, own):
            return f"fences its state machine: digest {digest(own)}, and the quorum has {digest(expected)}"
        case actions.RebuildStateMachine():
            return "rebuilds its state machine"
        case actions.ReportRejectedClaim(reason):
            return f"rejects a claim: {reason}"
        case actions.ReportRefusedLeader(None):
            return "no longer refuses that leader"
        case actions.ReportRefusedLeader(refused) if refused is not None:
            return f"refuses leader {refused.leader.leader_id}: {gap(refused.gap)}"
    return None


def status(replica: Replica) -> str:
    """The state of a replica; usual values are left out."""
    known = replica._replica_state
    log = known.log
    start = "" if log.start_offset == 0 else f"log from {log.start_offset}, "
    parts = [role(replica), f"{start}log ends at {point(log.end)}", f"high watermark {replica.high_watermark}"]
    if known.state.voted_key is not None:
        parts.append(f"vote for {known.state.voted_key.node_id}")
    if replica.may_found:
        parts.append("may found a quorum")
    if replica.is_recovering:
        parts.append("recovering")
    if replica.is_fenced:
        parts.append("state machine fenced")
    if isinstance(known.state, Leader) and known.state.state_alarm_offset is not None:
        parts.append(f"state alarm at {known.state.state_alarm_offset}")
    return ", ".join(parts)
