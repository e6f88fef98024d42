"""How the leader serves fetches: it counts their senders, then answers or parks them (PK-01, PK-02; SN-10, SN-11)."""

from __future__ import annotations

from typing import Final

from kraftbase.errors import ErrorCode
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK, UNKNOWN_OFFSET
from raft.core import high_watermark, leading, rebuilding, state_mismatch
from raft.core.actions import SnapshotRange
from raft.core.environment import Environment
from raft.core.fetch_answers import error_response, fetch_response, is_answered_at_once, records_for
from raft.core.log import LogState
from raft.core.membership import may_be_voter
from raft.core.messages import (
    FetchRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from raft.core.output import Output
from raft.core.purgatory import ParkedFetch
from raft.core.replica_state import ReplicaState
from raft.core.states import Leader, ReplicaProgress
from raft.core.types import ReplicaKey
from raft.core.validation import leader_for_request

SNAPSHOT_BYTES_MAX: Final = 8 * 1024 * 1024
"""No answer holds more of a snapshot than this."""

OBSERVERS_MAX: Final = 1_000
"""The leader tracks at most this many observers; the one that fetched longest ago is dropped for a new one."""


def on_fetch_request(
    environment: Environment, replica: ReplicaState, output: Output, request_id: int, request: FetchRequest
) -> None:
    """Record the replica's position, which may advance the high watermark, then answer or park (PK-01, PK-02)."""
    leader = _leader_for(environment, replica, request)
    if not isinstance(leader, Leader):
        output.reply(request_id, error_response(environment, replica, leader))
        return
    if request.replica_key is not None and request.leader_lacks is not None:
        progress = _progress(environment, leader, request.replica_key)
        if progress is not None:
            progress.refused(request.leader_lacks, environment.now_ms)
    elif request.replica_key is not None and _is_prefix(replica.log, request):
        _note_fetch(environment, replica, output, leader, request.replica_key, request)
        high_watermark.advance(environment, replica, output, leader)
    # Consider voters 1, 2 and 3, all at 100 with a high watermark of 100. 1 leads, and the fetches of 2 and 3 are
    # parked:
    #
    #     record 100 is appended  both are answered with it, before 1 has flushed it
    #     3 fetches from 101      only 3 has flushed it: nothing is committed, the fetch names 100 and is parked
    #     1 has flushed           two of three have: 101 is committed, and the fetch of 3 is released with that
    #     2 fetches from 101      it names 100, and is answered at once with 101
    #     2 and 3 fetch again     they name 101 and are parked: there is nothing new
    #
    # Each learns of the commit one round trip after it. Before KIP-1166 the fetch of 3 waited for the next record, or
    # for 500 ms (PK-11).
    #
    # A fetch is counted before it is answered or parked, because it may itself commit. If 1 had flushed before 3
    # fetched, the fetch of 3 would advance the high watermark, and would be answered at once with the new one.
    response = fetch_response(environment, replica, leader, request)
    records = records_for(replica.log, request, response)
    is_first_notification = state_mismatch.is_first_notification(leader, request)
    if is_first_notification or is_answered_at_once(request, response, records) or leader.purgatory.is_full:
        output.reply(request_id, response, records)
    else:
        leader.purgatory.park(ParkedFetch(request_id, request, environment.now_ms + request.max_wait_ms))


def on_fetch_snapshot_request(
    environment: Environment, replica: ReplicaState, output: Output, request_id: int, request: FetchSnapshotRequest
) -> None:
    """Answer FetchSnapshot, and record the contact with its sender (SN-10, SN-11)."""
    snapshot_id = request.snapshot_id
    invalid = request.max_bytes < 1 or snapshot_id.epoch < 0 or snapshot_id.offset < 0
    leader = leader_for_request(environment, replica, request.cluster_id, request.current_leader_epoch, invalid=invalid)
    error, key = ErrorCode.NONE, request.replica_key
    if not isinstance(leader, Leader):
        error = leader
    elif snapshot_id.offset == 0:
        error = ErrorCode.SNAPSHOT_NOT_FOUND  # SN-03
    elif request.position < 0:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    elif key is not None:
        progress = _progress(environment, leader, key)
        if progress is not None:
            progress.fetched_snapshot(snapshot_id, environment.now_ms)
            leading.note_contact(environment, leader, key)
    has_data = error is ErrorCode.NONE
    response = FetchSnapshotResponse(
        error=error,
        leader=replica.leader,
        leader_endpoint=replica.leader_endpoint(environment),
        snapshot_id=snapshot_id,
        position=request.position if has_data else 0,
    )
    piece = SnapshotRange(position=request.position, max_bytes=min(request.max_bytes, SNAPSHOT_BYTES_MAX))
    output.reply(request_id, response, piece if has_data else None)


def _leader_for(environment: Environment, replica: ReplicaState, request: FetchRequest) -> Leader | ErrorCode:
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
    return leader_for_request(environment, replica, request.cluster_id, request.current_leader_epoch, invalid=invalid)


def _is_prefix(log: LogState, request: FetchRequest) -> bool:
    """Whether the sender's log is a prefix of this one, and this one still has the records after it."""
    offset, epoch = request.fetch_offset, request.last_fetched_epoch
    needs_snapshot = log.snapshot_for(offset, epoch) is not None or log.is_before_start(offset, epoch)
    # Consider the follower of `LogState.divergence`, which ends at 90 in epoch 3 and shares records up to 69 with this
    # log. Counted as 90, its fetch would help to commit records 70 to 89 of this leader, which it does not have.
    return not needs_snapshot and log.divergence(offset, epoch) is None


def _note_fetch(
    environment: Environment,
    replica: ReplicaState,
    output: Output,
    leader: Leader,
    key: ReplicaKey,
    request: FetchRequest,
) -> None:
    progress = _progress(environment, leader, key)
    if progress is None:
        return
    progress.is_recovering = request.recovering
    progress.log_start_offset = request.log_start_offset
    progress.fetched(request.fetch_offset, replica.log.end_offset, environment.now_ms)
    leading.note_contact(environment, leader, key)
    state_mismatch.note_digest(environment, replica.state_machine, output, leader, progress, request.state_digest)
    rebuilding.note_fetch(environment, leader, progress, request)


def _progress(environment: Environment, leader: Leader, key: ReplicaKey) -> ReplicaProgress | None:
    """The leader's view of a voter or an observer; None for itself."""
    # Consider a voter set with voter 2 in directory A, and a replica with id 2 in directory B: another disk, and
    # another log. It is shown among the observers. If it counted as voter 2, it would count for records that the disk
    # A has never had.
    progress = leader.voters.get(key.node_id) if may_be_voter(environment, key) else None
    if progress is None:
        if key == environment.key:
            return None
        progress = _observer(environment, leader, key)
    progress.key = key
    return progress


def _observer(environment: Environment, leader: Leader, key: ReplicaKey) -> ReplicaProgress:
    progress = leader.observers.pop(key, None) or ReplicaProgress(key)
    if len(leader.observers) >= OBSERVERS_MAX:
        forget_observers(environment, leader)
    if len(leader.observers) >= OBSERVERS_MAX:
        # The first of the dictionary fetched longest ago, because every fetch moves its sender to the end below.
        del leader.observers[next(iter(leader.observers))]
    leader.observers[key] = progress  # the last to fetch comes last
    return progress


def forget_observers(environment: Environment, leader: Leader) -> None:
    """Drop observers that have not fetched for a long time (RF-38)."""
    oldest_ms = environment.now_ms - environment.config.observer_expiration_ms
    leader.observers = {
        key: progress
        for key, progress in leader.observers.items()
        if max(progress.last_fetch_ms or 0, progress.last_refused_ms or 0) > oldest_ms
    }
