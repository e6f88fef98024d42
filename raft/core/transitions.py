"""The state machine of the protocol: which state may follow which, and the one function that changes the state.

Two rules hold in this file: a transition that is not in the table raises, and the durable part of the new state is
ordered to disk before any message of the new state leaves (RF-11).

**Epochs are the time of the protocol.** Replicas have no common clock. Each knows the highest epoch that it has seen,
which never decreases, and sends it with every message. A replica that sees a higher one leaves its state: that is why
every state has edges to Unattached and Follower in a higher epoch. A request of a lower epoch is answered with the
higher one and its leader, so its sender learns of both (RF-60). Votes, leaders and records belong to one epoch each.

**An election,** with voters 1, 2 and 3, of which 1 leads epoch 5 and is cut off:

    2, a Follower in epoch 5, hears nothing from 1 for a fetch timeout     Follower -> Prospective, still epoch 5
    3 has not heard from 1 either, and would vote for 2                    3 keeps its state: a pre-vote is no promise
    2 and 3 are a majority: 2 opens epoch 6 and votes for itself           Prospective -> Candidate, durable
    3 hears of epoch 6, forgets 1, and then grants 2 its vote              Follower -> Unattached, twice, durable
    2 has a majority, and writes the first record of epoch 6               Candidate -> Leader, durable
    3 hears of it, and fetches from 2                                      Unattached -> Follower, durable
    1 hears of no majority, and later of epoch 6                           Leader -> Resigned -> Follower

Only the edge from Prospective to Candidate, and the timer of Resigned, open an epoch. So an epoch is opened by a voter
that a majority would have elected a moment ago, or by a former leader, once. A voter that is cut off from the majority
stays in its epoch, as Prospective, Unattached or Follower, and deposes no leader when it is connected again (KIP-996).

**What is on disk** (RF-95) is epoch, leader and vote. Prospective and Resigned write nothing: a crash in them is a
crash in the state before. A crash after Candidate starts as Candidate again, a crash after Leader as Resigned
(`raft.core.startup`).

The page docs/internals/states.md is drawn from the table. When you change the table, give each edge a comment, and run
`python tools/generate_states.py`. tests/raft/core/transcripts shows most of the edges at work.
"""

from __future__ import annotations

from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, NodeId
from raft.core import committed, newcomers, snapshot_fetch
from raft.core.accumulator import Accumulator
from raft.core.actions import AnnounceLeader, AppendLeaderChange, FailAppend, PersistElectionState
from raft.core.decisions import ElectionBegun, StateEntered
from raft.core.edge_checks import HIGHER, NEXT, SAME, check_edge
from raft.core.environment import Environment
from raft.core.fetch_answers import error_response
from raft.core.messages import LeaderChange
from raft.core.output import Output
from raft.core.purgatory import Purgatory
from raft.core.quorum import VoteTally
from raft.core.replica_state import ReplicaState
from raft.core.states import (
    ROLES,
    Candidate,
    Follower,
    Leader,
    Prospective,
    ReplicaProgress,
    Resigned,
    Role,
    State,
    Unattached,
    durable_state,
)
from raft.core.types import ReplicaKey

