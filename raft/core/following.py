"""A replica that does not lead: it fetches, appends, truncates (RF-30, RF-50 to RF-64)."""

from __future__ import annotations

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT
from kraftbase.types import Epoch
from raft.core import committed, high_watermark, rebuilding, snapshot_fetch, state_mismatch
from raft.core.actions import AppendBatches, TruncateLog
from raft.core.environment import Environment
from raft.core.log import LogState
from raft.core.membership import voter_named
from raft.core.messages import FetchRequest, FetchResponse
from raft.core.output import Output
from raft.core.refusals import asks_only_the_leader
from raft.core.replica_state import ReplicaState
from raft.core.states import Follower, Unattached
from raft.core.transitions import become_follower, become_prospective, become_unattached
from raft.core.types import Batch, CommittedGap, OffsetAndEpoch


def poll(environment: Environment, replica: ReplicaState, output: Output, state: Follower | Unattached) -> None:
    """Start an election when the leader is silent, else keep one fetch in progress (RF-30, RF-63, RF-64)."""
    if (
        isinstance(state, Follower)
        and state.fetch_deadline_ms <= environment.now_ms
        and replica.may_be_elected(environment)
    ):
        become_prospective(environment, replica, output, _why_given_up(environment, state))
        return
    if output.connections.has_fetch_under_way:
        return
    # Consider voters 1, 2 and 3, and 1 leads. 2 appends records 10 to 14, and its fetch from 15 commits them on 1 and
    # 2. If that fetch left before the flush, 2 lost power then, and 1 crashed, 2 and 3 would continue without
    # acknowledged records.
    if environment.is_voter and replica.log.flushed_end_offset < replica.log.end_offset:
        return  # the fetch acknowledges what this voter has on disk, so it is flushed first (RF-54)
    if replica.snapshot_fetch is not None and replica.snapshot_fetch.is_writing:
        return
    destination = _whom_to_ask(environment, replica, output, state)
    if destination is None:
        return
    is_leader = isinstance(state, Follower) and destination == state.leader_endpoint
    snapshot_request = snapshot_fetch.next_request(environment, replica) if is_leader else None
    output.send(
        destination, snapshot_request or _fetch_request(environment, replica), replica.epoch, environment.now_ms
    )


def _why_given_up(environment: Environment, state: Follower) -> str:
    if state.is_given_up:
        return f"the address of leader {state.leader_id} refuses connections: its process has ended"
    if state.has_fetched:
        return f"leader {state.leader_id} has not answered for {environment.config.fetch_timeout_ms} ms"
    return f"leader {state.leader_id} has resigned, or has answered no fetch in epoch {state.epoch}"


def _whom_to_ask(
    environment: Environment, replica: ReplicaState, output: Output, state: Follower | Unattached
) -> Endpoint | None:
    """The endpoint of the leader, if it is known and not silent; else one of the bootstrap servers (RF-64, RF-91)."""
    if isinstance(state, Follower) and state.fetch_deadline_ms > environment.now_ms:
        if output.connections.is_ready(state.leader_endpoint):
            return state.leader_endpoint
        if not output.connections.is_backing_off(state.leader_endpoint) or asks_only_the_leader(
            environment, replica, state
        ):
            return None
    servers = environment.bootstrap_endpoints or tuple(voter.endpoint for voter in environment.voters.voters())
    ready = [server for server in servers if server != environment.endpoint and output.connections.is_ready(server)]
    return ready[environment.random.randrange(len(ready))] if ready else None


def _fetch_request(environment: Environment, replica: ReplicaState) -> FetchRequest:
    config = environment.config
    return FetchRequest(
        cluster_id=environment.cluster_id,
        replica_key=environment.key,
        current_leader_epoch=replica.epoch,
        fetch_offset=replica.log.end_offset,
        last_fetched_epoch=replica.log.last_epoch,
        max_wait_ms=config.fetch_max_wait_ms,
        max_bytes=config.fetch_max_bytes,
        high_watermark=replica.high_watermark if replica.fetch_version(environment) >= 18 else HIGH_WATERMARK_NOT_SENT,
        recovering=replica.recovering is not None,
        state_digest=replica.state_machine.digests.latest,
        log_start_offset=replica.log.start_offset,
        leader_lacks=_gap_to_report(replica),
        wants_rebuild=rebuilding.wants(replica.state_machine),
    )


def _gap_to_report(replica: ReplicaState) -> CommittedGap | None:
    refused = replica.refused_leader
    return refused.gap if refused is not None and refused.leader == replica.leader else None


def _leader_endpoint(environment: Environment, state: Follower | Unattached) -> Endpoint | None:
    """The endpoint of the leader that this replica follows, or knows and refuses."""
    if isinstance(state, Follower):
        return state.leader_endpoint
    voter = None if state.leader_id is None else voter_named(environment, state.leader_id)
    return None if voter is None else voter.endpoint


