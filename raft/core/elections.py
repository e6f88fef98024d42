"""Votes and pre-votes: candidacy, granting (RF-14 to RF-24), and the effect of the answers."""

from __future__ import annotations

from kraftbase.errors import ErrorCode
from raft.core import newcomers, vote_refusals
from raft.core.actions import ReportRejectedClaim
from raft.core.decisions import ElectionPutOff, VoteRefused
from raft.core.environment import Environment
from raft.core.membership import may_be_voter
from raft.core.messages import VoteRequest, VoteResponse
from raft.core.output import Output
from raft.core.refusals import PAUSE_MS
from raft.core.replica_state import ReplicaState
from raft.core.states import Candidate, Prospective, Unattached
from raft.core.transitions import (
    become_candidate,
    become_follower,
    become_leader,
    become_prospective,
    become_unattached,
    own_key,
)
from raft.core.types import ReplicaKey
from raft.core.validation import refuse_voter_request


def on_vote_request(
    environment: Environment, replica: ReplicaState, output: Output, request: VoteRequest
) -> VoteResponse:
    """Answer a Vote or a pre-vote. A voter's higher epoch is entered first, then its request is decided (RF-15,
    RF-105).

    The epoch of a sender that cannot be a voter is not entered, and it gets no vote: see `may_be_voter`. A vote that is
    not granted is no error; a request of an older epoch is answered with one (RF-22).
    """
    # A pre-vote does not open an epoch, so its sender's log may end in the epoch that it is in (RF-20).
    last_epoch_max = request.replica_epoch if request.pre_vote else request.replica_epoch - 1
    invalid = request.last_offset < 0 or not 0 <= request.last_epoch <= last_epoch_max
    sender = request.replica_key
    error = refuse_voter_request(
        environment, replica, request.cluster_id, request.replica_epoch, sender, request.voter_key, invalid=invalid
    )
    refusal: str | None
    if error is not ErrorCode.NONE:
        refusal = vote_refusals.refusal_of_error(environment, replica, request, error)
    elif not may_be_voter(environment, sender):
        refusal = "the candidate is not a voter"
        claim = f"{sender} asks for a vote in epoch {request.replica_epoch}, and is not a voter"
        output.order(ReportRejectedClaim(claim))
    else:
        # Consider a follower of 1 in epoch 5 that gets a vote request of 2 in epoch 6, because 1 is down. In epoch 5
        # the follower has a leader, has perhaps voted, and would refuse. In epoch 6 it has neither leader nor vote: the
        # logs alone decide. The same holds for a leader that shuts down (RF-19).
        if request.replica_epoch > replica.epoch:
            become_unattached(environment, replica, output, request.replica_epoch)
        if request.pre_vote:
            refusal = vote_refusals.refuse_pre_vote(environment, replica, request)
        else:
            refusal = vote_refusals.refuse_vote(replica, request)
            if refusal is None:
                _add_vote(environment, replica, output, request.replica_key)
    if refusal is not None:
        output.decisions.append(VoteRefused(sender, request.replica_epoch, request.pre_vote, refusal))
    return VoteResponse(
        error=error,
        leader=replica.leader,
        leader_endpoint=replica.leader_endpoint(environment),
        vote_granted=refusal is None,
        pre_vote=request.pre_vote,
    )