# The states of one replica, and what it may do in each:
#
#     Unattached   knows no leader to fetch from; may vote, and waits for its election timer
#     Prospective  asks whether it would win, in the same epoch; may still vote for another
#     Candidate    asks for votes in an epoch that it opened; has voted for itself
#     Leader       has a majority of votes; appends, answers and counts fetches
#     Follower     fetches from the leader of its epoch
#     Resigned     led this epoch and no longer does; votes for no candidate in it
#
# Why an epoch has at most one leader: a leader needs the votes of a majority, two majorities have a voter in common,
# and no voter votes twice in an epoch. Three things ensure the last: a vote is durable before it is answered, an edge
# within an epoch keeps it, and a restart keeps what is on disk.
#
# Why few edges lead to another state in the same epoch: a replica's promise in an epoch holds until the next one. So
# within its epoch a leader can only resign, and a candidate that lost follows the winner, or asks again by way of
# Prospective in the next epoch.
EDGES: Final[dict[Role, dict[Role, tuple[str, ...]]]] = {
    Role.UNATTACHED: {
        Role.UNATTACHED: (HIGHER, SAME),  # a higher epoch without a leader; the same: a vote is added
        Role.FOLLOWER: (HIGHER, SAME),  # learns of a leader
        Role.PROSPECTIVE: (SAME,),  # election timeout, voters only
    },
    Role.PROSPECTIVE: {
        Role.CANDIDATE: (NEXT,),  # a majority would vote for it
        Role.FOLLOWER: (HIGHER, SAME),  # learns of a leader; the same epoch also: lost, and the old leader is known
        Role.UNATTACHED: (HIGHER, SAME),  # a higher epoch; the same: lost, or granted a vote
    },
    Role.CANDIDATE: {
        Role.LEADER: (SAME,),  # a majority voted for it
        Role.PROSPECTIVE: (SAME,),  # election timeout
        Role.FOLLOWER: (HIGHER, SAME),  # another won
        Role.UNATTACHED: (HIGHER,),  # a higher epoch without a leader
    },
    Role.LEADER: {
        Role.RESIGNED: (SAME,),  # asked to, shutting down, fenced, or no majority fetches
        Role.FOLLOWER: (HIGHER,),  # learns of the leader of a higher epoch
        Role.UNATTACHED: (HIGHER,),  # a higher epoch without a leader
    },
    Role.FOLLOWER: {
        Role.FOLLOWER: (HIGHER,),  # learns of the leader of a higher epoch
        Role.PROSPECTIVE: (SAME,),  # fetch timeout, or the leader's address refuses connections (RF-30); voters only
        Role.UNATTACHED: (HIGHER, SAME),  # a higher epoch; the same: the leader lacks committed records
    },
    Role.RESIGNED: {
        Role.UNATTACHED: (HIGHER,),  # its election timeout opens the next epoch (RF-13), or a higher epoch
        Role.FOLLOWER: (HIGHER,),  # learns of the leader of a higher epoch
        Role.CANDIDATE: (NEXT,),  # only a sole voter that led when it stopped (RF-04)
    },
}
"""From, to: the epochs in which the edge may be taken, relative to the old state's."""


def transition(environment: Environment, replica: ReplicaState, output: Output, state: State) -> None:
    """Enter `state`: check the edge, order the durable part to disk, release what the old state held.

    Raises InvariantViolation for an edge that is not in the table, or a forbidden state (RF-07).
    """
    left = replica.state
    check_edge(environment, EDGES, left, state)
    output.decisions.append(StateEntered(ROLES[type(left)], left.epoch, ROLES[type(state)], state.epoch))
    enter(environment, replica, output, state)
    if isinstance(left, Leader):
        # This comes after the order to write the new state: the answers below name the leader of the new state.
        _release_waiting(environment, replica, output, left)


def enter(environment: Environment, replica: ReplicaState, output: Output, state: State) -> None:
    """Enter the initial state, or one whose edge was checked; announce its leader if that has changed."""
    replica.epoch_allowance.spend(state.epoch - replica.epoch, environment.now_ms)
    replica.state = state
    output.connections.reset()  # RF-12
    durable = durable_state(state, environment.own_id)
    if durable != replica.persisted:
        replica.persisted = durable
        output.order(PersistElectionState(durable))
    leader = replica.leader
    if leader != replica.announced:
        replica.announced = leader
        output.order(AnnounceLeader(leader, state.epoch_start_offset if isinstance(state, Leader) else None))


