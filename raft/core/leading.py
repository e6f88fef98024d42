"""The leader's part: appends, the high watermark, check quorum, resignation (RF-32 to RF-48)."""

from __future__ import annotations

from kraftbase.checks import check
from kraftbase.errors import ErrorCode
from raft.core import committed, snapshot_fetch
from raft.core.accumulator import Accumulator
from raft.core.actions import (
    AdvanceHighWatermark,
    AppendLeaderChange,
    AppendRecords,
    CompleteAppend,
    FailAppend,
    FlushLog,
)
from raft.core.context import Context
from raft.core.events import AppendPrepared
from raft.core.membership import may_be_voter
from raft.core.messages import (
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    LeaderChange,
    ReplicaDescription,
)
from raft.core.purgatory import Purgatory
from raft.core.quorum import majority_end_offset
from raft.core.states import Candidate, Leader, ReplicaProgress, Resigned
from raft.core.transitions import transition
from raft.core.types import UNKNOWN_HIGH_WATERMARK, UNKNOWN_OFFSET, Epoch, ReplicaKey
from raft.core.validation import refuse_cluster


def become_leader(context: Context) -> None:
    """Enter Leader as the winner of an election and open the epoch with a leader change record (RF-40)."""
    candidate, key = context.state, context.key
    check(isinstance(candidate, Candidate) and key is not None, "a leader was a candidate")
    if not isinstance(candidate, Candidate) or key is None:
        return
    granting = candidate.votes.granting()
    leader = Leader(
        epoch=candidate.epoch,
        leader_id=key.node_id,
        voted_key=candidate.voted_key,
        epoch_start_offset=context.log.end_offset,
        accumulator=Accumulator(context.log.end_offset),
        purgatory=Purgatory(context.config.parked_fetches_max),
        granting_voters=tuple(voter for voter in context.voters.replica_keys() if voter.node_id in granting),
        voters={
            voter.node_id: ReplicaProgress(voter)
            for voter in context.voters.replica_keys()
            if voter.node_id != key.node_id
        },
        check_quorum_deadline_ms=(
            None if context.is_only_voter else context.now_ms + context.config.check_quorum_timeout_ms
        ),
        begin_quorum_deadline_ms=context.now_ms,
        since_ms=context.now_ms,
    )
    transition(context, leader)
    # In this order: first the epoch and its leader are ordered to disk, by the transition, and only then a record of
    # the epoch. After a crash between the two the replica finds itself as the leader, and starts as Resigned
    # (`initial_state`).
    committed.note_no_gap(context)  # everything known here as committed is in this log
    snapshot_fetch.abandon(context)
    _append_leader_change(context, leader)


def _append_leader_change(context: Context, leader: Leader) -> None:
    record = LeaderChange(
        leader_id=leader.leader_id, voters=tuple(context.voters.replica_keys()), granting_voters=leader.granting_voters
    )
    base_offset = context.log.append(leader.epoch, 1)
    leader.accumulator.next_offset = context.log.end_offset
    context.order(AppendLeaderChange(base_offset, leader.epoch, record))
    order_flush(context)


# --- appends ----------------------------------------------------------------------------------------------------------


def refuse_append(context: Context, epoch: Epoch, body_bytes: int) -> tuple[ErrorCode, str] | None:
    """Why an append of `body_bytes` in `epoch` is refused; None if it is not (LI-21)."""
    leader, config = context.state, context.config
    if not isinstance(leader, Leader) or epoch != leader.epoch:
        message = f"this replica does not lead epoch {epoch}; the leader is {context.leader.leader_id}"
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, message
    if body_bytes > config.batch_bytes_max:
        message = f"{body_bytes} bytes in one append; {config.batch_bytes_max} fit: append fewer records at a time"
        return ErrorCode.RECORD_LIST_TOO_LARGE, message
    if leader.accumulator.pending_bytes + body_bytes > config.pending_append_bytes_max:
        message = f"{leader.accumulator.pending_bytes} bytes wait to be committed; try again when some are"
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED, message
    return None


def on_append_prepared(context: Context, event: AppendPrepared) -> None:
    """Take a client's append, or refuse it."""
    refusal = refuse_append(context, event.epoch, len(event.body))
    if refusal is not None:
        context.order(FailAppend(event.append_id, *refusal))
    elif isinstance(context.state, Leader):
        context.state.accumulator.prepare(event.append_id, event.body, event.record_count)


def on_appends_scheduled(context: Context) -> None:
    """Release all prepared appends: they are written as soon as no flush is under way."""
    if isinstance(context.state, Leader):
        context.state.accumulator.schedule()