def on_vote_response(
    environment: Environment, replica: ReplicaState, output: Output, request: VoteRequest, response: VoteResponse
) -> bool:
    """Count an answer to a vote request of the current candidacy (RF-24). Return False to back off from that peer."""
    state, voter_key = replica.state, request.voter_key
    if not isinstance(state, Prospective | Candidate) or isinstance(state, Prospective) != request.pre_vote:
        return True
    if request.replica_epoch != state.epoch or voter_key is None:
        return True
    if response.error is ErrorCode.UNSUPPORTED_VERSION and request.pre_vote:
        become_candidate(environment, replica, output)  # a peer without pre-vote must get a real vote request
        return True
    if response.error is ErrorCode.INVALID_VOTER_KEY:
        state.votes.set_aside(voter_key.node_id)
        return True
    if response.error is not ErrorCode.NONE:
        return False
    # A voter that did not enter this epoch does not count this replica as a voter: that is a rejection.
    granted = response.vote_granted and response.leader.epoch == state.epoch
    state.votes.record(voter_key.node_id, granted)
    if isinstance(state, Prospective):
        if state.votes.is_won:
            become_candidate(environment, replica, output)
        elif state.votes.is_lost:
            _leave_prospective(environment, replica, output, state, "a majority could not be won")
        return granted or replica.state is not state  # after a back-off, a voter that rejected is asked again
    if state.votes.is_won:
        become_leader(environment, replica, output, state)
    return True


def poll(
    environment: Environment, replica: ReplicaState, output: Output, state: Unattached | Prospective | Candidate
) -> None:
    """Ask for votes, or act on an election timeout that has expired."""
    now_ms = environment.now_ms
    match state:
        case Unattached(election_deadline_ms=int(deadline_ms)) if deadline_ms <= now_ms:
            become_prospective(
                environment, replica, output, f"no leader of epoch {state.epoch} was found within the election timeout"
            )
        case Prospective() if state.election_deadline_ms <= now_ms:
            _leave_prospective(
                environment, replica, output, state, "no majority has answered within the election timeout"
            )
        case Candidate() if state.election_deadline_ms <= now_ms:  # RF-31: also when a majority has refused it long ago
            granting = state.votes.granting()
            become_prospective(
                environment, replica, output, f"epoch {state.epoch} has no leader: only {granting} voted for this node"
            )
        case Prospective() | Candidate():
            _ask_for_votes(environment, replica, output, state)
        case _:
            pass


def _ask_for_votes(
    environment: Environment, replica: ReplicaState, output: Output, state: Prospective | Candidate
) -> None:
    for voter_id in state.votes.unrecorded():
        voter = environment.voters.get(voter_id)
        if voter is None or not output.connections.is_ready(voter.endpoint):
            continue
        output.send(
            voter.endpoint,
            VoteRequest(
                cluster_id=environment.cluster_id,
                voter_key=voter.key,
                replica_key=own_key(environment),
                replica_epoch=state.epoch,
                last_epoch=replica.log.last_epoch,
                last_offset=replica.log.end_offset,
                pre_vote=isinstance(state, Prospective),
            ),
            replica.epoch,
            environment.now_ms,
        )


def _leave_prospective(
    environment: Environment, replica: ReplicaState, output: Output, state: Prospective, reason: str
) -> None:
    """Return to the known leader, if any: the pre-vote was lost or has timed out."""
    reason = f"pre-votes of {state.votes.granting()} alone: {reason}"
    # Consider voter 3, which alone has lost its leader for a while: 1 and 2 refuse its pre-vote, it follows again, and
    # fetches. If the leader is down, each voter waits for a fetch timeout before it asks again, and the others grant
    # the first one's pre-vote.
    if state.leader_id is not None and state.leader_endpoint is not None:
        follower = become_follower(environment, replica, output, state.epoch, state.leader_id, state.leader_endpoint)
        follower.refusals_count_from_ms = environment.now_ms + PAUSE_MS
        next_ms: int | None = follower.fetch_deadline_ms
    else:
        unattached = become_unattached(environment, replica, output, state.epoch, leader_id=state.leader_id)
        next_ms = unattached.election_deadline_ms
    if next_ms is not None:
        output.decisions.append(ElectionPutOff(next_ms - environment.now_ms, reason))


def _add_vote(environment: Environment, replica: ReplicaState, output: Output, key: ReplicaKey) -> None:
    """Make the vote durable before it is answered; an earlier vote in this epoch stays (RF-08)."""
    if replica.state.voted_key is None:
        become_unattached(environment, replica, output, replica.epoch, voted_key=key)
    newcomers.end(replica, output)