def _release_waiting(environment: Environment, replica: ReplicaState, output: Output, left: Leader) -> None:
    """Fail the appends that waited for the leader (LI-26), and answer the parked fetches."""
    message = f"leadership of epoch {left.epoch} was lost; the append may still be committed by the next leader"
    # These appends may or may not take effect. Consider records 100 to 104 of epoch 5, which one follower has and which
    # are not committed: if it is elected, epoch 6 commits them; if another one is, they are truncated. So the error
    # does not claim that they are lost, and a client that retries may append twice.
    for append_id in left.accumulator.take_all():
        output.order(FailAppend(append_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, message))
    for fetch in left.purgatory.take_all():
        output.reply(fetch.request_id, error_response(environment, replica, ErrorCode.NOT_LEADER_OR_FOLLOWER))


# --- a state each -----------------------------------------------------------------------------------------------------


def become_unattached(
    environment: Environment,
    replica: ReplicaState,
    output: Output,
    epoch: Epoch,
    *,
    leader_id: NodeId | None = None,
    voted_key: ReplicaKey | None = None,
) -> Unattached:
    """Enter Unattached. The rest of a running election timeout is kept, unless a vote was granted (RF-09, RF-18)."""
    state = replica.state
    deadline_ms = None
    if replica.may_be_elected(environment) and not replica.shutdown.is_requested:
        deadline_ms = environment.now_ms + environment.election_timeout_ms()
        # Consider voter 3 of five, which knows no leader, and 1 and 2, which open one epoch after the other and win
        # none, each time before the timer of 3 expires. With a new timer for each epoch 3 would never become a
        # candidate, though it may be the one that can win. With the rest of its timer it does. When 3 grants a vote,
        # the timer is new: the candidate needs time to win.
        if voted_key is None and isinstance(state, Candidate | Prospective | Resigned | Unattached):
            deadline_ms = state.election_deadline_ms or deadline_ms
            if deadline_ms <= environment.now_ms:  # it has expired: start a new one
                deadline_ms = environment.now_ms + environment.election_timeout_ms()
    if epoch == state.epoch:
        voted_key = voted_key or state.voted_key
    entered = Unattached(epoch=epoch, leader_id=leader_id, voted_key=voted_key, election_deadline_ms=deadline_ms)
    transition(environment, replica, output, entered)
    return entered


def become_follower(
    environment: Environment,
    replica: ReplicaState,
    output: Output,
    epoch: Epoch,
    leader_id: NodeId,
    leader_endpoint: Endpoint,
) -> Follower:
    """Enter Follower, of a leader whose endpoint is known."""
    newcomers.end_founding(replica, output)
    entered = Follower(
        epoch=epoch,
        leader_id=leader_id,
        leader_endpoint=leader_endpoint,
        voted_key=replica.state.voted_key if epoch == replica.epoch else None,
        fetch_deadline_ms=environment.now_ms + environment.config.fetch_timeout_ms,
    )
    transition(environment, replica, output, entered)
    return entered


def become_prospective(environment: Environment, replica: ReplicaState, output: Output, reason: str) -> None:
    """Ask for pre-votes in the current epoch, for that reason; a sole voter needs no other vote (RF-04)."""
    output.decisions.append(ElectionBegun(reason))
    state = replica.state
    leader_id = state.leader_id if isinstance(state, Follower | Unattached) else None
    # Why there is a pre-vote: consider voters 1, 2 and 3 in epoch 5, and 3 is cut off from the leader, 1, but not from
    # 2. Without a pre-vote it would open epoch 6, 7, 8 and so on, and each of them would depose 1 by way of 2. Instead
    # it asks in epoch 5 whether it would win: 2 has fetched from 1 and refuses, and nothing changes.
    votes = _new_tally(environment, allows_change=True)
    transition(
        environment,
        replica,
        output,
        Prospective(
            epoch=state.epoch,
            leader_id=leader_id,
            leader_endpoint=state.leader_endpoint if isinstance(state, Follower) else None,
            voted_key=state.voted_key,
            election_deadline_ms=environment.now_ms + environment.election_timeout_ms(),
            votes=votes,
        ),
    )
    if votes.is_won:
        become_candidate(environment, replica, output)


