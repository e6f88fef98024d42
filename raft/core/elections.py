"""Votes and pre-votes: candidacy, granting (RF-14 to RF-24), and the effect of the answers."""

from __future__ import annotations

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from raft.core import newcomers, vote_refusals
from raft.core.actions import ReportRejectedClaim
from raft.core.context import Context
from raft.core.decisions import ElectionBegun, ElectionPutOff, VoteRefused
from raft.core.leading import become_leader
from raft.core.membership import may_be_voter
from raft.core.messages import VoteRequest, VoteResponse
from raft.core.quorum import VoteTally
from raft.core.refusals import PAUSE_MS
from raft.core.states import Candidate, Follower, Prospective, Resigned, Unattached
from raft.core.transitions import transition
from raft.core.types import Epoch, NodeId, ReplicaKey
from raft.core.validation import refuse_voter_request


def become_unattached(
    context: Context, epoch: Epoch, *, leader_id: NodeId | None = None, voted_key: ReplicaKey | None = None
) -> None:
    """Enter Unattached. The rest of a running election timeout is kept, unless a vote was granted (RF-09, RF-18)."""
    state = context.state
    deadline_ms = None
    if context.may_be_elected and not context.is_shutting_down:
        deadline_ms = context.now_ms + context.election_timeout_ms()
        # Consider voter 3 of five, which knows no leader, and 1 and 2, which open one epoch after the other and win
        # none, each time before the timer of 3 expires. With a new timer for each epoch 3 would never become a
        # candidate, though it may be the one that can win. With the rest of its timer it does. When 3 grants a vote,
        # the timer is new: the candidate needs time to win.
        if voted_key is None and isinstance(state, Candidate | Prospective | Resigned | Unattached):
            deadline_ms = state.election_deadline_ms or deadline_ms
            if deadline_ms <= context.now_ms:  # it has expired: start a new one
                deadline_ms = context.now_ms + context.election_timeout_ms()
    if epoch == state.epoch:
        voted_key = voted_key or state.voted_key
    transition(
        context,
        Unattached(epoch=epoch, leader_id=leader_id, voted_key=voted_key, election_deadline_ms=deadline_ms),
    )


def become_follower(context: Context, epoch: Epoch, leader_id: NodeId, leader_endpoint: Endpoint) -> None:
    """Enter Follower, of a leader whose endpoint is known."""
    newcomers.end_founding(context)
    transition(
        context,
        Follower(
            epoch=epoch,
            leader_id=leader_id,
            leader_endpoint=leader_endpoint,
            voted_key=context.state.voted_key if epoch == context.epoch else None,
            fetch_deadline_ms=context.now_ms + context.config.fetch_timeout_ms,
        ),
    )


def become_prospective(context: Context, reason: str) -> None:
    """Ask for pre-votes in the present epoch, for that reason; a sole voter has nobody to ask (RF-04)."""
    context.decisions.append(ElectionBegun(reason))
    state = context.state
    leader_id = state.leader_id if isinstance(state, Follower | Unattached) else None
    # The pre-vote is for a voter that has lost contact. Consider voters 1, 2 and 3 in epoch 5, and 3 is cut off
    # from the leader, 1, but not from 2. Without a pre-vote it would open epoch 6, 7, 8 and so on, and each of them
    # would depose 1 by way of 2. Instead it asks in epoch 5 whether it would win: 2 has fetched from 1 and refuses,
    # and nothing changes.
    votes = _new_tally(context, allows_change=True)
    transition(
        context,
        Prospective(
            epoch=state.epoch,
            leader_id=leader_id,
            leader_endpoint=state.leader_endpoint if isinstance(state, Follower) else None,
            voted_key=state.voted_key,
            election_deadline_ms=context.now_ms + context.election_timeout_ms(),
            votes=votes,
        ),
    )
    if votes.is_won:
        become_candidate(context)


def become_candidate(context: Context) -> None:
    """Open the next epoch and vote for itself."""
    votes = _new_tally(context, allows_change=False)
    transition(
        context,
        Candidate(
            epoch=Epoch(context.epoch + 1),
            voted_key=_own_key(context),
            election_deadline_ms=context.now_ms + context.election_timeout_ms(),
            votes=votes,
        ),
    )
    newcomers.end(context)
    if votes.is_won:
        become_leader(context)


