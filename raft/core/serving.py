"""How the leader answers fetches: at once, or after parking them until there is something new (PK-01 to PK-11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraftbase.errors import ErrorCode
from raft.core import leading, rebuilding, state_mismatch
from raft.core.context import Context
from raft.core.membership import may_be_voter
from raft.core.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogRange,
    SnapshotRange,
)
from raft.core.purgatory import ParkedFetch
from raft.core.states import Leader, ReplicaProgress
from raft.core.types import HIGH_WATERMARK_NOT_SENT, UNKNOWN_HIGH_WATERMARK, UNKNOWN_OFFSET, ReplicaKey
from raft.core.validation import refuse_leader_request

FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""No answer holds more than this and one batch, whatever the request allows."""

SNAPSHOT_BYTES_MAX: Final = 8 * 1024 * 1024
"""No answer holds more of a snapshot than this."""

OBSERVERS_MAX: Final = 1_000
"""The leader tracks at most this many observers; the one that fetched longest ago is dropped for a new one."""


def on_fetch_request(context: Context, request_id: int, request: FetchRequest) -> None:
    """Note the replica's position, which may advance the high watermark, then answer or park (PK-01, PK-02)."""
    error = _refuse_fetch(context, request)
    leader = context.state
    if error is not ErrorCode.NONE or not isinstance(leader, Leader):
        context.reply(request_id, _error_response(context, error))
        return
    if request.replica_key is not None and request.leader_lacks is not None:
        progress = _progress(context, leader, request.replica_key)
        if progress is not None:
            progress.refused(request.leader_lacks, context.now_ms)
    elif request.replica_key is not None and _is_prefix(context, request):
        _note_fetch(context, leader, request.replica_key, request)
        if leading.advance_high_watermark(context):
            release_behind(context)
            leading.announce_high_watermark(context)
    # Consider voters 1, 2 and 3, all at 100 with a high watermark of 100. 1 leads, and the fetches of 2 and 3 are
    # parked:
    #
    #     record 100 is appended  both are answered with it, before 1 has flushed it
    #     3 fetches from 101      only 3 has flushed it: nothing is committed, the fetch names 100 and is parked
    #     1 has flushed           two of three have: 101 is committed, and the fetch of 3 is released with that
    #     2 fetches from 101      it names 100, and is answered at once with 101
    #     2 and 3 fetch again     they name 101 and are parked: there is nothing new
    #
    # Each knows of the commit one round trip after it. Before KIP-1166 the fetch of 3 waited for the next record, or
    # for 500 ms (PK-11).
    #
    # A fetch is counted before it is answered or parked, because it may itself commit. If 1 had flushed before 3
    # fetched, the fetch of 3 would advance the high watermark, and would be answered at once with the new one.
    response = _response(context, leader, request)
    is_first_notification = state_mismatch.is_first_notification(leader, request)
    if is_first_notification or _is_answered_at_once(request, response) or leader.purgatory.is_full:
        context.reply(request_id, response)
    else:
        leader.purgatory.park(ParkedFetch(request_id, request, context.now_ms + request.max_wait_ms))


def release_voters(context: Context) -> None:
    """The log end offset moved: answer the parked fetches of voters, whose next fetches commit the new records."""
    leader = context.state
    if isinstance(leader, Leader):
        voters = leader.voters
        fetches = leader.purgatory.take_if(
            lambda request: request.replica_key is not None and request.replica_key.node_id in voters
        )
        _answer(context, leader, fetches)


def release_unaware(context: Context) -> None:
    """The log end offset moved: answer the parked fetches without a high watermark, as versions below 18 send.

    An observer that sends one is answered when the high watermark moves, with what is committed by then. Its fetches
    commit nothing: two answers for every append would only take processor time from the voters.
    """
    leader = context.state
    if isinstance(leader, Leader):
        # Consider 3 voters and 20 observers, all level at 100, and one append. If it released the observers, each would
        # fetch again from 101, be parked, and be released a second time by the commit: 40 answers, 20 of them while the
        # fetch that commits is on its way. Released by the commit alone, they are 20 answers, with record 100 and a
        # high watermark of 101.
        #
        # No observer waits without end. If record 100 is never committed, the fetch is answered with it when its wait
        # expires; and a fetch that comes after the append gets it at once (`_is_answered_at_once`).
        fetches = leader.purgatory.take_if(lambda request: request.high_watermark == HIGH_WATERMARK_NOT_SENT)
        _answer(context, leader, fetches)