def become_candidate(environment: Environment, replica: ReplicaState, output: Output) -> None:
    """Open the next epoch and vote for itself."""
    entered = new_candidate(environment, Epoch(replica.epoch + 1))
    transition(environment, replica, output, entered)
    newcomers.end(replica, output)
    if entered.votes.is_won:
        become_leader(environment, replica, output, entered)


def new_candidate(environment: Environment, epoch: Epoch) -> Candidate:
    """A candidate of `epoch` that has its own vote only."""
    votes = _new_tally(environment, allows_change=False)
    return Candidate(
        epoch=epoch,
        voted_key=own_key(environment),
        election_deadline_ms=environment.now_ms + environment.election_timeout_ms(),
        votes=votes,
    )


def become_leader(environment: Environment, replica: ReplicaState, output: Output, candidate: Candidate) -> None:
    """Enter Leader as the winner of an election and open the epoch with a leader change record (RF-40)."""
    key, log = candidate.voted_key, replica.log
    granting = candidate.votes.granting()
    leader = Leader(
        epoch=candidate.epoch,
        leader_id=key.node_id,
        voted_key=key,
        epoch_start_offset=log.end_offset,
        accumulator=Accumulator(log.end_offset),
        purgatory=Purgatory(environment.config.parked_fetches_max),
        granting_voters=tuple(voter for voter in environment.voters.replica_keys() if voter.node_id in granting),
        voters={
            voter.node_id: ReplicaProgress(voter)
            for voter in environment.voters.replica_keys()
            if voter.node_id != key.node_id
        },
        check_quorum_deadline_ms=(
            None if environment.is_only_voter else environment.now_ms + environment.config.check_quorum_timeout_ms
        ),
        begin_quorum_deadline_ms=environment.now_ms,
        since_ms=environment.now_ms,
    )
    transition(environment, replica, output, leader)
    # The order matters: the transition first orders the epoch and its leader to disk, and only then follows a record of
    # the epoch. After a crash between the two the replica finds itself as the leader, and starts as Resigned
    # (`initial_state`).
    committed.note_no_gap(replica, output)  # this log has everything known here as committed
    snapshot_fetch.abandon(replica, output)
    record = LeaderChange(
        leader_id=leader.leader_id,
        voters=tuple(environment.voters.replica_keys()),
        granting_voters=leader.granting_voters,
    )
    base_offset = log.append(leader.epoch, 1)
    leader.accumulator.next_offset = log.end_offset
    output.order(AppendLeaderChange(base_offset, leader.epoch, record))
    output.order_flush(log)


def become_resigned(environment: Environment, replica: ReplicaState, output: Output, leader: Leader) -> None:
    """Stop leading and ask the others to elect, the one with the longest log first (RF-34, RF-35)."""
    # Consider the other voters at 100, 120 and 120, of which the second recovers: the order is the third, the first,
    # the second. The third starts an election at once, and the others give it time (RF-36). A voter with a shorter log
    # may ask in vain, and delay a voter that can win; a voter that recovers does not ask at all.
    by_progress = sorted(
        leader.voters.values(),
        key=lambda progress: (
            progress.is_recovering or progress.has_diverged,
            -progress.end_offset,
            progress.key.node_id,
        ),
    )
    transition(
        environment,
        replica,
        output,
        Resigned(
            epoch=leader.epoch,
            voted_key=leader.voted_key,
            election_deadline_ms=environment.now_ms + environment.election_timeout_ms(),
            unacknowledged=dict.fromkeys(leader.voters),
            preferred_candidates=tuple(progress.key for progress in by_progress),
        ),
    )


def own_key(environment: Environment) -> ReplicaKey:
    """The key of a replica that takes part in elections. Raises TypeError for one without a node id."""
    if environment.key is None:
        raise TypeError("a replica without a node id takes no part in elections")
    return environment.key


def _new_tally(environment: Environment, *, allows_change: bool) -> VoteTally:
    votes = VoteTally(tuple(key.node_id for key in environment.voters.replica_keys()), allows_change)
    votes.record(own_key(environment).node_id, True)
    return votes