def candidate_again(context: Context) -> Candidate:
    """The state of a replica that stopped while it was a candidate: the same epoch, only its own vote."""
    # It has not led this epoch: a leader's id is durable before its first record (RF-11), and none was found. So
    # nothing was written in this epoch, and it may ask for votes in it again. A voter that has granted its vote
    # grants it again.
    newcomers.end(context)
    return Candidate(
        epoch=context.epoch,
        voted_key=_own_key(context),
        election_deadline_ms=context.now_ms + context.election_timeout_ms(),
        votes=_new_tally(context, allows_change=False),
    )


def on_vote_request(context: Context, request: VoteRequest) -> VoteResponse:
    """Answer a Vote or a pre-vote. A voter's higher epoch is entered first, then its request is judged (RF-15, RF-105).

    The epoch of a sender that cannot be a voter is not entered, and it gets no vote: see `may_be_voter`. A vote that is
    not granted is no error; a request of an older epoch is answered with one (RF-22).
    """
    # A pre-vote does not open an epoch, so its sender's log may end in the epoch that it is in (RF-20).
    last_epoch_max = request.replica_epoch if request.pre_vote else request.replica_epoch - 1
    invalid = request.last_offset < 0 or not 0 <= request.last_epoch <= last_epoch_max
    sender = request.replica_key
    error = refuse_voter_request(
        context, request.cluster_id, request.replica_epoch, sender, request.voter_key, invalid=invalid
    )
    refusal: str | None
    if error is not ErrorCode.NONE:
        refusal = vote_refusals.refusal_of_error(context, request, error)
    elif not may_be_voter(context, sender):
        refusal = "the candidate is no voter"
        context.order(
            ReportRejectedClaim(f"{sender} asks for a vote in epoch {request.replica_epoch}, and is no voter")
        )
    else:
        # Consider a follower of 1 in epoch 5 that gets a vote request of 2 in epoch 6, because 1 is down. In epoch 5 it
        # has a leader, perhaps has voted, and would refuse. In epoch 6 it has neither: its log alone decides. The same
        # holds for a leader that shuts down (RF-19).
        if request.replica_epoch > context.epoch:
            become_unattached(context, request.replica_epoch)
        if request.pre_vote:
            refusal = vote_refusals.refuse_pre_vote(context, request)
        else:
            refusal = vote_refusals.refuse_vote(context, request)
            if refusal is None:
                _add_vote(context, request.replica_key)
    if refusal is not None:
        context.decisions.append(VoteRefused(sender, request.replica_epoch, request.pre_vote, refusal))
    return VoteResponse(
        error=error,
        leader=context.leader,
        leader_endpoint=context.leader_endpoint,
        vote_granted=refusal is None,
        pre_vote=request.pre_vote,
    )


def on_vote_response(context: Context, request: VoteRequest, response: VoteResponse) -> bool:
    """Count an answer to a vote request of the present candidacy (RF-24). False: back off from that peer."""
    state = context.state
    if not isinstance(state, Prospective if request.pre_vote else Candidate) or request.replica_epoch != state.epoch:
        return True
    if response.error is ErrorCode.UNSUPPORTED_VERSION and isinstance(state, Prospective):
        become_candidate(context)  # a peer without pre-vote must be asked for a real vote
        return True
    if not isinstance(state, Prospective | Candidate) or request.voter_key is None:
        return True
    if response.error is ErrorCode.INVALID_VOTER_KEY:
        state.votes.set_aside(request.voter_key.node_id)
        return True
    if response.error is not ErrorCode.NONE:
        return False
    # A voter that did not enter this epoch does not take this replica for a voter: that is a rejection.
    granted = response.vote_granted and response.leader.epoch == state.epoch
    state.votes.record(request.voter_key.node_id, granted)
    if isinstance(state, Prospective):
        if state.votes.is_won:
            become_candidate(context)
        elif state.votes.is_lost:
            _leave_prospective(context, state, "a majority could not be won")
        return granted or context.state is not state  # a voter that rejected it is asked again, after a back-off
    elif isinstance(state, Candidate) and state.votes.is_won:
        become_leader(context)
    return True