def release_behind(context: Context) -> None:
    """The high watermark moved: answer every parked fetch with a lower one (KIP-1166).

    A fetch without a high watermark, as versions below 18 send, waits for data or its timeout.
    """
    leader = context.state
    if isinstance(leader, Leader):
        high_watermark = leader.high_watermark
        _answer(context, leader, leader.purgatory.take_if(lambda request: request.high_watermark < high_watermark))


def release_expired(context: Context) -> None:
    """Answer the parked fetches whose wait has expired."""
    if isinstance(context.state, Leader):
        _answer(context, context.state, context.state.purgatory.take_expired(context.now_ms))


def on_fetch_snapshot_request(context: Context, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    """Answer FetchSnapshot, and note the contact with its sender (SN-10, SN-11)."""
    snapshot_id = request.snapshot_id
    invalid = request.max_bytes < 1 or snapshot_id.epoch < 0 or snapshot_id.offset < 0
    error = refuse_leader_request(context, request.cluster_id, request.current_leader_epoch, invalid=invalid)
    if error is ErrorCode.NONE:
        if snapshot_id.offset == 0:
            error = ErrorCode.SNAPSHOT_NOT_FOUND  # SN-03
        elif request.position < 0:
            error = ErrorCode.POSITION_OUT_OF_RANGE
    leader, key = context.state, request.replica_key
    if error is ErrorCode.NONE and isinstance(leader, Leader) and key is not None:
        progress = _progress(context, leader, key)
        if progress is not None:
            progress.fetched_snapshot(snapshot_id, context.now_ms)
            leading.note_contact(context, leader, key)
    has_data = error is ErrorCode.NONE
    return FetchSnapshotResponse(
        error=error,
        leader=context.leader,
        leader_endpoint=context.leader_endpoint,
        snapshot_id=snapshot_id,
        position=request.position if has_data else 0,
        data=SnapshotRange(position=request.position, max_bytes=min(request.max_bytes, SNAPSHOT_BYTES_MAX))
        if has_data
        else b"",
    )


def _refuse_fetch(context: Context, request: FetchRequest) -> ErrorCode:
    invalid = (
        request.max_wait_ms < 0
        or request.max_bytes < 0
        or request.fetch_offset < 0
        or request.last_fetched_epoch < 0
        or request.last_fetched_epoch > request.current_leader_epoch
        or request.high_watermark < UNKNOWN_HIGH_WATERMARK
        or request.log_start_offset < UNKNOWN_OFFSET
        or (request.leader_lacks is not None and min(request.leader_lacks) < 0)
        or (request.state_digest is not None and request.state_digest.end_offset < 0)
    )
    return refuse_leader_request(context, request.cluster_id, request.current_leader_epoch, invalid=invalid)


def _is_prefix(context: Context, request: FetchRequest) -> bool:
    """Whether the sender's log is a prefix of this one, and this one still has the rest."""
    offset, epoch = request.fetch_offset, request.last_fetched_epoch
    log = context.log
    needs_snapshot = log.snapshot_for(offset, epoch) is not None or log.is_before_start(offset, epoch)
    # Consider the follower of `LogState.divergence`, which ends at 90 in epoch 3 and shares records up to 69 with this
    # log. Counted as 90, its fetch would help to commit records 70 to 89 of this leader, which it does not have.
    return not needs_snapshot and log.divergence(offset, epoch) is None


def _note_fetch(context: Context, leader: Leader, key: ReplicaKey, request: FetchRequest) -> None:
    progress = _progress(context, leader, key)
    if progress is None:
        return
    progress.is_recovering = request.recovering
    progress.log_start_offset = request.log_start_offset
    progress.fetched(request.fetch_offset, context.log.end_offset, context.now_ms)
    leading.note_contact(context, leader, key)
    state_mismatch.note_digest(context, leader, progress, request.state_digest)
    rebuilding.note_fetch(context, leader, progress, request)


def _progress(context: Context, leader: Leader, key: ReplicaKey) -> ReplicaProgress | None:
    """The leader's view of a voter or an observer; None for itself."""
    # Consider a voter set with voter 2 in directory A, and a replica with id 2 in directory B: another disk, and
    # another log. It is shown among the observers. If it counted as voter 2, it would count for records that the disk
    # A has never had.
    progress = leader.voters.get(key.node_id) if may_be_voter(context, key) else None
    if progress is None:
        if key == context.key:
            return None
        progress = _observer(context, leader, key)
    progress.key = key
    return progress


def _observer(context: Context, leader: Leader, key: ReplicaKey) -> ReplicaProgress:
    progress = leader.observers.pop(key, None) or ReplicaProgress(key)
    if len(leader.observers) >= OBSERVERS_MAX:
        leading.forget_observers(context, leader)
    if len(leader.observers) >= OBSERVERS_MAX:
        # The first of the dictionary fetched longest ago, because every fetch moves its sender to the end below.
        del leader.observers[next(iter(leader.observers))]
    leader.observers[key] = progress  # the last to fetch comes last
    return progress


def _response(context: Context, leader: Leader, request: FetchRequest) -> FetchResponse:
    """The answer by the present state. Uncommitted records are read, at least one batch (PK-09).

    What it holds does not depend on the high watermark in the fetch (PK-04).
    """
    offset, epoch = request.fetch_offset, request.last_fetched_epoch
    snapshot_id = context.log.snapshot_for(offset, epoch)
    if snapshot_id is None and context.log.is_before_start(offset, epoch):
        return _error_response(context, ErrorCode.SNAPSHOT_NOT_FOUND)  # it was damaged; another one is being taken
    diverging = None if snapshot_id is not None else context.log.divergence(offset, epoch)
    has_data = snapshot_id is None and diverging is None and offset < context.log.end_offset
    return FetchResponse(
        leader=context.leader,
        leader_endpoint=context.endpoint,
        high_watermark=leader.high_watermark,
        log_start_offset=context.log.start_offset,
        diverging_epoch=diverging,
        snapshot_id=snapshot_id,
        records=(
            LogRange(start_offset=request.fetch_offset, max_bytes=min(request.max_bytes, FETCH_BYTES_MAX))
            if has_data
            else ()
        ),
        expected_state_digest=state_mismatch.expected_digest(leader, request.replica_key),
        may_rebuild=rebuilding.may_rebuild(context, leader, request),
    )


def _is_answered_at_once(request: FetchRequest, response: FetchResponse) -> bool:
    return (
        response.records != ()
        or request.max_wait_ms == 0
        or response.diverging_epoch is not None
        or response.snapshot_id is not None
        or response.error is not ErrorCode.NONE
        # A replica that knows no high watermark sends -1, and a leader that knows none answers -1. That is not below,
        # so a new leader parks the fetch, and its first commit releases it. A fetch of version 17 counts as 2^63-1,
        # which is never below.
        or request.high_watermark < response.high_watermark
    )


def _answer(context: Context, leader: Leader, fetches: Sequence[ParkedFetch]) -> None:
    """Evaluate parked fetches again and answer them, whatever the result: no fetch is parked twice (PK-07)."""
    for fetch in fetches:
        context.reply(fetch.request_id, _response(context, leader, fetch.request))


def _error_response(context: Context, error: ErrorCode) -> FetchResponse:
    return FetchResponse(
        error=error,
        leader=context.leader,
        leader_endpoint=context.leader_endpoint,
        high_watermark=UNKNOWN_HIGH_WATERMARK,
        log_start_offset=context.log.start_offset,
    )