def drain_appends(context: Context) -> bool:
    """Write all scheduled appends, unless a flush is under way: then they gather. True if any was written."""
    leader = context.state
    if not isinstance(leader, Leader) or context.is_flushing or not leader.accumulator.has_scheduled:
        return False
    # Consider appends of one record each, ten of which come while a flush takes 2 ms. Written one by one they would
    # need ten flushes, 20 ms for the last. They gather until the present flush is done and leave as one batch: one
    # frame, one flush, and one round to the followers for all ten.
    for batch in leader.accumulator.drain(context.config.batch_bytes_max):
        base_offset = context.log.append(leader.epoch, batch.record_count)
        context.order(AppendRecords(base_offset, leader.epoch, batch.body, batch.record_count))
    return True


def order_flush(context: Context) -> None:
    """Order a flush if the log has unflushed records and no flush is under way."""
    if not context.is_flushing and context.log.flushed_end_offset < context.log.end_offset:
        context.is_flushing = True
        context.order(FlushLog(context.log.end_offset))


# --- the high watermark ---------------------------------------------------------------------------------------------


def advance_high_watermark(context: Context) -> bool:
    """Advance the high watermark to what a majority has, if that is past the epoch's start (RF-41 to RF-43).

    For itself the leader counts what it has flushed, so it cannot lose what it counts as committed (RF-45). Observers
    do not count (RF-44). Completes appends; the caller releases parked fetches and listeners (PK-08). True if it moved.
    """
    leader = context.state
    if not isinstance(leader, Leader):
        return False
    end_offsets = [
        UNKNOWN_OFFSET if progress.is_recovering else progress.end_offset for progress in leader.voters.values()
    ]
    if context.is_voter:
        # Written records that are not flushed do not count, on a leader or a follower. Consider a leader with a log
        # to 110, flushed to 100, and two followers that fetch from 110 and from 90: committed is 100, with the first
        # follower. When the second one reaches 110 the two of them commit it, and the leader's own flush may come
        # later.
        end_offsets.append(context.log.flushed_end_offset)
    reached = min(majority_end_offset(end_offsets), context.log.end_offset)
    if reached <= leader.epoch_start_offset or reached <= leader.high_watermark:
        return False
    check(reached >= context.high_watermark, "the high watermark never decreases", reached=reached)
    # Why only past the start of the epoch. Consider five voters, and record 10 of epoch 2, which its leader, 1, has
    # sent to 2 only. 1 crashes; 5 leads epoch 3 by the votes of 3, 4 and 5, writes another record 10, and crashes. 1 is
    # back, leads epoch 4, and sends its record 10 to 3: now it is on three of five. If that committed it, 5 could still
    # win epoch 5, since its log ends in epoch 3 and those of 2 and 3 end in epoch 2, and would cut it. With a record of
    # epoch 4 on the same three, 5 wins nothing any more: their logs end in a later epoch than its own. So the leader
    # change at 11 commits record 10, and before that nothing does (RF-42).
    leader.high_watermark = context.high_watermark = reached
    for append_id in leader.accumulator.take_committed(reached):
        context.order(CompleteAppend(append_id))
    return True


def announce_high_watermark(context: Context) -> None:
    """Order that listeners are fed up to the high watermark."""
    context.order(AdvanceHighWatermark(context.high_watermark))


# --- check quorum, begin quorum, resignation ------------------------------------------------------------------------


def note_contact(context: Context, leader: Leader, key: ReplicaKey) -> None:
    """A voter fetched: when a majority has, the leader may lead for another check-quorum timeout (RF-32)."""
    if key.node_id not in leader.voters or not may_be_voter(context, key):
        return
    # Consider voters 1 to 5 with a fetch timeout of 2 s, and 1 leads. Every 3 s at the latest two of the others must
    # have fetched: with the leader they are a majority. Cut off with 2 alone, 1 resigns after 3 s at the latest, while
    # 3, 4 and 5 elect another. Without that it would still lead those that reach it: observers, and clients whose
    # writes never commit.
    if leader.check_quorum_deadline_ms is not None and leader.check_quorum_deadline_ms <= context.now_ms:
        return  # it has expired, say after a pause: a late fetch must not make a majority with earlier ones
    leader.fetched_since_check[key.node_id] = None
    needed = context.voters.majority - (1 if context.is_voter else 0)
    if len(leader.fetched_since_check) >= needed:
        leader.fetched_since_check.clear()
        leader.check_quorum_deadline_ms = context.now_ms + context.config.check_quorum_timeout_ms


def poll(context: Context) -> None:
    """Resign without a majority, fenced, or to shut down; notify voters that do not fetch (RF-32, RF-33, RF-100)."""
    leader = context.state
    if not isinstance(leader, Leader):
        return
    is_alone = leader.check_quorum_deadline_ms is not None and leader.check_quorum_deadline_ms <= context.now_ms
    if is_alone or context.is_fenced or (context.is_shutting_down and not context.is_only_voter):
        resign(context)
    elif leader.begin_quorum_deadline_ms <= context.now_ms:
        leader.begin_quorum_deadline_ms = context.now_ms + context.config.begin_quorum_interval_ms
        _begin_quorum_epoch(context, leader)