def poll(context: Context) -> None:
    """Do what is due in Unattached, Prospective, Candidate and Resigned, except fetches and resignations."""
    state, now_ms = context.state, context.now_ms
    match state:
        case Unattached(election_deadline_ms=int(deadline_ms)) if deadline_ms <= now_ms:
            become_prospective(context, f"no leader of epoch {state.epoch} was found within the election timeout")
        case Prospective() if state.election_deadline_ms <= now_ms:
            _leave_prospective(context, state, "no majority has answered within the election timeout")
        case Candidate() if state.election_deadline_ms <= now_ms:  # RF-31: also when a majority has refused it long ago
            granting = state.votes.granting()
            become_prospective(context, f"epoch {state.epoch} has no leader: only {granting} voted for this node")
        case Prospective() | Candidate():
            _ask_for_votes(context, state)
        case Resigned() if state.election_deadline_ms <= now_ms:
            become_unattached(context, Epoch(state.epoch + 1))  # RF-13
        case _:
            pass


def _ask_for_votes(context: Context, state: Prospective | Candidate) -> None:
    for voter_id in state.votes.unrecorded():
        voter = context.voters.get(voter_id)
        if voter is None or not context.connections.is_ready(voter.endpoint):
            continue
        context.send(
            voter.endpoint,
            VoteRequest(
                cluster_id=context.cluster_id,
                voter_key=voter.key,
                replica_key=_own_key(context),
                replica_epoch=state.epoch,
                last_epoch=context.log.last_epoch,
                last_offset=context.log.end_offset,
                pre_vote=isinstance(state, Prospective),
            ),
        )


def _leave_prospective(context: Context, state: Prospective, reason: str) -> None:
    """It lost the pre-vote, or ran out of time: return to the leader that it had, if that one is known."""
    reason = f"pre-votes of {state.votes.granting()} alone: {reason}"
    # Consider voter 3, which alone has lost its leader for a while: 1 and 2 refuse its pre-vote, it follows again, and
    # fetches. If the leader is down, it waits for a fetch timeout before it asks again; so do the others, and the first
    # of them that asks is granted.
    if state.leader_id is not None and state.leader_endpoint is not None:
        become_follower(context, state.epoch, state.leader_id, state.leader_endpoint)
        if isinstance(context.state, Follower):
            context.state.refusals_count_from_ms = context.now_ms + PAUSE_MS
            wait_ms = context.state.fetch_deadline_ms - context.now_ms
            context.decisions.append(ElectionPutOff(wait_ms, reason))
    else:
        become_unattached(context, state.epoch, leader_id=state.leader_id)
        if isinstance(context.state, Unattached) and context.state.election_deadline_ms is not None:
            wait_ms = context.state.election_deadline_ms - context.now_ms
            context.decisions.append(ElectionPutOff(wait_ms, reason))


def _add_vote(context: Context, key: ReplicaKey) -> None:
    """Make the vote durable before it is answered; an earlier vote in this epoch stays (RF-08)."""
    if context.state.voted_key is None:
        become_unattached(context, context.epoch, voted_key=key)
    newcomers.end(context)


def _new_tally(context: Context, *, allows_change: bool) -> VoteTally:
    votes = VoteTally(tuple(key.node_id for key in context.voters.replica_keys()), allows_change)
    votes.record(_own_key(context).node_id, True)
    return votes


def _own_key(context: Context) -> ReplicaKey:
    if context.key is None:
        raise TypeError("a replica without a node id takes no part in elections")
    return context.key


def elect_only_voter(context: Context) -> None:
    """A sole voter leads at once, in the next epoch unless it was a candidate already (RF-04)."""
    match context.state:
        case Candidate():
            become_leader(context)
        case Resigned():
            become_candidate(context)
        case Unattached() | Follower():
            become_prospective(context, "it is the only voter")
        case _:
            pass
