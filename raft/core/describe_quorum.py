"""A leader's description of its quorum (RF-47, RF-48)."""

from __future__ import annotations

from kraftbase.errors import ErrorCode
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK
from raft.core.environment import Environment
from raft.core.messages import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaDescription
from raft.core.replica_state import ReplicaState
from raft.core.serving import forget_observers
from raft.core.states import Leader, ReplicaProgress
from raft.core.validation import refuse_cluster


def on_describe_quorum(
    environment: Environment, replica: ReplicaState, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Describe every replica that the leader knows; the leader itself as caught up now (RF-48)."""
    leader = replica.state
    error = refuse_cluster(environment, request.cluster_id)
    if error is ErrorCode.NONE and isinstance(leader, Leader):
        return _describe_all(environment, replica, leader)
    return DescribeQuorumResponse(
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER if error is ErrorCode.NONE else error,
        leader=replica.leader,
        leader_endpoint=replica.leader_endpoint(environment),
        high_watermark=UNKNOWN_HIGH_WATERMARK,
    )


def _describe_all(environment: Environment, replica: ReplicaState, leader: Leader) -> DescribeQuorumResponse:
    forget_observers(environment, leader)
    now_ms, log = environment.now_ms, replica.log
    own = ReplicaProgress(leader.voted_key, log.end_offset, now_ms, now_ms, log.start_offset)
    voters = [own, *leader.voters.values()] if environment.is_voter else list(leader.voters.values())
    voters.sort(key=lambda progress: progress.key.node_id)
    return DescribeQuorumResponse(
        leader=replica.leader,
        leader_endpoint=environment.endpoint,
        high_watermark=leader.high_watermark,
        voters=tuple(_describe(environment, progress) for progress in voters),
        observers=tuple(_describe(environment, progress) for progress in leader.observers.values()),
        kraft_version=1 if environment.voters.has_directory_ids else 0,
        state_alarm_offset=leader.state_alarm_offset,
    )


def _describe(environment: Environment, progress: ReplicaProgress) -> ReplicaDescription:
    return ReplicaDescription(
        key=progress.key,
        endpoint=environment.endpoint_of(progress.key.node_id),
        log_end_offset=progress.end_offset,
        log_start_offset=progress.log_start_offset,
        last_fetch_ms=progress.last_fetch_ms,
        last_caught_up_ms=progress.last_caught_up_ms,
        is_recovering=progress.is_recovering,
        has_diverged=progress.has_diverged,
        leader_lacks=progress.leader_lacks,
    )
