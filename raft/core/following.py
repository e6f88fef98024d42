"""A replica that does not lead: it finds the leader, fetches, appends, truncates (RF-30, RF-50 to RF-64)."""

from __future__ import annotations

from collections.abc import Sequence

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from raft.core import committed, newcomers, rebuilding, snapshot_fetch, state_mismatch
from raft.core.actions import AdvanceHighWatermark, AppendBatches, ReportRejectedClaim, TruncateLog
from raft.core.context import Context
from raft.core.decisions import ElectionPutOff
from raft.core.elections import become_follower, become_prospective, become_unattached
from raft.core.leading import order_flush
from raft.core.membership import is_credible_leader, may_be_voter, voter_named
from raft.core.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    LogRange,
    Response,
    VoteResponse,
)
from raft.core.refusals import asks_only_the_leader
from raft.core.states import Follower, Leader, Prospective, Resigned, Unattached
from raft.core.types import (
    HIGH_WATERMARK_NOT_SENT,
    Batch,
    CommittedGap,
    Epoch,
    LeaderAndEpoch,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
)
from raft.core.validation import is_for_this_replica, is_plausible_epoch, refuse_voter_request

# --- the leader -----------------------------------------------------------------------------------------------------


def learn_of_leader(context: Context, leader: LeaderAndEpoch) -> bool:
    """Note a credible leader in this epoch or a higher one. True if that was new to this replica.

    It is followed at the endpoint that the voter set has for its id, never at one that a message names (RF-62). Kafka
    uses the endpoint that the leader sends (RF-70, RF-91), so any peer could direct replicas to a host of its own. A
    voter that moves is found again when the voter sets of the other nodes have its new address.
    """
    if leader.epoch < context.epoch:
        return False
    if leader.leader_id is None or leader.leader_id == context.own_id:
        # A message cannot make this replica the leader of an epoch that it does not know; the epoch itself is new.
        if leader.epoch > context.epoch:
            become_unattached(context, leader.epoch)
            return True
        return False
    if committed.is_refused(context, leader):
        return False
    voter, state = voter_named(context, leader.leader_id), context.state
    if voter is None:
        return False
    if leader.epoch == context.epoch:
        if isinstance(state, Leader | Resigned):
            return False
        # A prospective replica has given this leader up, and learns of it again from a replica that still follows it.
        # That is nothing new: it keeps asking for pre-votes, and returns only when the pre-vote is lost, or when the
        # leader announces itself (`on_begin_quorum_epoch`).
        if isinstance(state, Follower | Prospective) and state.leader_endpoint == voter.endpoint:
            return False
    become_follower(context, leader.epoch, leader.leader_id, voter.endpoint)
    return True


