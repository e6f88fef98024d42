"""Whether a vote is granted (RF-14 to RF-22). Each function returns the reason for a refusal; None: granted."""

from __future__ import annotations

from kraftbase.errors import ErrorCode
from raft.core import newcomers
from raft.core.committed import goes_on_with_refused
from raft.core.environment import Environment
from raft.core.messages import VoteRequest
from raft.core.replica_state import ReplicaState
from raft.core.states import Candidate, Follower, Leader, Resigned
from raft.core.types import OffsetAndEpoch


def refuse_pre_vote(environment: Environment, replica: ReplicaState, request: VoteRequest) -> str | None:
    """Return why a pre-vote is refused; None: granted.

    It is granted if this replica does not lead, no leader has answered it within the fetch timeout, and the logs allow
    the vote.
    """
    refusal = _refuse_while_new(replica, request)
    if refusal is not None:
        return refusal
    state = replica.state
    match state:
        case Leader():
            return f"this node leads epoch {state.epoch}"
        # A voter that may not be elected, since it is fenced or recovers, stays a follower when its leader falls
        # silent: it has no other state to enter. Consider voters 1, 2 and 3: 1 led and is down, 2 is fenced. If 2
        # refused 3 because it once fetched from 1, 3 would never win.
        case Follower(has_fetched=True, fetch_deadline_ms=deadline_ms) if deadline_ms > environment.now_ms:
            silent_ms = environment.config.fetch_timeout_ms - (deadline_ms - environment.now_ms)
            return f"leader {state.leader_id} of epoch {state.epoch} answered this node {silent_ms} ms ago"
        case _:
            return refuse_log(replica, request)


def refuse_vote(replica: ReplicaState, request: VoteRequest) -> str | None:
    """Grant one vote in an epoch, if this replica knows no leader of the epoch and the logs allow it."""
    state = replica.state
    match state:
        case Leader() | Resigned():
            return f"epoch {state.epoch} is this node's own"
        case Follower():
            return f"{state.leader_id} leads epoch {state.epoch}"
        case Candidate():
            return f"this node is a candidate of epoch {state.epoch} itself"
    # The log is compared again even if the vote was granted before: the candidate may have crashed and lost records.
    # Consider voter 1 with records up to 19, of which 15 to 19 are not flushed. It opens epoch 5 with a log that ends
    # at 20, and 2, whose log ends at 18, votes for it. 1 crashes, comes back with a log that ends at 15, and asks again
    # in epoch 5. The vote was for a log that no longer exists: repeating it could elect a leader without records 15 to
    # 17, which 2 and another voter may have committed.
    refusal = refuse_log(replica, request) or _refuse_while_new(replica, request)
    if refusal is not None:
        return refusal
    voted = state.voted_key
    if voted is None:
        # A replica that knows the leader of the epoch cannot vote in it: another candidate has won it already.
        return None if state.leader_id is None else f"{state.leader_id} leads epoch {state.epoch}"
    is_the_same = voted.node_id == request.replica_key.node_id and (
        voted.directory_id is None or voted.directory_id == request.replica_key.directory_id
    )
    return None if is_the_same else f"it voted for {voted} in epoch {state.epoch}"


def refuse_log(replica: ReplicaState, request: VoteRequest) -> str | None:
    """RF-14: the nominee's log ends no earlier than this one. Nor may it lack committed records."""
    candidate_end = OffsetAndEpoch(epoch=request.last_epoch, offset=request.last_offset)
    if request.last_offset < replica.committed_offset:
        return f"its log ends at {_named(candidate_end)}, and everything below {replica.committed_offset} is committed"
    if goes_on_with_refused(replica, request):
        return f"its log ends in epoch {request.last_epoch}, whose leader lacks committed records"
    if candidate_end < replica.log.end:
        return f"its log ends at {_named(candidate_end)}, that of this node at {_named(replica.log.end)}"
    return None


def refusal_of_error(environment: Environment, replica: ReplicaState, request: VoteRequest, error: ErrorCode) -> str:
    """Return the reason, if the request was answered with an error."""
    match error:
        case ErrorCode.FENCED_LEADER_EPOCH:
            return f"{error.name}: this node is in epoch {replica.epoch}"
        case ErrorCode.INVALID_VOTER_KEY:
            return f"{error.name}: it is addressed to {request.voter_key}, this is {environment.key}"
        case ErrorCode.INCONSISTENT_CLUSTER_ID:
            return f"{error.name}: its cluster is {request.cluster_id}, this node's {environment.cluster_id}"
        case _:
            return error.name


def _refuse_while_new(replica: ReplicaState, request: VoteRequest) -> str | None:
    if newcomers.may_vote_for(replica, request):
        return None  # else its log may be shorter than what it has acknowledged
    if replica.may_found:
        return f"this node's directory is new, and the candidate's log, which ends at {request.last_offset}, is not"
    return f"this node recovers: its log ends at {replica.log.end_offset}, and may once have been longer"


def _named(end: OffsetAndEpoch) -> str:
    return f"{end.offset} in epoch {end.epoch}"
