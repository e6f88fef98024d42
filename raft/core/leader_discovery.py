"""How a replica learns who leads: from leaders that begin or end an epoch, and from every answer (RF-60 to RF-72)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch
from raft.core import committed
from raft.core.actions import ReportRejectedClaim
from raft.core.decisions import ElectionPutOff
from raft.core.environment import Environment
from raft.core.membership import is_credible_leader, may_be_voter, voter_named
from raft.core.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Response,
    VoteResponse,
)
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.states import Follower, Leader, Prospective, Resigned, Unattached
from raft.core.transitions import become_follower, become_unattached
from raft.core.types import LeaderAndEpoch, ReplicaKey
from raft.core.validation import is_for_this_replica, may_enter_epoch, refuse_voter_request


class ResponseHandling(Enum):
    """How to continue with an answer after the leader information that every answer contains was applied."""

    PROCESS = auto()
    """The handler of its request processes the rest."""
    DROP = auto()
    """The rest no longer matters."""
    BACK_OFF = auto()
    """The rest is ignored, and no request is sent to that peer for the retry back-off."""


def learn_of_leader(environment: Environment, replica: ReplicaState, output: Output, leader: LeaderAndEpoch) -> bool:
    """Record a credible leader of this epoch or a higher one. Return True if it is new to this replica.

    It is followed at the endpoint that the voter set has for its id, never at an endpoint that a message names (RF-62).
    Kafka uses the endpoint that the leader sends (RF-70, RF-91), so any peer could direct replicas to a host of its
    own. A voter that moves is found again when the voter sets of the other nodes have its new address.
    """
    if leader.epoch < replica.epoch:
        return False
    if leader.leader_id is None or leader.leader_id == environment.own_id:
        # A message cannot make this replica the leader of an epoch that it does not know; only the epoch is entered.
        if leader.epoch > replica.epoch:
            become_unattached(environment, replica, output, leader.epoch)
            return True
        return False
    if committed.is_refused(replica, leader):
        return False
    voter, state = voter_named(environment, leader.leader_id), replica.state
    if voter is None:
        return False
    if leader.epoch == replica.epoch:
        if isinstance(state, Leader | Resigned):
            return False
        # A prospective replica has stopped following this leader, and hears of it again from a replica that still
        # follows. It already knows that leader: it keeps asking for pre-votes, and returns only when the pre-vote is
        # lost, or when the leader announces itself (`on_begin_quorum_epoch`).
        if isinstance(state, Follower | Prospective) and state.leader_endpoint == voter.endpoint:
            return False
    become_follower(environment, replica, output, leader.epoch, leader.leader_id, voter.endpoint)
    return True


def on_begin_quorum_epoch(
    environment: Environment, replica: ReplicaState, output: Output, request: BeginQuorumEpochRequest
) -> BeginQuorumEpochResponse:
    """Follow the sender, which leads (RF-70, RF-71)."""
    error = refuse_voter_request(
        environment, replica, request.cluster_id, request.leader_epoch, request.leader_key, request.voter_key
    )
    if error is ErrorCode.NONE:
        error = _refuse_leader(environment, replica, output, request.leader_key, request.leader_epoch)
    if error is ErrorCode.NONE:
        announced = LeaderAndEpoch(request.leader_id, request.leader_epoch)
        learn_of_leader(environment, replica, output, announced)
        voter = voter_named(environment, request.leader_id)
        is_followed = replica.leader == announced and not committed.is_refused(replica, announced)
        if isinstance(replica.state, Prospective) and is_followed and voter is not None:
            # The leader is reachable after all.
            become_follower(environment, replica, output, replica.epoch, request.leader_id, voter.endpoint)
    return BeginQuorumEpochResponse(
        error=error, leader=replica.leader, leader_endpoint=replica.leader_endpoint(environment)
    )


def on_end_quorum_epoch(
    environment: Environment, replica: ReplicaState, output: Output, request: EndQuorumEpochRequest
) -> EndQuorumEpochResponse:
    """Start an election in the order that the sender prefers, since it no longer leads (RF-36, RF-37, RF-72)."""
    error = refuse_voter_request(
        environment, replica, request.cluster_id, request.leader_epoch, request.leader_key, None
    )
    if error is ErrorCode.NONE:
        error = _refuse_leader(environment, replica, output, request.leader_key, request.leader_epoch)
    if error is ErrorCode.NONE:
        learn_of_leader(environment, replica, output, LeaderAndEpoch(request.leader_id, request.leader_epoch))
        state = replica.state
        if isinstance(state, Follower) and state.leader_id == request.leader_id:
            wait_ms = _wait_for_election_ms(environment, request.preferred_candidates)
            state.fetch_deadline_ms = environment.now_ms + wait_ms
            state.has_fetched = False  # the leader itself resigned: a pre-vote does no harm
            if wait_ms > 0 and replica.may_be_elected(environment):
                reason = f"leader {state.leader_id} has resigned, and prefers others"
                output.decisions.append(ElectionPutOff(wait_ms, reason))
    return EndQuorumEpochResponse(
        error=error, leader=replica.leader, leader_endpoint=replica.leader_endpoint(environment)
    )


def _refuse_leader(
    environment: Environment, replica: ReplicaState, output: Output, key: ReplicaKey, epoch: Epoch
) -> ErrorCode:
    """Check a sender that claims to lead or to have led `epoch`, before that epoch is entered.

    A leader of an older version does not send its directory id. If the voter set has directory ids, its claim is
    ignored. This replica finds the leader anyway, by a fetch to the voters' endpoints (RF-64).
    """
    if not may_be_voter(environment, key):
        output.order(ReportRejectedClaim(f"{key} claims to be the leader of epoch {epoch}, and is not a voter"))
        return ErrorCode.INVALID_REQUEST
    if not is_credible_leader(environment, replica, output, LeaderAndEpoch(key.node_id, epoch)):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _wait_for_election_ms(environment: Environment, preferred: Sequence[ReplicaKey]) -> int:
    """The wait: 0 for the first candidate, then twice as long for each, the maximum if not listed (RF-36)."""
    maximum = environment.config.election_backoff_max_ms
    for position, key in enumerate(preferred):
        if is_for_this_replica(environment, key):
            if position == 0:
                return 0
            # Four candidates and a maximum of 1,000 ms wait 0, 125, 250 and 500 ms: each has asked for votes before the
            # next one does, and a voter that is not listed comes last, at 1,000.
            return min(maximum, (maximum >> (len(preferred) - 1)) << (position - 1))
    return maximum


def on_common_response(
    environment: Environment, replica: ReplicaState, output: Output, response: Response
) -> ResponseHandling:
    """Apply what every answer contains about the leader (RF-61)."""
    error = response.error
    if error in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR):
        return ResponseHandling.BACK_OFF
    if not may_enter_epoch(environment, replica, response.leader.epoch):
        return ResponseHandling.BACK_OFF
    if isinstance(response, VoteResponse) and response.leader.epoch < replica.epoch:
        # Consider a candidate in epoch 6 whose directory id differs from the one in the voter set of 2: 2 stays in
        # epoch 5, and refuses there. If the candidate ignored that answer, as it ignores other answers of an older
        # epoch, it would ask 2 again and again until its timer expires.
        return ResponseHandling.PROCESS  # a rejection by a voter that did not enter the epoch
    if response.leader.epoch < replica.epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        # Ignore the answer. But a replica in a higher epoch that looks for a leader would ask the others as fast as
        # they answer.
        return ResponseHandling.BACK_OFF if isinstance(replica.state, Unattached) else ResponseHandling.DROP
    if not is_credible_leader(environment, replica, output, response.leader):
        return ResponseHandling.BACK_OFF
    epoch = replica.epoch
    learned = learn_of_leader(environment, replica, output, response.leader)
    if replica.epoch != epoch:
        return ResponseHandling.DROP
    if error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return ResponseHandling.DROP if learned else ResponseHandling.BACK_OFF
    if error is ErrorCode.BROKER_NOT_AVAILABLE:
        return ResponseHandling.BACK_OFF
    return ResponseHandling.PROCESS
