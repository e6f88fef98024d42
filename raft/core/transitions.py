"""The state machine of the protocol: which state may follow which, and the one function that changes the state.

Two rules hold in this file: an edge that is not in the table raises, and what must survive a crash is ordered to disk
before anything of the new state leaves (RF-11).

**Epochs are the time of the protocol.** Replicas have no common clock. Each knows the highest epoch that it has seen,
which never goes back, and sends it with every message. A replica that sees a higher one leaves its state: that is why
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
stays in its epoch, as Prospective, Unattached or Follower, and deposes no leader when it is back (KIP-996).

**What is on disk** (RF-95) is epoch, leader and vote. Prospective and Resigned write nothing: a crash in them is a
crash in the state before. A crash after Candidate starts as Candidate again, a crash after Leader as Resigned
(`raft.core.startup`).

The page docs/internals/states.md is drawn from the table. When you change the table, give each edge a comment, and run
`python tools/generate_states.py`. tests/raft/core/transcripts shows most of the edges at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftbase.checks import check
from kraftbase.errors import ErrorCode
from raft.core.actions import AnnounceLeader, FailAppend, PersistElectionState, Reply
from raft.core.context import Context
from raft.core.decisions import StateEntered
from raft.core.messages import FetchResponse
from raft.core.states import (
    ROLES,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    State,
    Unattached,
    durable_state,
)
from raft.core.types import UNKNOWN_HIGH_WATERMARK

HIGHER: Final = "a higher epoch"
SAME: Final = "the same epoch"
NEXT: Final = "the next epoch"

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
        Role.RESIGNED: (SAME,),  # asked to, shutting down, fenced, or no majority fetches any more
        Role.FOLLOWER: (HIGHER,),  # learns of the leader of a higher epoch
        Role.UNATTACHED: (HIGHER,),  # a higher epoch without a leader
    },
    Role.FOLLOWER: {
        Role.FOLLOWER: (HIGHER,),  # learns of the leader of a higher epoch
        Role.PROSPECTIVE: (SAME,),  # fetch timeout, or the leader's address refuses connections (RF-30); voters only
        Role.UNATTACHED: (HIGHER, SAME),  # a higher epoch; the same: the leader lacks what is committed
    },
    Role.RESIGNED: {
        Role.UNATTACHED: (HIGHER,),  # its election timeout opens the next epoch (RF-13), or a higher epoch
        Role.FOLLOWER: (HIGHER,),  # learns of the leader of a higher epoch
        Role.CANDIDATE: (NEXT,),  # only a sole voter that led when it stopped (RF-04)
    },
}
"""From, to: the epochs in which the edge may be taken, relative to the old state's."""


def transition(context: Context, state: State) -> None:
    """Enter `state`: check the edge, order the durable part to disk, release what the old state held.

    Raises InvariantViolation for an edge that is not in the table, or a forbidden state (RF-07).
    """
    _check_edge(context, context.state, state)
    left = context.state
    context.decisions.append(StateEntered(ROLES[type(left)], left.epoch, ROLES[type(state)], state.epoch))
    enter(context, state)
    if isinstance(left, Leader):
        # After the new state is ordered to disk: the answers below name the leader of the new state.
        _release_waiting(context, left)


def enter(context: Context, state: State) -> None:
    """Enter the initial state, or one whose edge was checked."""
    context.state = state
    context.connections.reset()  # RF-12
    durable = durable_state(state, context.own_id)
    if durable != context.persisted:
        context.persisted = durable
        context.order(PersistElectionState(durable))
    announce_leader(context)


def announce_leader(context: Context) -> None:
    """Announce the leader if it has changed. A new leader announces itself, when its epoch has its first record."""
    if context.leader != context.announced:
        context.announced = context.leader
        epoch_start_offset = context.state.epoch_start_offset if isinstance(context.state, Leader) else None
        context.order(AnnounceLeader(context.leader, epoch_start_offset))


def _check_edge(context: Context, old: State, new: State) -> None:
    old_role, new_role = ROLES[type(old)], ROLES[type(new)]
    if new.epoch == old.epoch:
        allowed = {SAME}
    elif new.epoch == old.epoch + 1:
        allowed = {HIGHER, NEXT}
    else:
        allowed = {HIGHER}
    details = {"left": old_role.value, "entered": new_role.value, "old_epoch": old.epoch, "new_epoch": new.epoch}
    check(new.epoch >= old.epoch, "an epoch never goes back", **details)
    check(not allowed.isdisjoint(EDGES[old_role].get(new_role, ())), "there is no such edge between states", **details)
    match new:
        case Follower() | Unattached():
            check(
                isinstance(new, Unattached) or new.leader_id != context.own_id, "no replica follows itself", **details
            )
        case Prospective() | Candidate() | Leader():
            check(context.is_voter, "only a voter takes part in elections", **details)
        case Resigned():
            pass
    # A voter with others goes from Resigned to Unattached in the next epoch, and from there by way of a pre-vote
    # (RF-13). A sole voter has no other voter to ask.
    if isinstance(new, Candidate) and isinstance(old, Resigned):
        check(context.is_only_voter, "only a sole voter skips the pre-vote after it resigned", **details)
    if isinstance(new, Leader) and isinstance(old, Candidate):
        check(old.votes.is_won, "a leader has a majority of the votes", **details)
    if new.epoch == old.epoch:
        _check_same_epoch(context, old, new, details)


def _check_same_epoch(context: Context, old: State, new: State, details: Mapping[str, object]) -> None:
    # Consider voter 1, which has granted 2 its vote in epoch 5, hears nothing from 2, and asks for pre-votes. It stays
    # in epoch 5, and keeps its vote for 2. It votes for itself in epoch 6: in epoch 5 that would be its second vote.
    old_vote, new_vote = old.voted_key, new.voted_key
    check(old_vote is None or old_vote == new_vote, "a vote is kept for the whole epoch (RF-08)", **details)
    voted_for_itself = new_vote is not None and new_vote.node_id == context.own_id and old_vote is None
    check(not voted_for_itself, "only a candidate votes for itself, in an epoch of its own", **details)
    if isinstance(old, Follower | Unattached | Prospective) and isinstance(new, Follower):
        check(old.leader_id in (None, new.leader_id), "an epoch has one leader", **details)


def _release_waiting(context: Context, left: Leader) -> None:
    """Fail the appends that waited for the leader (LI-26), and answer the parked fetches."""
    message = f"leadership of epoch {left.epoch} was lost; the append may still be committed by the next leader"
    # These appends may or may not take effect. Consider records 100 to 104 of epoch 5, which one follower has and
    # which are not committed: if it is elected, epoch 6 commits them; if another one is, they are truncated. So the
    # error does not claim that they are lost, and a client that retries may do something twice.
    for append_id in left.accumulator.take_all():
        context.order(FailAppend(append_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, message))
    for fetch in left.purgatory.take_all():
        response = FetchResponse(
            error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            leader=context.leader,
            leader_endpoint=context.leader_endpoint,
            high_watermark=UNKNOWN_HIGH_WATERMARK,
            log_start_offset=context.log.start_offset,
        )
        context.order(Reply(fetch.request_id, response))