def on_fetch_response(
    environment: Environment,
    replica: ReplicaState,
    output: Output,
    request: FetchRequest,
    response: FetchResponse,
    source: Endpoint,
    *,
    is_without_room: bool,
) -> bool:
    """Apply the leader's answer. Return False to back off from that peer; then nothing was changed.

    `is_without_room`: the answer's records were dropped, since the disk had no room for them.

    Records, a snapshot or a digest count only from the leader's own endpoint: a bootstrap server that was asked for the
    leader (RF-64) can only name the leader.
    """
    state = replica.state
    if not isinstance(state, Follower | Unattached) or request.current_leader_epoch != state.epoch:
        return True  # RF-56
    if isinstance(state, Unattached) and not committed.is_refused(replica, replica.leader):
        return True
    if response.error is not ErrorCode.NONE or source != _leader_endpoint(environment, state):
        return False
    if response.leader.leader_id != state.leader_id:
        return False  # the sender does not claim to lead
    if request.fetch_offset != replica.log.end_offset:
        return True
    gap = committed.find_gap(replica, response, is_without_room=is_without_room)
    if gap is not None:
        # The leader lacks committed records: truncate nothing, and do not follow it (`raft.core.committed`).
        committed.note_gap(replica, output, gap)
        if isinstance(state, Follower):
            snapshot_fetch.abandon(replica, output)
            become_unattached(environment, replica, output, state.epoch, leader_id=state.leader_id)
        return False
    if isinstance(state, Follower):
        return _take(environment, replica, output, state, response, is_without_room=is_without_room)
    _follow_again(environment, replica, output, state)
    return True


def _take(
    environment: Environment,
    replica: ReplicaState,
    output: Output,
    state: Follower,
    response: FetchResponse,
    *,
    is_without_room: bool,
) -> bool:
    """Apply an answer of the followed leader, whose log has no gap. False: back off, nothing was changed."""
    log = replica.log
    state_mismatch.on_expected_digest(environment, replica.state_machine, output, response.expected_state_digest)
    if response.may_rebuild:
        rebuilding.on_allowed(replica.state_machine, output)
    if response.snapshot_id is not None:
        if not snapshot_fetch.on_offer(replica, output, response.snapshot_id):
            return False
        _note_leader_contact(environment, state, response)
        return True
    snapshot_fetch.abandon(replica, output)  # this leader's log continues this one
    if response.diverging_epoch is not None:
        if not _truncate(log, output, response.diverging_epoch):
            return False
    elif response.records:
        batches = _acceptable(replica, response.records)
        if not batches:
            return False
        log.append_batches(batches)
        output.order(AppendBatches(batches))
        # An observer sends its next fetch before it flushes, so that both run at once. An observer that has everything
        # committed flushes first, because its listeners wait for the flush.
        if environment.is_voter or response.high_watermark <= log.end_offset:
            output.order_flush(log)
    elif not is_without_room:
        # The answer had no records, and not for lack of space: the leader's log ended where this one does.
        state.leader_end_offset = log.end_offset
    _note_leader_contact(environment, state, response)
    # Consider the second example of `LogState.truncation_point`, with a leader that knows 30 as committed. The follower
    # has just truncated its log to 10, and its records 5 to 9 still differ from the leader's. If it took min(30, 10) as
    # committed, it would give those records to its listeners.
    if response.diverging_epoch is None:  # else the rest of the log may still diverge, even below the high watermark
        committed.note_no_gap(replica, output)
        high_watermark.take(replica, output, response.high_watermark)
    if not is_without_room:
        replica.level_ms = environment.now_ms
    return True


def _follow_again(environment: Environment, replica: ReplicaState, output: Output, state: Unattached) -> None:
    """Follow the refused leader, which has answered without a gap."""
    committed.note_no_gap(replica, output)
    voter = None if state.leader_id is None else voter_named(environment, state.leader_id)
    if voter is not None:
        follower = become_follower(environment, replica, output, state.epoch, voter.key.node_id, voter.endpoint)
        follower.fetched(environment.now_ms + environment.config.fetch_timeout_ms)


def _note_leader_contact(environment: Environment, state: Follower, response: FetchResponse) -> None:
    """Record the leader's answer, with its high watermark and log start."""
    state.fetched(environment.now_ms + environment.config.fetch_timeout_ms)
    state.leader_high_watermark = max(state.leader_high_watermark, response.high_watermark)
    state.leader_log_start_offset = response.log_start_offset


def _truncate(log: LogState, output: Output, diverging: OffsetAndEpoch) -> bool:
    """Truncate the log where it diverges from the leader's. Return False if that would remove nothing.

    The caller has refused a leader whose log diverges below the committed end.
    """
    if diverging.epoch < 0 or diverging.offset < 0:
        return False
    point = log.truncation_point(diverging)
    if point >= log.end_offset:
        return False
    log.truncate(point)
    output.order(TruncateLog(point))
    return True


def _acceptable(replica: ReplicaState, records: tuple[Batch, ...]) -> tuple[Batch, ...]:
    """The batches before the first one of a higher epoch than the current one; none if they do not continue the log."""
    end_offset, epoch = replica.log.end_offset, max(replica.log.last_epoch, Epoch(1))
    accepted = []
    for batch in records:
        # With a log that ends at 100 in epoch 4, in epoch 5: batches at 100 of epoch 4 and at 105 of epoch 5 are
        # accepted, one at 110 of epoch 6 is left out, since no leader of epoch 5 has it. With the first one at 101, or
        # of epoch 3, none is accepted: the log would have a hole, or epochs that decrease.
        if batch.base_offset != end_offset or batch.last_offset < batch.base_offset or batch.epoch < epoch:
            return ()
        if batch.epoch > replica.epoch:
            break  # RF-53
        accepted.append(batch)
        end_offset, epoch = batch.end_offset, batch.epoch
    return tuple(accepted)
