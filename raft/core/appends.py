"""The leader's appends: accepted or refused, and written when no flush is in progress (LI-20 to LI-26)."""

from __future__ import annotations

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch
from raft.core.actions import AppendRecords, FailAppend
from raft.core.environment import Environment
from raft.core.events import AppendPrepared
from raft.core.log import LogState
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.states import Leader


def leader_for(
    environment: Environment, replica: ReplicaState, epoch: Epoch, body_bytes: int
) -> Leader | tuple[ErrorCode, str]:
    """Return the leader that accepts an append of `body_bytes` in `epoch`, or the error if none does (LI-21)."""
    leader, config = replica.state, environment.config
    if not isinstance(leader, Leader) or epoch != leader.epoch:
        message = f"this replica does not lead epoch {epoch}; the leader is {replica.leader.leader_id}"
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, message
    if body_bytes > config.batch_bytes_max:
        message = f"an append of {body_bytes} bytes; the limit is {config.batch_bytes_max}: append fewer records"
        return ErrorCode.RECORD_LIST_TOO_LARGE, message
    if leader.accumulator.pending_bytes + body_bytes > config.pending_append_bytes_max:
        message = f"{leader.accumulator.pending_bytes} bytes of appends are not committed yet; try again when some are"
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED, message
    return leader


def on_append_prepared(environment: Environment, replica: ReplicaState, output: Output, event: AppendPrepared) -> None:
    """Accept a client's append, or refuse it."""
    leader = leader_for(environment, replica, event.epoch, len(event.body))
    if isinstance(leader, Leader):
        leader.accumulator.prepare(event.append_id, event.body, event.record_count)
    else:
        output.order(FailAppend(event.append_id, *leader))


def drain_appends(environment: Environment, log: LogState, output: Output, leader: Leader) -> bool:
    """Write all scheduled appends, unless a flush is in progress: then they gather. Return True if any was written."""
    if log.is_flushing or not leader.accumulator.has_scheduled:
        return False
    # Consider ten appends of one record each that arrive during a flush of 2 ms. Written one by one they would need ten
    # flushes, 20 ms for the last. Instead they gather until the current flush is done and leave as one batch: one
    # frame, one flush, and one round to the followers for all ten.
    for batch in leader.accumulator.drain(environment.config.batch_bytes_max):
        base_offset = log.append(leader.epoch, batch.record_count)
        output.order(AppendRecords(base_offset, leader.epoch, batch.body, batch.record_count))
    return True