def on_begin_quorum_epoch(context: Context, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    """The sender leads: follow it (RF-70, RF-71)."""
    error = refuse_voter_request(
        context, request.cluster_id, request.leader_epoch, request.leader_key, request.voter_key
    )
    if error is ErrorCode.NONE:
        error = _refuse_leader(context, request.leader_key, request.leader_epoch)
    if error is ErrorCode.NONE:
        announced = LeaderAndEpoch(request.leader_id, request.leader_epoch)
        learn_of_leader(context, announced)
        voter = voter_named(context, request.leader_id)
        is_followed = context.leader == announced and not committed.is_refused(context, announced)
        if isinstance(context.state, Prospective) and is_followed and voter is not None:
            # The leader is up after all.
            become_follower(context, context.epoch, request.leader_id, voter.endpoint)
    return BeginQuorumEpochResponse(error=error, leader=context.leader, leader_endpoint=context.leader_endpoint)


def on_end_quorum_epoch(context: Context, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    """The sender no longer leads: start an election in the order that it prefers (RF-36, RF-37, RF-72)."""
    error = refuse_voter_request(context, request.cluster_id, request.leader_epoch, request.leader_key, None)
    if error is ErrorCode.NONE:
        error = _refuse_leader(context, request.leader_key, request.leader_epoch)
    if error is ErrorCode.NONE:
        learn_of_leader(context, LeaderAndEpoch(request.leader_id, request.leader_epoch))
        state = context.state
        if isinstance(state, Follower) and state.leader_id == request.leader_id:
            wait_ms = _wait_for_election_ms(context, request.preferred_candidates)
            state.fetch_deadline_ms = context.now_ms + wait_ms
            state.has_fetched = False  # the leader itself resigned: a pre-vote does no harm
            if wait_ms > 0 and context.may_be_elected:
                reason = f"leader {state.leader_id} has resigned, and prefers others"
                context.decisions.append(ElectionPutOff(wait_ms, reason))
    return EndQuorumEpochResponse(error=error, leader=context.leader, leader_endpoint=context.leader_endpoint)


def _refuse_leader(context: Context, key: ReplicaKey, epoch: Epoch) -> ErrorCode:
    """Check a sender that claims to lead or to have led `epoch`, before that is entered.

    A leader of an older version does not send its directory id. If the voter set has directory ids it is not believed.
    This replica finds it anyway, by a fetch to the voters' endpoints (RF-64).
    """
    if not may_be_voter(context, key):
        context.order(ReportRejectedClaim(f"{key} claims to be the leader of epoch {epoch}, and is no voter"))
        return ErrorCode.INVALID_REQUEST
    if not is_credible_leader(context, LeaderAndEpoch(key.node_id, epoch)):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _wait_for_election_ms(context: Context, preferred: Sequence[ReplicaKey]) -> int:
    """0 for the first candidate, then twice as long for each, the maximum for a voter that is not listed (RF-36)."""
    maximum = context.config.election_backoff_max_ms
    for position, key in enumerate(preferred):
        if is_for_this_replica(context, key):
            if position == 0:
                return 0
            # Four candidates and a maximum of 1,000 ms wait 0, 125, 250 and 500 ms: each has asked for votes before the
            # next one does, and a voter that is not listed comes last, at 1,000.
            return min(maximum, (maximum >> (len(preferred) - 1)) << (position - 1))
    return maximum


def on_common_response(context: Context, response: Response) -> bool | None:
    """Take what every answer contains about the leader (RF-61).

    True: the answer is handled. False: back off from that peer. None: the handler of its request must take it.
    """
    error = response.error
    if error in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR):
        return False
    if not is_plausible_epoch(context, response.leader.epoch):
        return False
    if isinstance(response, VoteResponse) and response.leader.epoch < context.epoch:
        # Consider a candidate in epoch 6 with another directory id than the voter set of 2 has of it: 2 stays in epoch
        # 5, and refuses there. If that were ignored, as other answers of an older epoch are, the candidate would ask 2
        # again and again until its timer expires.
        return None  # a rejection by a voter that did not enter the epoch
    if response.leader.epoch < context.epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        # Ignored. But a replica in a higher epoch that looks for a leader would ask the others as fast as they answer.
        return not isinstance(context.state, Unattached)
    if not is_credible_leader(context, response.leader):
        return False
    epoch = context.epoch
    learned = learn_of_leader(context, response.leader)
    if context.epoch != epoch:
        return True
    if error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return learned
    if error is ErrorCode.BROKER_NOT_AVAILABLE:
        return False
    return None


# --- fetching -------------------------------------------------------------------------------------------------------


def poll(context: Context) -> None:
    """Start an election when the leader is silent, else keep one fetch under way (RF-30, RF-63, RF-64)."""
    state = context.state
    _check_recovered(context)
    newcomers.ask_for_epochs(context)
    if isinstance(state, Follower) and state.fetch_deadline_ms <= context.now_ms and context.may_be_elected:
        become_prospective(context, _why_given_up(context, state))
        return
    if not isinstance(state, Follower | Unattached) or context.connections.has_fetch_under_way:
        return
    # Consider voters 1, 2 and 3, and 1 leads. 2 appends records 10 to 14, and its fetch from 15 commits them on 1 and
    # 2. If that fetch left before the flush, 2 lost power then, and 1 crashed, 2 and 3 would continue without
    # acknowledged records.
    if context.is_voter and context.log.flushed_end_offset < context.log.end_offset:
        return  # the fetch acknowledges what this voter has on disk, so the flush comes first (RF-54)
    if context.snapshot_fetch is not None and context.snapshot_fetch.is_writing:
        return
    destination = _whom_to_ask(context, state)
    if destination is None:
        return
    is_leader = isinstance(state, Follower) and destination == state.leader_endpoint
    snapshot_request = snapshot_fetch.next_request(context) if is_leader else None
    context.send(destination, snapshot_request or _fetch_request(context))


def _why_given_up(context: Context, state: Follower) -> str:
    if state.is_given_up:
        return f"the address of leader {state.leader_id} refuses connections: its process has ended"
    if state.has_fetched:
        return f"leader {state.leader_id} has answered nothing for {context.config.fetch_timeout_ms} ms"
    return f"leader {state.leader_id} has resigned, or has answered no fetch in epoch {state.epoch}"


def _check_recovered(context: Context) -> None:
    """End recovery once the log has everything again that this replica may have acknowledged (RF-110).

    That is when the log reaches as far as it once did; or as far as a leader's own, which holds whatever this replica
    had from it or may have helped to commit before; or up to the high watermark of a leader of a later epoch than the
    one in which the damage was found. In the same epoch the leader may still count a fetch from before the damage. A
    replica in a new directory knows no epoch: it must reach the leader's log end, after other voters have answered
    (`raft.core.newcomers`).
    """
    recovering, state, flushed = context.recovering, context.state, context.log.flushed_end_offset
    if recovering is None:
        return
    if recovering.has_forgotten and not newcomers.has_heard_enough(context):
        return
    if flushed < context.applied.offset or not context.log.holds(context.applied):
        return  # it lacks records that it applied
    # Consider voters 1, 2 and 3. Voter 1 had records up to 8, and damage leaves it those up to 4: it recovers until 9,
    # and the damage was found in epoch 4. While it recovers it grants no vote and counts for no commit. It may take
    # part again when its vote can elect no leader that lacks what its acknowledgments have committed, or may still
    # commit. What it fetches meanwhile comes from leaders of epoch 4 or later, since it follows no lower one.
    #
    # It has 9 again: enough. It never acknowledged more, and all of it that was committed is in the logs of those
    # leaders.
    #
    # It is level with a leader's log: enough. Say the leader of epoch 4 had no record for it when it fetched from 7. A
    # leader's log only grows, so whatever 1 acknowledged to this leader is below 7. If it once had 7 and 8 it had them
    # from an older leader, and as this one lacks them they were not committed. (An answer that is empty because this
    # replica has no room for its records, `is_without_room`, does not show the leader's end.)
    #
    # It has all that a leader of epoch 5 or later knows as committed: enough. Such a leader knows that from its own
    # epoch, so it covers all that was committed before, by whatever acknowledgment of 1, and in epoch 5 none of 1
    # counts yet.
    #
    # It has all that the leader of epoch 4 knows as committed: not enough. Let 2 lead epoch 4 with a log that ends at 9
    # and a high watermark of 8, and let a fetch of 1 from 9, sent before the damage, still be on its way. 1 fetches up
    # to 8, takes itself for whole, and in epoch 5 votes for 3, whose log ends at 8. Then the old fetch reaches 2, which
    # commits record 8 with it. The leader of epoch 5 does not have that record.
    is_past = flushed >= recovering.until_offset
    if isinstance(state, Follower):
        is_past = is_past or 0 <= state.leader_end_offset <= flushed
        if state.epoch > recovering.epoch and not recovering.has_forgotten:
            is_past = is_past or 0 <= state.leader_high_watermark <= flushed
    if not is_past:
        return
    newcomers.end(context)
    if isinstance(state, Unattached) and context.may_be_elected and not context.is_shutting_down:
        state.election_deadline_ms = context.now_ms + context.election_timeout_ms()


def _whom_to_ask(context: Context, state: Follower | Unattached) -> Endpoint | None:
    """The leader, if it is known and not silent; else any of the bootstrap servers (RF-64, RF-91)."""
    if isinstance(state, Follower) and state.fetch_deadline_ms > context.now_ms:
        if context.connections.is_ready(state.leader_endpoint):
            return state.leader_endpoint
        if not context.connections.is_backing_off(state.leader_endpoint) or asks_only_the_leader(context, state):
            return None
    servers = context.bootstrap_endpoints or tuple(voter.endpoint for voter in context.voters.voters())
    ready = [server for server in servers if server != context.endpoint and context.connections.is_ready(server)]
    return ready[context.random.randrange(len(ready))] if ready else None


def _fetch_request(context: Context) -> FetchRequest:
    config = context.config
    return FetchRequest(
        cluster_id=context.cluster_id,
        replica_key=context.key,
        current_leader_epoch=context.epoch,
        fetch_offset=context.log.end_offset,
        last_fetched_epoch=context.log.last_epoch,
        max_wait_ms=config.fetch_max_wait_ms,
        max_bytes=config.fetch_max_bytes,
        high_watermark=context.high_watermark if context.fetch_version >= 18 else HIGH_WATERMARK_NOT_SENT,
        recovering=context.recovering is not None,
        state_digest=context.state_digests.latest,
        log_start_offset=context.log.start_offset,
        leader_lacks=_gap_to_report(context),
        wants_rebuild=rebuilding.wants(context),
    )


def _gap_to_report(context: Context) -> CommittedGap | None:
    refused = context.refused_leader
    return refused.gap if refused is not None and refused.leader == context.leader else None


def _leader_endpoint(context: Context, state: Follower | Unattached) -> Endpoint | None:
    """The endpoint of the leader that this replica follows, or that it knows and refuses."""
    if isinstance(state, Follower):
        return state.leader_endpoint
    voter = None if state.leader_id is None else voter_named(context, state.leader_id)
    return None if voter is None else voter.endpoint


def on_fetch_response(context: Context, request: FetchRequest, response: FetchResponse, source: Endpoint) -> bool:
    """Take the leader's answer. False: back off from that peer, nothing was changed.

    Records, a snapshot or a digest count only from the leader's own endpoint: a bootstrap server that was asked for
    the leader (RF-64) can only name it.
    """
    state = context.state
    if not isinstance(state, Follower | Unattached) or request.current_leader_epoch != state.epoch:
        return True  # RF-56
    if isinstance(state, Unattached) and not committed.is_refused(context, context.leader):
        return True
    if response.error is not ErrorCode.NONE or source != _leader_endpoint(context, state):
        return False
    if response.leader.leader_id != state.leader_id:
        return False  # it does not claim to lead
    if request.fetch_offset != context.log.end_offset:
        return True
    gap = committed.find_gap(context, response)
    if gap is not None:
        _refuse(context, gap)
        return False
    if not isinstance(state, Follower):
        _follow_again(context)
        return True
    state_mismatch.on_expected_digest(context, response.expected_state_digest)
    if response.may_rebuild:
        rebuilding.on_allowed(context)
    if response.snapshot_id is not None:
        if not snapshot_fetch.on_offer(context, response.snapshot_id):
            return False
        _note_leader_contact(context, state, response)
        return True
    snapshot_fetch.abandon(context)  # this leader's log continues this one
    if response.diverging_epoch is not None:
        if not _truncate(context, response.diverging_epoch):
            return False
    elif response.records:
        batches = _acceptable(context, response.records)
        if not batches:
            return False
        context.log.append_batches(batches)
        context.order(AppendBatches(batches))
        # An observer sends its next fetch before it flushes, so that both run at once. If it has all that is
        # committed it flushes first, because its listeners wait for that.
        if context.is_voter or response.high_watermark <= context.log.end_offset:
            order_flush(context)
    elif not response.is_without_room:
        # No records, and not for lack of space: the leader's log ended where this one does.
        state.leader_end_offset = request.fetch_offset
    _note_leader_contact(context, state, response)
    # Consider the second example of `LogState.truncation_point`, with a leader that knows 30 as committed. The follower
    # has just truncated its log to 10, and its records 5 to 9 still differ from the leader's. If it took min(30, 10) as
    # committed, it would give those records to its listeners.
    if response.diverging_epoch is None:  # else the rest of the log may still diverge, even below the high watermark
        committed.note_no_gap(context)
        _take_high_watermark(context, response.high_watermark)
    return True


def _refuse(context: Context, gap: CommittedGap) -> None:
    """The leader lacks committed records: truncate nothing, and do not follow it (`raft.core.committed`)."""
    committed.note_gap(context, gap)
    if isinstance(context.state, Follower):
        snapshot_fetch.abandon(context)
        become_unattached(context, context.epoch, leader_id=context.state.leader_id)


def _follow_again(context: Context) -> None:
    """The refused leader has answered without a gap: follow it."""
    leader_id = context.leader.leader_id
    committed.note_no_gap(context)
    voter = None if leader_id is None else voter_named(context, leader_id)
    if leader_id is not None and voter is not None:
        become_follower(context, context.epoch, leader_id, voter.endpoint)
        if isinstance(context.state, Follower):
            context.state.fetched(context.now_ms + context.config.fetch_timeout_ms)


def _note_leader_contact(context: Context, state: Follower, response: FetchResponse) -> None:
    """Note the leader's answer, with its high watermark and log start."""
    state.fetched(context.now_ms + context.config.fetch_timeout_ms)
    state.leader_high_watermark = max(state.leader_high_watermark, response.high_watermark)
    state.leader_log_start_offset = response.log_start_offset


def _truncate(context: Context, diverging: OffsetAndEpoch) -> bool:
    """Truncate the log where it diverges from the leader's. False if that would remove nothing.

    The caller has refused a leader whose log diverges below the committed end.
    """
    if diverging.epoch < 0 or diverging.offset < 0:
        return False
    point = context.log.truncation_point(diverging)
    if point >= context.log.end_offset:
        return False
    context.log.truncate(point)
    context.order(TruncateLog(point))
    return True


def _acceptable(context: Context, records: LogRange | tuple[Batch, ...]) -> tuple[Batch, ...]:
    """The batches before the first of a higher epoch than this one; none if one is not contiguous with the log."""
    if isinstance(records, LogRange):
        return ()
    end_offset, epoch = context.log.end_offset, max(context.log.last_epoch, Epoch(1))
    accepted = []
    for batch in records:
        # With a log that ends at 100 in epoch 4, in epoch 5: batches at 100 of epoch 4 and at 105 of epoch 5 are taken,
        # one at 110 of epoch 6 is left out, since no leader of epoch 5 has it. With the first one at 101, or of epoch
        # 3, none is taken: the log would have a hole, or epochs that decrease.
        if batch.base_offset != end_offset or batch.last_offset < batch.base_offset or batch.epoch < epoch:
            return ()
        if batch.epoch > context.epoch:
            break  # RF-53
        accepted.append(batch)
        end_offset, epoch = batch.end_offset, batch.epoch
    return tuple(accepted)


def _take_high_watermark(context: Context, high_watermark: Offset) -> None:
    """Take the leader's high watermark, up to the end of this log (RF-46).

    A new leader's high watermark is below its followers' until a record of its epoch is committed: a lower one changes
    nothing. While this log lacks what was applied, the leader has not shown that its own log holds it, and its high
    watermark is ignored.
    """
    # Consider a replica that has applied everything below 20, whose log is damaged from 10 on, and a leader whose log
    # is another one from 10 to 19. Its answers look correct until 19 arrives, so until then its high watermark is
    # ignored.
    if context.recovering is not None and not context.log.holds(context.applied):
        return
    known = Offset(min(high_watermark, context.log.end_offset))
    if known > context.high_watermark:
        context.high_watermark = known
        context.order(AdvanceHighWatermark(known))