def _begin_quorum_epoch(context: Context, leader: Leader) -> None:
    for voter_id, progress in leader.voters.items():
        voter = context.voters.get(voter_id)
        last_fetch_ms = progress.last_fetch_ms
        # Consider voter 3, which was cut off while 1 was elected in epoch 6. Back again it fetches from the leader of
        # epoch 5, or asks for votes. Within a second, half a fetch timeout, it learns of epoch 6 from 1 itself, and
        # does not depend on chance. A voter that fetches from 1 knows that 1 leads.
        fetches = last_fetch_ms is not None and context.now_ms - last_fetch_ms < context.config.begin_quorum_interval_ms
        if voter is None or fetches or not context.connections.is_ready(voter.endpoint):
            continue
        request = BeginQuorumEpochRequest(
            cluster_id=context.cluster_id,
            voter_key=voter.key,
            leader_id=leader.leader_id,
            leader_epoch=leader.epoch,
            leader_endpoint=context.endpoint,
            leader_directory_id=leader.voted_key.directory_id,
        )
        context.send(voter.endpoint, request)


def resign(context: Context) -> None:
    """Stop leading and ask the others to elect, the one with the longest log first (RF-34, RF-35)."""
    leader = context.state
    if not isinstance(leader, Leader):
        return
    # Consider the other voters at 100, 120 and 120, of which the second recovers: the order is the third, the first,
    # the second. The third starts an election at once, and the others give it time (RF-36). A voter with a shorter log
    # may ask in vain, and hold up one that can win; one that recovers does not ask at all.
    by_progress = sorted(
        leader.voters.values(),
        key=lambda progress: (
            progress.is_recovering or progress.has_diverged,
            -progress.end_offset,
            progress.key.node_id,
        ),
    )
    transition(
        context,
        Resigned(
            epoch=leader.epoch,
            voted_key=leader.voted_key,
            election_deadline_ms=context.now_ms + context.election_timeout_ms(),
            unacknowledged=dict.fromkeys(leader.voters),
            preferred_candidates=tuple(progress.key for progress in by_progress),
        ),
    )


def poll_resigned(context: Context) -> None:
    """Notify the voters that have not acknowledged the resignation."""
    state = context.state
    if not isinstance(state, Resigned) or context.key is None:
        return
    for voter_id in state.unacknowledged:
        voter = context.voters.get(voter_id)
        if voter is None or not context.connections.is_ready(voter.endpoint):
            continue
        request = EndQuorumEpochRequest(
            cluster_id=context.cluster_id,
            leader_id=context.key.node_id,
            leader_epoch=state.epoch,
            preferred_candidates=state.preferred_candidates,
            leader_endpoint=context.endpoint,
            leader_directory_id=context.key.directory_id,
        )
        context.send(voter.endpoint, request)


# --- description ----------------------------------------------------------------------------------------------------


def on_describe_quorum(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe every replica that the leader knows; the leader itself as caught up now (RF-48)."""
    leader = context.state
    error = refuse_cluster(context, request.cluster_id)
    if error is ErrorCode.NONE and not isinstance(leader, Leader):
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if error is not ErrorCode.NONE or not isinstance(leader, Leader) or context.key is None:
        return DescribeQuorumResponse(
            error=error,
            leader=context.leader,
            leader_endpoint=context.leader_endpoint,
            high_watermark=UNKNOWN_HIGH_WATERMARK,
        )
    forget_observers(context, leader)
    own = ReplicaProgress(context.key, context.log.end_offset, context.now_ms, context.now_ms, context.log.start_offset)
    voters = [own, *leader.voters.values()] if context.is_voter else list(leader.voters.values())
    voters.sort(key=lambda progress: progress.key.node_id)
    return DescribeQuorumResponse(
        leader=context.leader,
        leader_endpoint=context.endpoint,
        high_watermark=leader.high_watermark,
        voters=tuple(_describe(context, progress) for progress in voters),
        observers=tuple(_describe(context, progress) for progress in leader.observers.values()),
        kraft_version=1 if context.voters.has_directory_ids else 0,
        state_alarm_offset=leader.state_alarm_offset,
    )


def forget_observers(context: Context, leader: Leader) -> None:
    """Drop observers that have not fetched for a long time (RF-38)."""
    oldest_ms = context.now_ms - context.config.observer_expiration_ms
    leader.observers = {
        key: progress
        for key, progress in leader.observers.items()
        if max(progress.last_fetch_ms or 0, progress.last_refused_ms or 0) > oldest_ms
    }


def _describe(context: Context, progress: ReplicaProgress) -> ReplicaDescription:
    return ReplicaDescription(
        key=progress.key,
        endpoint=context.endpoint_of(progress.key.node_id),
        log_end_offset=progress.end_offset,
        log_start_offset=progress.log_start_offset,
        last_fetch_ms=progress.last_fetch_ms,
        last_caught_up_ms=progress.last_caught_up_ms,
        is_recovering=progress.is_recovering,
        has_diverged=progress.has_diverged,
        leader_lacks=progress.leader_lacks,
    )
